# Runs in the virtual machine of ../hugepages.rs.
near="../nearside"; rounds="--rounds 30 --duration 0.03 --quiet"
# From the middle on, all threads are on node 0.
moves="./parts 3.25 800 0 2 1 3 0 1 0 1"
echo '[join]'; $near hugepages cure $rounds --json /tmp/join.json -- $moves
echo '[join.json]'; cat /tmp/join.json
echo '[off]'; $near hugepages cure $rounds --join off --json /tmp/off.json -- $moves
echo '[off.json]'; cat /tmp/off.json
# Nothing keeps these small, and khugepaged is busy.
for rearm in on off; do
    ./parts 3.25 400 0 2 1 3 > /dev/null & pid=$!; sleep 0.05
    $near hugepages cure --rounds 4 --duration 0.05 --quiet --rearm $rearm --json /tmp/$rearm.json --pid $pid 2> /dev/null; wait $pid
    echo "[rearm-$rearm]"; cat /tmp/$rearm.json
done
echo '[end]'
