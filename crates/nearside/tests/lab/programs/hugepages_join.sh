# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; rounds="--rounds 30 --duration 0.03 --quiet"
# From the middle on, all threads are on node 0.
moves="./parts 3.25 800 0 2 1 3 0 1 0 1"
echo '[join]'; $near hugepages cure $rounds --json /tmp/join.json -- $moves
echo '[join.json]'; cat /tmp/join.json
echo '[off]'; $near hugepages cure $rounds --join off --json /tmp/off.json -- $moves
echo '[off.json]'; cat /tmp/off.json
echo '[end]'
