# Runs in the virtual machine of ../hugepages.rs. From the middle on, all threads are on node 0.
near="../nearside"
echo '[budget]'
$near hugepages cure --rounds 30 --duration 0.03 --quiet --budget 6M --json /tmp/budget.json -- ./parts 3.25 800 0 2 1 3 0 1 0 1
echo '[budget.json]'; cat /tmp/budget.json
echo '[end]'
