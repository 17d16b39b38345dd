# Runs in the virtual machine of ../place.rs.
near=../nearside; run="../nearside-workloads streamcluster --json --size 16M --repeat 80 --pin 0-7"
echo '[plain]'; $run
for policy in carrefour predict; do
    echo "[$policy]"; $near place --quiet --policy $policy --json /tmp/placed.json -- $run
    echo "[report of $policy]"; cat /tmp/placed.json
done
echo '[end]'
