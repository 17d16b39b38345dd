# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; short="--duration 0.03 --period 500 --quiet"; rounds="--rounds 16 $short"
# From the middle on, all threads are on node 0.
parts="0 2 1 3 0 1 0 1"; moves="./parts 3.5 90 $parts"
# A join takes eight rounds in a row, and the second half has more. Rounds end with the program.
echo '[join]'; $near hugepages cure --rounds 60 $short --json /tmp/join.json -- ./parts 3.5 140 $parts
echo '[join.json]'; cat /tmp/join.json
echo '[off]'; $near hugepages cure $rounds --join off --json /tmp/off.json -- $moves
echo '[off.json]'; cat /tmp/off.json
echo '[budget]'; $near hugepages cure $rounds --budget 6M --json /tmp/budget.json -- $moves
echo '[budget.json]'; cat /tmp/budget.json
echo '[end]'
