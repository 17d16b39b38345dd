# Runs in the virtual machine of ../migrate.rs.
echo '[all]'; hold --size 32M; move --to 1; echo '[all-nodes]'; nodes
echo '[range]'; start=${range%-*}; half=$(printf '%x' $((0x$start + 0x400000)))
move --from 1 --to 2 --range $start-$half; echo '[range-nodes]'; nodes
echo '[page]'; move --to 3 --range 0x$start; echo '[page-nodes]'; nodes
echo '[from]'; move --from 2 --to 0 --range $range; echo '[from-nodes]'; nodes
echo '[dealt]'; move --to 1,2 --range $range; echo '[dealt-nodes]'; nodes
echo '[half]'; try move --to 3 --range $start-$(printf '%x' $((0x${range#*-} + 0x100000000000)))
echo '[budget]'; move --to 0 --range $range --budget 100
echo '[stack]'; move --to 2 --mapping '[stack]' --threads
echo '[wrong]'
for wrong in '--to 9' '--to !all' '--to 1 --budget 0' '--to 1 --range 1000' '--to 1 --range 7-3' '--to 1 --mapping no' '--to 1 --from 8' '--to x'; do
    try $near migrate $pid $wrong | tail -1; done
let_go
echo '[huge]'
echo madvise > /sys/kernel/mm/transparent_hugepage/enabled
hold --size 16M --huge; move --to 3 --range $range; let_go
echo '[hugetlb]'
for node in 0 1; do echo 8 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
mkdir /tmp/huge; mount -t hugetlbfs none /tmp/huge
hold --size 8M --file /tmp/huge/file; move --to 1 --range $range; let_go
masks() { for task in $(ls /proc/$pid/task | sort -n); do grep Cpus_allowed_list /proc/$pid/task/$task/status | cut -f2; done | tr '\n' ' '; echo; }
$work checksum --size 4M --threads 1 --writes 1000000 --repeat 1000 & pid=$!
until [ $(ls /proc/$pid/task | wc -l) = 2 ]; do sleep 0.05; done; thread=$(ls /proc/$pid/task | sort -n | tail -1)
echo '[intersect]'
taskset -pc 4-7 $pid > /dev/null; taskset -pc 0-7 $thread > /dev/null
$near bind $pid --physcpubind 2-5 --intersect --json; echo '[intersect-masks]'; masks
echo '[nothing-left]'; try $near bind $pid --physcpubind 0-1 --intersect | tail -1; masks
echo '[overwrite]'; $near bind $pid --cpunodebind 1 > /dev/null; masks
for look in 1 2 3 4 5 6 7 8; do cut -d' ' -f39 /proc/$pid/task/$thread/stat; sleep 0.02; done | sort -u | grep -vE '^[23]$'
echo '[one]'; $near bind $pid --physcpubind 7 --thread $thread > /dev/null; masks
echo '[bind-wrong]'; for wrong in '--cpunodebind 9' '--physcpubind 99' '--physcpubind 1 --thread 1' '' '--physcpubind !all'; do
    $near bind $pid $wrong 2> /dev/null; echo $?; done
kill $pid; wait $pid 2>/dev/null
numactl --membind 0 cp $work /tmp/both; /tmp/both hold --size 1M > /tmp/held & other=$!
until grep -q holding /tmp/held; do sleep 0.05; done
shared() { grep -E '/tmp/both.* mapmax=' /proc/$pid/numa_maps | grep -v anon= | grep -oE 'N0=[0-9]+' | awk -F= '{ sum += $2 } END { print sum + 0 }'; }
echo '[follow]'
numactl --cpunodebind 0 /tmp/both checksum --size 16M --threads 1 --writes 1000000 --repeat 1000 & pid=$!
sleep 0.5; shared_before=$(shared); $near bind $pid --cpunodebind 2 --follow --interval 0.1 --json > /tmp/events & follower=$!
until grep -q pages_followed /tmp/events; do sleep 0.2; done
grep -oE 'N[0-9]+=[0-9]+' /proc/$pid/numa_maps | sort | awk -F= '{ sum[$1] += $2 } END { print "N2=" sum["N2"] }'
shared_after=$(shared); kill $pid $other; wait $follower; echo "status $?"; cat /tmp/events
echo '[follow-shared]'; echo $shared_before; echo $shared_after
echo '[follow-not]'; numactl --cpunodebind 0 --membind 0 $work checksum --size 16M --threads 1 --writes 1000000 --repeat 1000 & pid=$!
sleep 0.3; $near bind $pid --cpunodebind 2 --follow --interval 0.05 > /tmp/events & follower=$!
sleep 0.5; kill $pid; wait $follower; echo "status $?"; tail -n +2 /tmp/events
echo '[follow-exec]'; sh -c 'sleep 0.3; sleep 0.3; exec sleep 0.5' & pid=$!; sleep 0.1
$near bind $pid --cpunodebind 3 --follow --interval 0.05 | sed -E 's/[0-9]{2,}/N/g'
echo '[end]'
