# Runs in the virtual machine of ../run.rs.
echo '[hardware]'; numactl --hardware | grep -v free > /tmp/theirs; $near run --hardware | grep -v free > /tmp/ours; diff /tmp/theirs /tmp/ours && echo same
$near run -H --cpu-compress | grep '^node 1 cpus'
echo '[parent]'; $near run -N 0 -m 0 -- $near run --show | grep -E 'physcpubind|membind'; $near run --show | head -1
echo '[wrong]'
for wrong in '-m 0 -m 1' '-l -i 0' '-m same' '-m 0 -H' '--touch' '--verify' '--file /dev/shm/x --verify' '--cpu-compress' '--nonsense' '--file /dev/shm/x' \
    '--file /dev/shm/x --length 4096 -m 0 -N 0' '--length 1' '--shmmode 8 --shm /tmp/k -m 0' '--huge sometimes'; do
    $near run $wrong true > /tmp/told 2>&1; echo "$? $wrong"; done
echo '[balanced]'; balanced --balancing; balanced
echo '[huge]'
$near run --huge never grep THP_enabled /proc/self/status
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; $near run --huge=always printenv GLIBC_TUNABLES
echo never > /sys/kernel/mm/transparent_hugepage/enabled; try $near run --huge always true
echo '[cgroup]'
try $near run --cgroup /batch/.. true
echo '+cpuset +memory' > /sys/fs/cgroup/cgroup.subtree_control
$near run --cgroup /batch cat /proc/self/cgroup
try $near run --cgroup /none/below true
echo 0-1 > /sys/fs/cgroup/batch/cpuset.mems; echo 0-3 > /sys/fs/cgroup/batch/cpuset.cpus
try $near run --cgroup /batch --membind 2 true; try $near run --cgroup /batch --physcpubind 7 true; try $near run --cgroup /batch --cpunodebind 3 true
$near run --cgroup /batch --interleave all numactl --show | grep interleavemask
$near run --cgroup /batch $near run --hardware | head -1; sh -c 'echo 0 > /sys/fs/cgroup/batch/cgroup.procs; numactl --hardware' | head -1
echo '+memory' > /sys/fs/cgroup/batch/cgroup.subtree_control; try $near run --cgroup /batch true
echo '[limit]'
echo -memory > /sys/fs/cgroup/batch/cgroup.subtree_control; echo 64M > /sys/fs/cgroup/batch/memory.max
try $near run --cgroup /batch $near run --interleave 0-1 --file /dev/shm/big --length 200M --touch
try $near run --cgroup /batch $near run --interleave 0-1 --file /dev/shm/big --length 20M --touch; ls /dev/shm; rm /dev/shm/big
try $near run --membind 2 --file /dev/shm/big --length 3G --touch | sed -E 's/room for .*/room for N/'; [ -e /dev/shm/big ] || echo 'none is left'
mkdir /tmp/small; mount -t tmpfs -o size=1M none /tmp/small; try $near run --membind 2 --file /tmp/small/file --length 4M --touch
mkdir /tmp/huge; mount -t hugetlbfs none /tmp/huge; try $near run --membind 1 --file /tmp/huge/file --length 4M --touch
echo '[hugetlb]'; echo 2 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
try $near run --membind 1 --file /tmp/huge/file --length 4M --touch --verify --dump --dump-nodes
rm /tmp/huge/file; try $near run --membind 0 --file /tmp/huge/file --length 4M --touch; rm /tmp/huge/file
try $near run --membind 1 --huge --shm /tmp/hugekey --length 4M --touch --dump-nodes
echo '[shared]'
$near run --interleave 1,3 --file /dev/shm/pool --length 64K --touch --verify --dump --dump-nodes
try $near run --membind 2 --strict --file /dev/shm/pool
try $near run --membind 2 --verify --file /dev/shm/pool | tail -3
numactl --length=64k --file=/dev/shm/pool --dump; rm /dev/shm/pool
$near run --preferred 0 --file /dev/shm/part --length 16K --touch; $near run --interleave 1-2 --file /dev/shm/part --offset 16K --length 16K --touch
$near run --file /dev/shm/part --dump; numactl --length=32k --file=/dev/shm/part --dump --dump-nodes; rm /dev/shm/part
$near run --membind 2 --shm /tmp/key --shmid 5 --length 32K --shmmode 640 --touch --dump-nodes
numactl --shmid=5 --shm=/tmp/key --dump; ipcs -m | awk '$5 == 32768 { print $4, $5 }'; stat -c %a /tmp/key
echo '[orphan]'; sh -c 'sleep 0.01 & echo $! > /tmp/orphan'; sleep 0.1; [ -e /proc/$(cat /tmp/orphan) ] || echo gone
echo '[end]'
