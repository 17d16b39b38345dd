# Runs in the virtual machine of ../agent.rs.
follows() { ask status | grep -q "^policy $1,"; }
echo "[policy]"; ask policy balanced; wait_for follows balanced; ask threshold imbalance_min=0.5 --json; ask policy bind:9 2>&1
is_managed() { ask explain $pid | grep -q 'is managed by'; }
is_there() { for task in /proc/$pid/task/*; do grep -q 'Cpus_allowed_list:.3$' $task/status || return 1; done; [ $(elsewhere) -lt 16 ]; }
elsewhere() { awk '/anon=/ && !/file=/ { for (i = 3; i <= NF; i++) if ($i ~ /^N[0-2]=/) { sub(/.*=/, "", $i); sum += $i } } END { print sum + 0 }' /proc/$pid/numa_maps; }
wait_for is_managed
echo "[place]"; [ $(elsewhere) -gt 16 ] && echo elsewhere; ask place $pid --node 3; wait_for is_there; is_there && echo there
ask explain $pid | grep -c 'a request to the agent placed the process there'
ask place 2 --node 1 2>&1; ask place $pid --node 9 2>&1
is_known() { ask explain $1 | grep -q 'is managed by'; }
may_use() { grep -q "Cpus_allowed_list:.$2\$" /proc/$1/status; }
taskset -c 0 sh -c 'while :; do :; done' & bound=$!
wait_for is_known $bound
echo "[owner]"; ask place $bound --node 3 2>&1; kill $bound
# What a placed process leaves behind has its CPUs, though nothing says so after its end.
ask policy predict > /dev/null; wait_for follows predict
sh -c 'while [ ! -e /tmp/go ]; do :; done; setsid sleep 1000 & echo $! > /tmp/daemon; sleep 0.5' & parent=$!
wait_for is_known $parent; ask place $parent --node 3 > /dev/null; wait_for may_use $parent 3
touch /tmp/go; wait $parent; daemon=$(cat /tmp/daemon)
echo "[orphan]"; may_use $daemon 3 && echo kept
ask policy balanced > /dev/null; wait_for may_use $daemon 0-3; may_use $daemon 0-3 && echo free; kill $daemon
wait_for follows balanced
echo "[reload]"; kill -HUP $service; wait_for follows balanced+interleave; follows balanced+interleave && echo yes; ask reload
echo 'policie = 1' > /tmp/interleave.toml; ask reload 2>&1; follows balanced+interleave && echo yes
