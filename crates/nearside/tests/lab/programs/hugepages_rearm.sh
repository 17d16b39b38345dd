# Runs in the virtual machine of ../hugepages.rs. Nothing keeps these small, and khugepaged is busy.
for rearm in on off; do
    ./parts 3.25 400 0 2 1 3 > /dev/null & pid=$!; sleep 0.05
    ../nearside hugepages cure --rounds 4 --duration 0.05 --quiet --rearm $rearm --json /tmp/$rearm.json --pid $pid 2> /dev/null; wait $pid
    echo "[rearm-$rearm]"; cat /tmp/$rearm.json
done
echo '[end]'
