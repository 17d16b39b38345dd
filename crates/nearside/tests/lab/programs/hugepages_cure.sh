# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; record="--duration 0.06 --period 400"; parts="./parts 3.5 45 0 2 1 3"
switches() { cat /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/numa_balancing; }
chmod 1777 /tmp; export TMPDIR=/tmp
for device in /sys/bus/pci/devices/*; do chown 65534 $device/resource* 2> /dev/null; done
switches > /tmp/before
user="setpriv --reuid 65534 --regid 65534 --clear-groups"; none="--bounding-set=-all"; nice="--inh-caps=+sys_nice --ambient-caps=+sys_nice"
echo '[user]'; $user $none $near hugepages cure $record --json /tmp/user.json --quiet -- $parts; echo "status $?"
echo '[user.json]'; cat /tmp/user.json
echo '[whole]'; $near run --preferred 1 -- $near hugepages cure $record --json /tmp/whole.json --quiet -- ./parts 4 38 0 1 2 3
echo '[whole.json]'; cat /tmp/whole.json
echo '[joined]'; $user $none $near hugepages cure $record --keep-small off --quiet -- $parts
echo '[plain]'; $user $parts & pid=$!; sleep 0.05
$user $none $near hugepages cure $record --json /tmp/plain.json --quiet --pid $pid; echo "status $?"; wait $pid
echo '[plain.json]'; cat /tmp/plain.json
echo '[nice]'; $user $nice sh -c "$parts & sleep 0.05
    $near hugepages cure $record --json /tmp/nice.json --quiet --pid \$!; wait" | sed 's/misplaced .*/ended/'
echo '[nice.json]'; cat /tmp/nice.json
echo '[killed]'; $near hugepages cure $record --quiet -- ./parts 3.5 22 0 2 1 3 > /tmp/said & pid=$!
until pidof parts > /dev/null; do sleep 0.02; done; kill -9 $pid; wait $pid 2> /dev/null; echo "status $?"
for wait in $(seq 100); do grep -q misplaced /tmp/said && break; sleep 0.05; done; sed 's/misplaced .*/the program ended as always/' /tmp/said
echo '[switches]'; switches | diff - /tmp/before && echo same
echo '[end]'
