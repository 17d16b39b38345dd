# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; parts="./parts 5.25 250 0 2 4 6"
switches() { cat /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/numa_balancing; }
chmod 1777 /tmp; export TMPDIR=/tmp
for device in /sys/bus/pci/devices/*; do chown 65534 $device/resource* 2> /dev/null; done
switches > /tmp/before
user="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all"
echo '[user]'; $user $near hugepages cure --duration 0.03 --json /tmp/user.json --quiet -- $parts; echo "status $?"
echo '[user.json]'; cat /tmp/user.json
echo '[joined]'; $user $near hugepages cure --duration 0.03 --keep-small off --quiet -- $parts
echo '[plain]'; $user $parts & pid=$!; sleep 0.05
$user $near hugepages cure --duration 0.03 --json /tmp/plain.json --quiet --pid $pid; echo "status $?"; wait $pid
echo '[plain.json]'; cat /tmp/plain.json
echo '[nice]'; $user --inh-caps=+sys_nice --ambient-caps=+sys_nice --bounding-set=-all,+sys_nice sh -c "$parts & sleep 0.05
    $near hugepages cure --duration 0.03 --json /tmp/nice.json --quiet --pid \$!; wait" | sed 's/misplaced .*/ended/'
echo '[nice.json]'; cat /tmp/nice.json
echo '[killed]'; $near hugepages cure --duration 0.03 --quiet -- $parts > /tmp/said & pid=$!
sleep 0.1; kill -9 $pid; wait $pid 2> /dev/null; echo "status $?"
while pgrep -x parts > /dev/null; do sleep 0.05; done; sed 's/misplaced .*/the program ended as always/' /tmp/said
echo '[switches]'; switches | diff - /tmp/before && echo same
echo '[end]'
