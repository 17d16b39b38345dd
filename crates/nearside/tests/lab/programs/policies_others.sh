# Runs in the virtual machine of ../policies.rs.
for options in '--interleave=0,3,5' --membind=4 --preferred=1 '-N 3 --localalloc'; do user=root; placed $options; placed_by_numactl $options; done
echo 3 > /sys/kernel/mm/mempolicy/weighted_interleave/node0 && placed --weighted-interleave 0-1
echo '[full]'; hold $near run --preferred 6 -- $work hold --size 300M; nodes; let_go
echo '[hugetlb]'; for node in 3 7; do echo 4 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
mkdir /tmp/huge; mount -t hugetlbfs none /tmp/huge; hold $near run --interleave 3,7 -- $work hold --size 8M --file /tmp/huge/file; nodes; let_go
echo '[transparent]'; echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; hold $near run --membind 7 -- $work hold --size 8M --huge
nodes; $near pages $pid $range --each --json | grep -c 2097152; let_go; echo never > /sys/kernel/mm/transparent_hugepage/enabled
echo '[without-memory]'; try $near run --membind 2 true; try $near run --cpunodebind 2 grep -h Cpus_allowed_list /proc/self/status
echo '[without-cpus]'; try $near run --cpunodebind 7 true
echo '[hardware]'; $near run --hardware | grep -E '^available|^node [27] (cpus|size)|^ *7:'
echo '[wrong]'; try $near run --membind 8 true; try $near run --physcpubind 99 true; try $near run --membind 1-0 true 2>&1 | tail -1; try $near run --preferred 0,1 true
try $near run --membind !all true; try $near run --interleave 0 --membind 1 true | tail -1; try $near run --cpunodebind 0 | tail -1; try $near run --balancing --interleave 0 echo idle
echo '[offline]'; echo 0 > /sys/devices/system/cpu/cpu5/online; try $near run --physcpubind 5 true; try $near run --cpunodebind 2 grep -h Cpus_allowed_list /proc/self/status
sleep 60 & pid=$!; sleep 0.1; try $near bind $pid --physcpubind 5; echo 1 > /sys/devices/system/cpu/cpu5/online
echo '[live]'; act() { $near $@ 2>&1 | tail -1; }
act migrate $pid --to 2; $near migrate $pid --from 0-1,3-6 --to 7 --mapping '[stack]' | head -3 | tail -1 | cut -d' ' -f1
act bind $pid --cpunodebind 2 | sed "s/$pid/N/"; act bind $pid --cpunodebind 7; kill $pid
echo '[end]'
