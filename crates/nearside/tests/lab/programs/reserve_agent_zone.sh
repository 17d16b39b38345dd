# An isolated zone of the CPUs 2 to 7: grants are within its partition, and other programs are outside.
sed -i 's/^enabled = true/&\nzone = "2-7"\nisolate_zone = true/' /tmp/agent.toml
state > /tmp/before; start
zone() { cat $G/nearside-zone/cpuset.cpus.partition; allowed $$; }
echo "[zone]"; zone; taskset -c 4 true 2> /dev/null; echo "taskset $?"
echo "[grants]"
nearside reserve run --isolate core --node 1 -- sh -c 'grep ^Cpus_allowed_list /proc/self/status; cat /proc/self/cgroup' 2> /dev/null
nearside reserve run --cores 2 --node 2 -- grep ^Cpus_allowed_list /proc/self/status 2> /dev/null
for node in 1 2 3; do nearside reserve create --name all$node --cores 2 --node $node --isolate core > /dev/null; echo "status $?"; done
for node in 1 2 3; do nearside reserve release all$node; done
nearside reserve run --cpus 0 -- true 2>&1 | head -1
mkdir $G/outer; nearside reserve adopt --cgroup /outer --name outer 2>&1; echo "status $?"; rmdir $G/outer
echo "[killed]"
nearside reserve create --name db --isolate core,cache --node 3 > /dev/null; kill -9 $service; wait $service 2> /dev/null; start
zone; nearside reserve enter db -- grep ^Cpus_allowed_list /proc/self/status; nearside reserve release db
kill -9 $service; wait $service 2> /dev/null; start; zone
echo "[live]"
live() { nearside reserve create --name live --isolate core --node 1 > /dev/null; nearside reserve enter live --pid $member; allowed $member; }
sleep 1000 & member=$!; live; nearside reserve release live --only cores > /dev/null; allowed $member
nearside reserve release live; allowed $member; cat /proc/$member/cgroup; live
echo "[ended]"; kill -TERM $service; wait $service; echo "status $?"; ls -d $G/nearside-zone 2>&1; allowed $member; kill $member; same
sed -i 's/^zone = .*/zone = "0-7"/' /tmp/agent.toml; nearside agent --config /tmp/agent.toml 2>&1 | tail -1
sed -i '/zone/d' /tmp/agent.toml; start
