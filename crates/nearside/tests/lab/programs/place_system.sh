# Runs in the virtual machine of ../place.rs.
sleep 60 & pids=$!
for place in 0 1 2 3; do
    taskset -c 0-5 $work chase --size 2M --repeat 1000000 > /dev/null & pids="$pids $!"
done
state() { for pid in $pids; do echo $(grep -h Cpus_allowed_list /proc/$pid/task/*/status); done; cat /proc/sys/kernel/numa_balancing; }
sleep 0.05; state > /tmp/before
$near place --quiet --override --policy balanced --round 0.5 --system --json /tmp/system.json & placing=$!
for look in 1 2 3 4 5 6 7 8 9; do sleep 0.03; state > /tmp/meanwhile; [ $(grep -c 'list: 0-5' /tmp/meanwhile) = 0 ] && break; done
kill -INT $placing; wait $placing; echo '[system status]'; echo $?
state > /tmp/after; kill $pids
for name in system.json before meanwhile after; do echo "[$name]"; cat /tmp/$name; done
