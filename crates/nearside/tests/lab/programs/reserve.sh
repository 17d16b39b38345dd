# Grants on four nodes of two CPUs, made, listed, released, killed and refused. Control groups are looked at before and
# after.
groups() { ls -d /sys/fs/cgroup/nearside-grant-* 2>/dev/null; cat /sys/fs/cgroup/cpuset.cpus.isolated; ls /run/nearside/grants 2>/dev/null | grep -v lock; ls /run/nearside | grep journal; }
mkdir /sys/fs/cgroup/batch
cat /proc/irq/*/smp_affinity_list > before.irq
echo "[inside]"
nearside reserve run --isolate core,cache,controller --node 1 --local --limit /batch -- true 2>&1; echo "status $?"
nearside reserve run --isolate core,cache,controller --node 1 --bytes 64M --limit /batch -- sh -c '
    grep -E "^(Cpus|Mems)_allowed_list" /proc/self/status
    cat /proc/self/cgroup
    taskset -c 0 true 2>/dev/null && echo "it runs elsewhere"
    numactl -m 2 true 2>/dev/null && echo "its memory is elsewhere"
    exit 7' 2>run.error; echo "status $?"
cat run.error | grep -c "the rest may draw"
echo "[image]"
cat $(realpath $(which grep)) > /dev/null
nearside reserve run --isolate core --node 1 --copy-image -- grep -m1 "file=.*grep" /proc/self/numa_maps 2>/dev/null
echo "[outside]"
nearside reserve run --isolate core,cache,controller --node 1 --limit /batch -- sleep 100000 2>/dev/null & RUN=$!
wait_for listed sleep
nearside reserve list | grep -c sleep
grep Cpus_allowed_list /proc/self/status
taskset -c 3 true 2>/dev/null; echo "taskset $?"
cat /sys/fs/cgroup/batch/cpu.max /sys/fs/cgroup/cpuset.cpus.isolated
grep -l -E '(^|[,-])[23]($|[,-])|0-7' /proc/irq/*/smp_affinity_list | wc -l
nearside reserve explain 1 | head -1
echo "[taken]"
nearside reserve run --cpus 2 -- true 2>&1; echo "status $?"
echo "[released]"
nearside reserve release 1; echo "status $?"
for i in $(seq 200); do [ -d /sys/fs/cgroup/nearside-grant-1 ] || break; sleep 0.01; done
groups
pgrep -x sleep >/dev/null && echo "it goes on"
kill $RUN; wait $RUN 2>/dev/null; echo "status $?"
cat /sys/fs/cgroup/batch/cpu.max
echo "[killed]"
nearside reserve run --isolate core,cache,controller --node 1 --limit /batch -- sleep 100001 2>/dev/null & RUN=$!
wait_for listed sleep
kill -9 $RUN; wait $RUN 2>/dev/null
nearside reserve list
nearside reserve run -- true 2>&1 | grep -E "removed|value" | sed 's/.*nearside-/nearside-/'
pkill -x sleep
groups
echo "[irq]"
cat /proc/irq/*/smp_affinity_list | cmp - before.irq && echo same
echo "[wrong]"
nearside reserve run --isolate controller --limit /nowhere -- true 2>&1 | tail -1
nearside reserve run --isolate core --limit /batch -- true 2>&1
nearside reserve run --isolate core -- /nowhere/program 2>&1 | tail -1
nearside reserve release 9 2>&1; echo "status $?"
groups
echo "[end]"
