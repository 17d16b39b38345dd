# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; parts="parts 3.5 16 0 2 1 3"
chmod 1777 /tmp; export TMPDIR=/tmp
for device in /sys/bus/pci/devices/*; do chown 65534 $device/resource* 2> /dev/null; done
user="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all"
echo '[record]'; $user $near record --quiet -o /tmp/trace -- ./$parts > /dev/null; echo "status $?"
echo '[same]'; $user $near hugepages cure --from /tmp/trace --json /tmp/same.json -- ./$parts 2>&1; echo "status $?"
echo '[same.json]'; cat /tmp/same.json
echo '[started]'; $user $near hugepages cure --from /tmp/trace --quiet -- sh -c "./$parts; exit 7"; echo "status $?"
echo '[dry]'; $user $near hugepages cure --from /tmp/trace --dry-run -- ./$parts 2>&1
echo '[other]'; $user $near hugepages cure --from /tmp/trace --json /tmp/other.json -- other/$parts 2>&1
echo '[other.json]'; cat /tmp/other.json
echo '[size]'; $user $near hugepages cure --from /tmp/trace --json /tmp/size.json --quiet -- ./parts 3.25 2 0 2 1 3 > /dev/null
cat /tmp/size.json
echo '[end]'
