# Runs in the virtual machine of ../kernel_events.rs.
near="../nearside"; parts="./parts 3.25 12 0 2 1 3"
chmod 1777 /tmp; export TMPDIR=/tmp
$near record --quiet --kernel-events --period 200 -o /tmp/trace -- $parts > /dev/null
echo '[report]'; $near report /tmp/trace --json
echo '[text]'; $near report /tmp/trace
for device in /sys/bus/pci/devices/*; do chown 65534 $device/resource* 2> /dev/null; done
user="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all"
echo '[user]'; $user $near record --kernel-events -o /tmp/of-user -- true 2>&1; echo "status $?"
printf 'title = "moves"\nruns = { min = 1, max = 1 }\n[grid]\napp = { parts = "%s" }\n' "$parts" > /tmp/moves.toml
echo '[explored]'; $near explore /tmp/moves.toml --into /tmp/results > /dev/null 2> /tmp/said || cat /tmp/said
cat /tmp/results/cells/*/0.json
echo '[end]'
