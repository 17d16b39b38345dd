# Runs in the virtual machine of ../reserve.rs: systems that are not as a grant needs them.
state() { ls -d $G/nearside-grant-*; cat $G/cpuset.cpus.isolated; ls /run/nearside/grants | grep -v lock; ls /run/nearside | grep journal; } 2> /dev/null
try() { nearside reserve run "$@" -- true 2>&1; echo "status $?"; }
state > /tmp/before
echo "[others]"
mkdir $G/theirs; echo 2-3 > $G/theirs/cpuset.cpus; echo root > $G/theirs/cpuset.cpus.partition
try --isolate core --cpus 2; cat $G/theirs/cpuset.cpus.partition; rmdir $G/theirs; same
echo "[offline]"
echo 0 > /sys/devices/system/cpu/cpu7/online; try --isolate core --cpus 7; echo 1 > /sys/devices/system/cpu/cpu7/online; same
echo "[unplugged]"
nearside reserve run --isolate core --cpus 5 -- sh -c 'touch /tmp/began; while [ ! -e /tmp/go ]; do sleep 0.02; done; grep Cpus_allowed_list /proc/self/status; exit 5' 2> /dev/null & holder=$!
wait_for test -e /tmp/began; echo 0 > /sys/devices/system/cpu/cpu5/online; sleep 0.1; touch /tmp/go; wait $holder; echo "status $?"
echo 1 > /sys/devices/system/cpu/cpu5/online; same
echo "[intruder]"
nearside reserve run --isolate core --cpus 5 -- sleep 1000 2> /tmp/said & holder=$!; wait_for grep -q '"5"' /run/nearside/grants/1.json
mkdir $G/theirs; echo 5 > $G/theirs/cpuset.cpus; wait_for grep "not its own any more" /tmp/said
nearside reserve list | tail -1; nearside reserve explain 1 | tail -1; rmdir $G/theirs; wait_for grep "its own again" /tmp/said
cat $G/nearside-grant-1/cpuset.cpus.partition; nearside reserve list | grep -c "is promised"; kill $holder; wait $holder; same
echo "[foreign machine]"
try --machine magny-cours-4p --isolate core --cpus 40; same
echo "[last CPU]"
for node in 0 1 2; do nearside reserve run --isolate core --cores 2 --node $node -- sleep 1000 2> /dev/null & holders="$holders $!"; wait_for test -e /run/nearside/grants/$((node + 1)).json; done
state > /tmp/three
nearside reserve run --isolate core --cores 2 --node 3 -- true 2>&1 | tail -1; state | diff /tmp/three - && echo "as before"
kill $holders; wait; same
echo "[full disk]"
mkdir -p /run/nearside; mount -t tmpfs -o size=4k,mode=755 none /run/nearside; head -c 8192 /dev/zero > /run/nearside/filler 2> /dev/null
try --isolate core --cpus 2; rm /run/nearside/filler; umount /run/nearside; same
echo "[read-only]"
mount -o remount,ro $G; try --isolate core --cpus 2; mount -o remount,rw $G; same
echo "[no cpuset]"
for group in $(find $G -mindepth 1 -maxdepth 1 -type d); do rmdir $group 2> /dev/null; done
umount -l $G; try --isolate core --cpus 2
mkdir -p /tmp/one; mount -t cgroup -o cpuset none /tmp/one 2> /dev/null && try --isolate core --cpus 2
umount /tmp/one 2> /dev/null; mount -t cgroup2 none $G; same
