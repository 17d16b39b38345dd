# Runs in the virtual machine of ../place.rs.
near=../nearside; run="../nearside-workloads streamcluster --json --size 16M --repeat 80 --pin 0-7"
echo '[plain]'; $run
echo '[placed]'; $near place --quiet --policy carrefour --json /tmp/placed.json -- $run
echo '[report]'; cat /tmp/placed.json
echo '[end]'
