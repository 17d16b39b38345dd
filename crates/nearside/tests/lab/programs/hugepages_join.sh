# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; rounds="--rounds 16 --duration 0.03 --period 8000 --quiet"
# From the middle on, all threads are on node 0.
moves="./parts 3.25 440 0 2 1 3 0 1 0 1"
echo '[join]'; $near hugepages cure $rounds --json /tmp/join.json -- $moves
echo '[join.json]'; cat /tmp/join.json
echo '[off]'; $near hugepages cure $rounds --join off --json /tmp/off.json -- $moves
echo '[off.json]'; cat /tmp/off.json
echo '[budget]'; $near hugepages cure $rounds --budget 6M --json /tmp/budget.json -- $moves
echo '[budget.json]'; cat /tmp/budget.json
echo '[end]'
