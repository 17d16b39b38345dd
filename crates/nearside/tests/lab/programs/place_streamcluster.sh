# Runs in the virtual machine of ../place.rs.
near=../nearside; run="../nearside-workloads streamcluster --json --size 16M --repeat 80 --pin 0-7"
echo '[plain]'; $run
placed() { # NAME POLICY OPTIONS...
    name=$1; policy=$2; shift 2
    echo "[$name]"; $near place --quiet --forget --policy "$policy" --json /tmp/placed.json "$@" -- $run
    echo "[report of $name]"; cat /tmp/placed.json
}
placed carrefour carrefour
placed predict predict --threshold spread_start=0
placed counters predict --threshold spread_start=0 --source counters
placed faults predict --threshold spread_start=0 --source hint-faults --log /tmp/faults.log
echo '[choices by faults]'
grep -c -E '"(nothing_faster|moving_costs_more|faster_dealt|faster_at_users)"' /tmp/faults.log
placed 'spread start' predict
echo '[carrefour by counters]'; $near place --policy carrefour --source counters -- true; echo "exit $?"
echo '[end]'
