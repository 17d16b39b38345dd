# Runs in the virtual machine of ../reserve_agent.rs: what users ask of the agent.
echo "[none]"; nearside reserve create --name db 2>&1; echo "status $?"; as 65534 nearside reserve run -- true 2>&1; echo "status $?"
as 65534 nearside reserve list; echo "status $?"
state > /tmp/before; start
echo "[run]"
nearside reserve run --isolate core,cache,controller --node 1 -- sh -c '
    grep -E "^(Cpus|Mems)_allowed_list" /proc/self/status; cat /proc/self/cgroup
    echo "grant $NEARSIDE_GRANT"; cat /sys/fs/cgroup/batch/cpu.max /sys/fs/cgroup/cpuset.cpus.isolated
    taskset -c 0 true 2> /dev/null && echo elsewhere; exit 7' 2> /tmp/error; echo "status $?"; same
echo "[not started]"; nearside reserve run --isolate core -- /nowhere/program 2>&1 | tail -1; same
echo "[options]"; nearside reserve run --limit /batch --isolate controller -- true 2>&1; echo "status $?"
echo "[user]"
as 65534 nearside reserve run --isolate core -- sh -c 'id -u; cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status' 2> /dev/null; echo "status $?"; same
echo "[quota]"
for user in 65533 65532; do as $user nearside reserve run -- true 2>&1; echo "status $?"; done
(exec setpriv --reuid 65534 --regid 65534 --clear-groups nearside reserve run --cores 2 --isolate core --node 1 -- sleep 1000 2> /dev/null) & holder=$!; wait_for listed 65534
as 65534 nearside reserve run --cores 2 -- true 2>&1; echo "status $?"; kill $holder; same
echo "[killed]"
nearside reserve run --isolate core,cache,controller --node 1 -- sleep 1000 2> /dev/null & holder=$!; wait_for listed "by CPU"
grant=$(ls -d $G/nearside-grant-*[0-9]); begin=$(date +%s%N); kill -9 $holder; while [ -d $grant ] || [ -d $grant-idle ]; do :; done
echo $((($(date +%s%N) - begin) / 1000000)); same
echo "[named]"
nearside reserve create --name db --cores 2 --isolate core,controller --node 2 --json | grep '"granted"'
nearside reserve create --name db 2>&1; echo "status $?"
nearside reserve enter db -- sh -c 'grep -E "^(Cpus|Mems)_allowed_list" /proc/self/status; exit 5'; echo "status $?"
nearside reserve upgrade db --add-node 3 | head -1
sleep 1000 & member=$!; nearside reserve enter db --pid $member; echo "status $?"; allowed $member
nearside reserve upgrade db --share controller > /dev/null; cat $G/batch/cpu.max
nearside reserve explain db; nearside reserve list
echo "[strangers]"
as 65534 nearside reserve enter db -- true 2>&1; echo "status $?"
as 65534 nearside reserve release db 2>&1; echo "status $?"
as 65534 nearside reserve upgrade db --add-node 0 2>&1; echo "status $?"
as 65534 nearside reserve create --name own > /dev/null; as 65534 nearside reserve enter own --pid $$ 2>&1; echo "status $?"
as 65534 nearside reserve release own; echo "status $?"
sh -c 'true & exec sleep 1000' & parent=$!
zombie() { zombie=$(cat /proc/$parent/task/$parent/children); grep -q Z.*zombie /proc/${zombie% }/status; }; wait_for zombie
for pid in 1 2 $service $member ${zombie% } 999999 -3; do nearside reserve enter db --pid=$pid 2>&1; echo "status $?"; done | sed 's/process [0-9]*/process N/'
kill $parent; nearside reserve release db --json; nearside reserve release db 2>&1; echo "status $?"; allowed $member; kill $member; same
echo "[holder]"
nearside reserve run --isolate core --node 1 -- sh -c '
    for by in "env -u NEARSIDE_GRANT_HANDLE" env; do
        setpriv --reuid 65534 --clear-groups $by nearside reserve release $NEARSIDE_GRANT 2>&1; echo "status $?"
    done; grep Cpus_allowed_list /proc/self/status' 2> /dev/null; same
echo "[two]"
nearside reserve create --name other > /dev/null; sleep 1000 & member=$!
M=$member nearside reserve run -- sh -c '
    nearside reserve enter other --pid $M; echo "status $?"; cat /proc/$M/cgroup; nearside reserve release other; echo "status $?"' 2> /dev/null
kill $member; same
echo "[full]"
mkdir -p $G/full/inner; sleep 1000 & member=$!
sh -c "echo \$\$ > $G/full/cgroup.procs; exec nearside reserve create --name full --isolate core" > /dev/null
nearside reserve enter full --pid $member; echo +memory > $G/full/cgroup.subtree_control
nearside reserve release full; cat /proc/$member/cgroup; kill $member; rmdir $G/full/inner $G/full; same
echo "[moved]"
nearside reserve run -- sleep 1000 2> /dev/null & tenant=$!; wait_for listed CPU; wait_for grep -q sleep /proc/$tenant/comm; allowed $tenant
nearside reserve run --isolate core,cache --cpus 0 -- true 2>&1 | grep moves; allowed $tenant; kill $tenant; same
echo "[adopt]"
mkdir -p $G/outer/inner $G/none; echo +cpuset +memory > $G/outer/cgroup.subtree_control
sleep 1000 & member=$!; echo $member > $G/outer/inner/cgroup.procs
for group in / outer /../outer /nowhere /outer/inner; do nearside reserve adopt --cgroup $group --isolate core 2>&1; echo "status $?"; done
as 65534 nearside reserve adopt --cgroup /outer 2>&1; echo "status $?"
settings() { cat $G/outer/inner/cpuset.cpus $G/outer/inner/cpuset.mems $G/outer/inner/memory.max $G/outer/cpuset.cpus $G/outer/cpuset.cpus.partition; }
settings > /tmp/settings
nearside reserve adopt --cgroup /outer/inner --cpus 6 --node 3 --bytes 64M --name inner > /dev/null; allowed $member; cat $G/outer/inner/memory.max
nearside reserve upgrade inner --add-node 2 > /dev/null; nearside reserve adopt --cgroup /outer/inner 2>&1; allowed $member; nearside reserve release inner
nearside reserve adopt --cgroup /outer --cpus 2-3 --isolate core --name outer > /dev/null; allowed $member; cat $G/cpuset.cpus.isolated $G/outer/cpuset.cpus.partition; taskset -c 2 true 2> /dev/null; echo "taskset $?"
nearside reserve release outer; allowed $member; settings | sed 's/^0-7$//; s/^0-3$//' | diff /tmp/settings - && echo restored; kill $member; wait_for rmdir $G/outer/inner; rmdir $G/outer $G/none; same
echo "[job]"
J=system.slice/slurmstepd.scope/job_7
sh ./adopt-cgroup job-7 /$J --isolate controller --bandwidth 1G > /tmp/adopted 2>&1 & hook=$!
mkdir -p $G/$J/step_0
for group in system.slice system.slice/slurmstepd.scope $J; do echo '+cpuset +memory' > $G/$group/cgroup.subtree_control; done
echo 2-3 > $G/$J/cpuset.cpus; sleep 1000 & member=$!; echo $member > $G/$J/step_0/cgroup.procs
wait $hook; echo "status $?"; head -1 /tmp/adopted; allowed $member
nearside reserve release job-7; kill $member; wait_for rmdir $G/$J/step_0; rmdir $G/$J $G/system.slice/slurmstepd.scope $G/system.slice; same
echo "[lease]"
nearside reserve create --name short --lease 1 --isolate core > /dev/null; wait_for listed short; sleep 1; wait_for gone; same
echo "[lost]"
said() { sed -n 's/.*grant [0-9]*: its CPUs/its CPUs/p' /tmp/agent; grep -v "its CPUs" /tmp/agent > /tmp/rest; cat /tmp/rest > /tmp/agent; }
nearside reserve create --name own --cpus 2 --isolate core,controller > /dev/null; own=$(ls -d $G/nearside-grant-*)
is_own() { grep -qx isolated $own/cpuset.cpus.partition && ! listed "is promised"; }; wait_for is_own
lost() { listed "nothing is promised"; }
mkdir $G/theirs; echo 2-3 > $G/theirs/cpuset.cpus; wait_for lost; nearside reserve explain own --json | grep -E '"(forecast_slowdown|lost)"'
rmdir $G/theirs; wait_for is_own
# A partition without processes stays one also without CPUs.
sleep 1000 & member=$!; nearside reserve enter own --pid $member
echo 0 > /sys/devices/system/cpu/cpu2/online; wait_for lost; echo 1 > /sys/devices/system/cpu/cpu2/online; wait_for is_own
nearside reserve release own; kill $member; same; said
echo "[removed]"
nearside reserve create --name gone --cpus 2 --isolate core > /dev/null; rmdir $G/nearside-grant-*
nearside reserve enter gone -- true 2>&1; echo "status $?"; nearside reserve release gone; echo "status $?"; said; same
echo "[many]"
for i in $(seq 25); do nearside reserve run --isolate core,controller -- true > /dev/null 2>&1 || echo "failed $?"; done; same
echo "[second]"; nearside agent --config /tmp/agent.toml 2>&1 | tail -1 | sed 's/process [0-9]*/process N/'
