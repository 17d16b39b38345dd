# Runs in the virtual machine of ../look.rs.
for node in 1 5; do echo 4 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
as_user='setpriv --reuid 65534 --regid 65534 --clear-groups'
try() { "$@" 2>&1; echo "status $?"; }
$as_user ../nearside-workloads place 0,1,2,3,4,5,7:base:28M 0,7:mixed:8M 5:hugetlb:4M > placed & pid=$!
until [ -s placed ] || ! kill -0 $pid; do sleep 0.05; done
echo '[root]'; ../nearside show --json $pid
echo '[user]'; $as_user ../nearside show --json $pid
echo '[numa_maps]'; cat /proc/$pid/numa_maps
echo '[memory]'; $as_user ../nearside memory --json $pid
for part in 1 2 3; do
    echo "[pages-$part]"; $as_user ../nearside pages $pid $(sed -n ${part}p placed) --json
done
echo '[hardware]'; numactl --hardware
echo '[machine]'; $as_user ../nearside show --json
echo '[text]'; ../nearside show $pid
first=$(sed -n 1p placed | cut -d - -f 1)
echo '[half]'; $as_user ../nearside pages $pid $first-ffffffff0000 --each 2>&1 > /dev/null
echo '[nothing]'; try $as_user ../nearside pages $pid '[vvar]'
echo '[backwards]'; try ../nearside pages $pid 5000-4000
echo '[name]'; try ../nearside pages $pid no-such.so
sh -c 'sleep 0 & echo $! > ended; exec sleep 60' & sleep 0.3
for verb in show pages memory; do echo "[zombie-$verb]"; try $as_user ../nearside $verb $(cat ended); done
for verb in show pages memory; do echo "[thread-$verb]"; try $as_user ../nearside $verb 2; done
sleep 60 & roots=$!
mount -o remount,hidepid=2 /proc
echo '[hidden]'; try $as_user ../nearside show $roots
echo '[gone]'; try $as_user ../nearside show 999999
kill $pid $roots
echo '[end]'
