# Runs in the virtual machine of ../look.rs.
for node in 0 1; do echo 8 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
numactl --interleave=0,1 ../nearside-workloads place 0:base:4M 1:huge:8M 0,1,1,0:mixed:16M 1:hugetlb:6M > placed &
pid=$!
until [ -s placed ] || ! kill -0 $pid; do sleep 0.05; done
echo '[placed]'; cat placed
echo '[show]'; ../nearside show --json $pid
echo '[numa_maps]'; cat /proc/$pid/numa_maps
echo '[memory]'; ../nearside memory --json $pid
for part in 1 2 3 4; do
    range=$(sed -n ${part}p placed)
    echo "[pages-$part]"; ../nearside pages $pid $range --json
done
first=$(sed -n 1p placed | cut -d - -f 1)
echo '[page]'; ../nearside pages $pid $first --each --kernel-flags --json
echo '[entry]'; dd if=/proc/$pid/pagemap bs=8 count=1 skip=$((0x$first / 4096)) status=none | od -A n -t u8
echo '[metrics]'; ../nearside memory $pid --format openmetrics
echo '[text]'; ../nearside show $pid
echo '[strip]'; ../nearside pages $pid $(sed -n 3p placed)
echo '[svg]'; ../nearside pages $pid --format svg
echo '[hardware]'; numactl --hardware
echo '[machine]'; ../nearside show --json

mkdir /sys/fs/cgroup/half; echo '+cpuset +memory' > /sys/fs/cgroup/cgroup.subtree_control
echo 1 > /sys/fs/cgroup/half/cpuset.mems; echo 2-3 > /sys/fs/cgroup/half/cpuset.cpus
sh -c 'echo $$ > /sys/fs/cgroup/half/cgroup.procs; exec ../nearside-workloads place 1:base:4M' > inside &
inside=$!
until [ -s inside ] || ! kill -0 $inside; do sleep 0.05; done
echo '[inside]'; ../nearside show --json $inside
echo '[cgroup]'; ../nearside memory --json --cgroup /half
kill $inside

as_user='setpriv --reuid 65534 --regid 65534 --clear-groups'
$as_user ../nearside-workloads place 1:base:2M > own &
own=$!
until [ -s own ] || ! kill -0 $own; do sleep 0.05; done
echo '[own]'; $as_user ../nearside pages $own $(cat own) --each 2>&1 | tail -2
echo '[own-show]'; $as_user ../nearside show --json $own
for verb in 'show' 'pages' 'memory'; do
    echo "[other-$verb]"; $as_user ../nearside $verb $pid 2>&1; echo "status $?"
done
echo '[kernel-flags]'; $as_user ../nearside pages $own --each --kernel-flags 2>&1; echo "status $?"
kill $own

echo '[unmapped]'; ../nearside pages $pid 1000-2000 2>&1; echo "status $?"
end=$(sed -n 4p placed | cut -d - -f 2)
echo '[half]'; ../nearside pages $pid $first-ffffffff0000 --json
echo '[kernel]'; ../nearside pages 2 2>&1; echo "status $?"
../nearside-workloads hold --size 192M > held & big=$!
until grep -q holding held || ! kill -0 $big; do sleep 0.05; done
{ ../nearside pages $big --each 2> note; echo "status $?" >> note; } | { read heading; kill $big; sleep 0.3; wc -l; } > lines
echo '[ended]'; cat lines note
../nearside show --json --watch=0.1 $pid > watched & watch=$!
sleep 0.5; kill $pid; wait $watch; echo '[watched]'; echo "status $?"
echo '[end]'
