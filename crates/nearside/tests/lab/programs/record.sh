# Runs in the virtual machine of ../record.rs.
try() { "$@" 2>&1; echo "status $?"; }
echo '[streamcluster]'
try ../nearside record -o out/streamcluster --period 100 --json out/streamcluster.json -- \
    ../nearside-workloads streamcluster --size 16M --repeat 2
echo '[reuse]'; try ../nearside record --quiet -o out/reuse --period 10 -- sh -c './reuse; ./reuse'
echo '[rate]'
try ../nearside record --quiet -o out/rate --rate 50000 --no-objects --json out/rate.json -- \
    ../nearside-workloads chase --pin 0 --size 4M --repeat 2
balancing=/sys/kernel/debug/sched/numa_balancing
echo 50 > $balancing/scan_delay_ms; echo 50 > $balancing/scan_period_min_ms
echo '[faults]'
try ../nearside record --quiet -o out/faults --source hint-faults --json out/faults.json -- \
    ../nearside-workloads readers --size 8M --pin 2-3 --touch-cpu 0 --repeat 40
echo '[killed]'
switch=/proc/sys/kernel/numa_balancing; echo 0 > $switch
../nearside record --quiet -o out/killed --source hint-faults -- sleep 1 &
until [ "$(cat $switch)" = 1 ]; do sleep 0.01; done
kill -9 $!
for look in $(seq 100); do [ "$(cat $switch)" = 0 ] && break; sleep 0.02; done
cat $switch
echo '[blind]'; echo 1 > $switch
try ../nearside record --quiet -o out/blind --source hint-faults --json out/blind.json -- sh -c "echo 0 > $switch"
echo '[twice]'; try ../nearside record -q -o out/outer -- ../nearside record --source lab -o /tmp/inner -- true
echo '[user]'
cd /tmp; try setpriv --reuid 65534 --regid 65534 --clear-groups $OLDPWD/../nearside record --source lab -- true
echo '[end]'
