# Runs in the virtual machine of ../migrate.rs.
echo '[writes]'
$work checksum --size 8M --threads 4 --writes 1600000 > /tmp/sum & pid=$!
while kill -0 $pid 2>/dev/null; do for node in 1 2 3 0; do move --to $node | tr -d ' \n' | grep -oE '"moved":.*"moved_to"'; done; done 2>/dev/null
wait $pid; echo "status $?"; cat /tmp/sum
echo '[exit]'; hold --size 32M; (sleep 1; kill $pid) & move --to 1 --budget 10; wait $pid 2>/dev/null
echo '[exec]'; cp $work /tmp/work
sh -c 'head -c 8000000 /dev/zero > /dev/shm/zeroes; read x < /dev/shm/zeroes; sleep 0.5; exec sleep 30' & pid=$!
sleep 0.2; try move --to 2 --budget 1; kill $pid
echo '[fork]'; sh -c 'while :; do /bin/true; done' & pid=$!
for node in 1 2 3; do try move --to $node | tail -1; done; kill $pid
echo '[shared]'; hold --size 4M --file /dev/shm/both; first=$pid; hold --size 4M --file /dev/shm/both
try move --to 1 --range $range; try move --to 1 --range $range --shared; let_go; kill $first
echo '[pinned]'; hold --size 4M --file /dev/shm/pinned --pinned; try move --to 1 --range $range; let_go; rm /dev/shm/*
echo '[full]'; on='--membind 3'; hold --size 140M; full=$pid; on='--membind 0'; hold --size 60M; try move --to 3 --range $range; let_go; kill $full
echo '[others]'
echo '  gone'; try $near migrate 99999 --to 1
echo '  kernel'; try $near migrate 2 --to 1
for target in 99999 2; do try $near bind $target --cpunodebind 1; try $near bind $target --cpunodebind 1 --follow; done | grep -c 'status 1'
echo '  zombie'; sh -c 'sleep 0 & exec sleep 5' & sleep 1; zombie=$(ps -eo pid,stat | awk '$2 ~ /Z/ { print $1; exit }'); try $near migrate $zombie --to 1 | sed "s/$zombie/N/g"
sleep 60 & pid=$!; sleep 0.2
echo '  stranger'; try setpriv --reuid 65534 --clear-groups $near migrate $pid --to 1 | sed "s/$pid/N/g"
echo '  stranger-bind'; try setpriv --reuid 65534 --clear-groups $near bind $pid --cpunodebind 1 | sed "s/$pid/N/g"
echo '  own'; setpriv --reuid 65534 --clear-groups sh -c "sleep 60 & sleep 0.2; $near migrate \$! --to 1 > /dev/null; echo status \$?; kill \$!"
echo '  shared'; setpriv --reuid 65534 --clear-groups sh -c "sleep 60 & sleep 0.2; $near migrate \$! --to 1 --shared 2>&1; echo status \$?; kill \$!" | sed -E 's/process [0-9]+/process N/g'
echo '  cpuset'; echo '+cpuset +memory' > /sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/few; echo 0-1 > /sys/fs/cgroup/few/cpuset.mems
echo $pid > /sys/fs/cgroup/few/cgroup.procs; try $near migrate $pid --to 2; try $near bind $pid --cpunodebind 2 | head -1 | sed "s/$pid/N/"
echo '[limit]'; mkdir /sys/fs/cgroup/limited; echo 40M > /sys/fs/cgroup/limited/memory.max; on='--membind 0'
hold() { $near run --cgroup /limited $on -- $work hold "$@" > /tmp/held & pid=$!; until grep -q holding /tmp/held; do sleep 0.05; done; range=$(sed 's/holding //' /tmp/held); }
hold --size 36M; move --to 1 --range $range; nodes; grep -E '^(max|oom) ' /sys/fs/cgroup/limited/memory.events; let_go
echo '[end]'
