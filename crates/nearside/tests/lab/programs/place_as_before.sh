# Runs in the virtual machine of ../place.rs.
near=../nearside; work=../nearside-workloads
place() { $near place --quiet "$@"; echo "status $?"; }
cpus() { grep -o 'Cpus_allowed_list.*' /proc/$1/status | tr -d ' \t'; }
echo 1 > /proc/sys/kernel/numa_balancing; before=$(cat /proc/sys/kernel/numa_balancing)
echo '[inherited]'; place --policy fixed:2 -- sh -c 'sh -c "grep Cpus_allowed_list /proc/self/status"'
echo '[chosen]'; place --policy rr-threads -- \
    sh -c 'taskset -pc 5 $$ > /dev/null; sleep 0.1; grep Cpus_allowed_list /proc/self/status'
echo '[memory]'; place --policy interleave -- sh -c 'grep -m1 file= /proc/self/numa_maps'
echo '[owner]'; numactl --membind=1 $near place --quiet --policy interleave -- \
    sh -c 'grep -m1 file= /proc/self/numa_maps'
echo '[override]'; numactl --membind=1 $near place --quiet --override --policy interleave -- \
    sh -c 'grep -m1 file= /proc/self/numa_maps'
echo '[weights]'; place --policy weighted-interleave:0-2 -- sh -c 'grep -m1 file= /proc/self/numa_maps'
for policy in rr-tasks balanced+local auto carrefour thread-clustering+carrefour; do
    echo "[$policy]"; place --policy $policy -- sh -c "
        $work hmake --size 64K --json > /dev/null || echo hmake failed
        $work psearchy --size 2M --json > /dev/null || echo psearchy failed
        numactl --interleave=all $work kv --size 1M --json > /dev/null || echo kv failed
        taskset -c 0-3 $work ft --size 1M --threads 4 --json > /dev/null || echo ft failed; exit 7"
done
for policy in balanced rr-tasks rr-threads auto balanced+local balanced+remote remote; do
    echo "[placed $policy]"; place --policy $policy -- sh -c 'sleep 0.1
        grep -h Cpus_allowed_list /proc/$$/status; grep -m1 heap /proc/$$/numa_maps
        sh -c "sleep 0.1; grep -h Cpus_allowed_list /proc/\$\$/status; true"'
done
echo '[off]'; $near place --quiet --policy carrefour -- cat /proc/sys/kernel/numa_balancing
echo '[keep]'; $near place --quiet --kernel-balancing keep -- cat /proc/sys/kernel/numa_balancing
echo '[dry]'; $near place --dry-run --explain --policy fixed:2 -- grep Cpus_allowed_list /proc/self/status 2>&1
$near place --dry-run --explain --policy interleave -- true 2>&1
echo '[outlived]'; place --policy fixed:2 -- sh -c 'setsid sleep 60 > /dev/null & echo $! > /tmp/pid; sleep 0.1'
cpus $(cat /tmp/pid); kill $(cat /tmp/pid)
echo '[running]'; taskset -c 1-6 sleep 60 & pid=$!; taskset -c 1-6 true
$near place --policy fixed:3 --override --pid $pid 2>/tmp/told & agent=$!
for try in 1 2 3 4 5 6 7 8 9; do sleep 0.1; [ "$(cpus $pid)" = Cpus_allowed_list:3 ] && break; done; cpus $pid
kill -INT $agent; wait $agent; echo "status $?"; cpus $pid; cat /tmp/told
echo '[respected]'; timeout -s INT 0.3 $near place --quiet --policy fixed:3 --pid $pid; cpus $pid; kill $pid
echo '[gone]'; $near place --quiet --pid 4000000 2>&1; echo "status $?"
echo '[user]'; as="setpriv --reuid 65534 --regid 65534 --clear-groups"
$as $near place --quiet --policy interleave -- sh -c 'grep -m1 file= /proc/self/numa_maps'; echo "status $?"
echo '[refused]'; $as $near place --source none --pid 1 2>&1; echo "status $?"
echo '[blind]'; $as $near place --policy carrefour -- true 2>&1; echo "status $?"
echo '[left]'; [ "$(cat /proc/sys/kernel/numa_balancing)" = "$before" ] && echo as before
ls /run/nearside/*.journal /tmp/nearside-*/*.journal 2>/dev/null
echo '[end]'
