# Runs in the virtual machine of ../hugepages.rs. Nothing keeps these small, and khugepaged is busy. The program runs for longer
# than the cure, on a busy host as well.
for rearm in on off; do
    ./parts 3.5 1200 0 2 1 3 > /dev/null & pid=$!; sleep 0.05
    ../nearside hugepages cure --rounds 4 --duration 0.05 --period 500 --quiet --rearm $rearm --json /tmp/$rearm.json --pid $pid 2> /tmp/said || cat /tmp/said
    kill $pid; wait $pid 2> /dev/null
    echo "[rearm-$rearm]"; cat /tmp/$rearm.json
done
echo '[end]'
