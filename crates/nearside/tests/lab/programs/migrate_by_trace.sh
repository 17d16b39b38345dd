# Runs in the virtual machine of ../migrate.rs.
cd /tmp; work=$OLDPWD/$work; near=$OLDPWD/$near
seen() { $near report $1 --user --top 1 --json; }
begin() { "$@" > /dev/null & pid=$!; sleep 0.3; }
see() { $near record --quiet --pid $pid --duration 0.1 --period 200 -o $1; }
masks() { for task in $(ls /proc/$pid/task | sort -n); do grep Cpus_allowed_list /proc/$pid/task/$task/status | cut -f2; done | tr '\n' ' '; echo; }
begin numactl --membind 0 $work psearchy --size 32M --repeat 100000 --pin 2,4,6
see remote; kill -STOP $pid # a busy process takes time from the rest
echo '[before]'; seen remote; echo '[moved]'; move --trace remote; kill -CONT $pid; see near
kill -STOP $pid; echo '[after]'; seen near; kill -CONT $pid
echo '[others]'; sleep 60 & other=$!; try $near migrate $other --trace near | sed "s/$other/N/"
kill $pid $other; wait $pid $other; for try in 1 2 3 4 5 6 7 8 9; do
    echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid; sleep 60 & again=$!
    [ $again = $pid ] && break; kill $again
done
[ $again = $pid ]; echo "again $?"; try $near bind $again --trace near | sed "s/$again/N/"; kill $again
begin numactl --membind 2 --physcpubind 0 $work checksum --size 32M --threads 1 --writes 10000000 --repeat 1000
see far; echo '[bound]'; $near bind $pid --trace far | sed "s/$pid/N/"; masks; kill $pid
hostname elsewhere; echo '[elsewhere]'; try $near bind $$ --trace far
echo '[end]'
