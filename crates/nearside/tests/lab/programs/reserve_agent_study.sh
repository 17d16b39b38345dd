# Runs in the virtual machine of ../reserve_agent.rs: the study's calls, parts that are given back, and requests that wait.
state > /tmp/before; start
echo "[program]"; as 65534 PROGRAM; same
echo "[rcm]"
nearside reserve rcm 1 1 1 0 sh -c 'grep -E "^(Cpus|Mems)_allowed_list" /proc/self/status; cat /proc/self/cgroup; exit 7' 2> /dev/null; echo "status $?"; same
as 65532 nearside reserve rcm 1 0 0 0 true 2>&1; echo "status $?"
nearside reserve rcm 1 2 1 0 true 2>&1 | head -1
echo "[inherited]"; nearside reserve run --isolate core --node 1 -- env -u NEARSIDE_GRANT_HANDLE PROGRAM inherited 2> /dev/null; nearside reserve run --isolate core --node 1 -- PROGRAM inherited 2> /dev/null; same
echo "[only]"
nearside reserve create --name db --cores 2 --isolate core --node 2 --bytes 64M > /dev/null
sleep 1000 & member=$!; nearside reserve enter db --pid $member; allowed $member
nearside reserve release db --only cores; echo "status $?"; allowed $member; cat $G/nearside-grant-*-shared/memory.max
nearside reserve run --isolate core --cpus 4 -- true 2> /dev/null; echo "others $?"
nearside reserve enter db -- sed -n 's/^0:://p' /proc/self/cgroup | sed 's/[0-9][0-9]*/N/'
nearside reserve release db --only memory; echo "status $?"; allowed $member; nearside reserve release db 2>&1; same
nearside reserve create --name db --cores 2 --isolate core --node 2 > /dev/null; nearside reserve enter db --pid $member
nearside reserve release db --only memory --json | grep '"granted"'; allowed $member; as 65534 nearside reserve release db --only cores 2>&1; echo "status $?"
nearside reserve release db --only cores; allowed $member; same; kill $member
mkdir $G/outer; sleep 1000 & member=$!; echo $member > $G/outer/cgroup.procs
nearside reserve adopt --cgroup /outer --cpus 2 --isolate core,cache --name outer > /dev/null; allowed $member
nearside reserve release outer --only cores; allowed $member; cat $G/outer/cpuset.cpus.partition; nearside reserve release outer; kill $member; wait_for rmdir $G/outer; same
echo "[wait]"
nearside reserve run --cpus 2-3 --isolate core -- sleep 1000 2> /dev/null & holder=$!; wait_for listed 2-3
waiter() { name=$1; shift; nearside reserve run --wait --isolate core "$@" -- sh -c "echo $name >> /tmp/order; sleep 0.1" 2> /dev/null & }
waiter both --cpus 2-3; sleep 0.3; waiter one --cpus 2; one=$!; sleep 0.3; waiter two --cpus 3; sleep 0.3; kill -9 $one; sleep 0.1
nearside reserve run --wait 1 --cpus 3 --isolate core -- true 2>&1; echo "status $?"
nearside reserve run --wait --cores 3 --node 1 --isolate core -- true 2>&1 | head -1; as 65532 nearside reserve create --wait --name w 2>&1; echo "status $?"
nearside reserve run --isolate core -- echo "others meanwhile" 2> /dev/null
cat /tmp/order 2> /dev/null; kill $holder; wait_for grep -q two /tmp/order; cat /tmp/order; wait_for gone; same
echo "[ends]"
nearside reserve create --name held --cpus 2 --isolate core > /dev/null
nearside reserve run --wait --cpus 2 --isolate core -- true 2> /dev/null & waits=$!; sleep 0.3
nearside reserve release held; wait $waits; echo "status $?"; same
