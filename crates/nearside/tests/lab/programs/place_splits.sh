# Runs in the virtual machine of ../place.rs.
near="../nearside"; place="$near place --quiet --policy carrefour --round 20 --threshold accesses_per_us_min=0"
# Pages only move to the node that uses them, and also where a fifth of the accesses is remote.
place="$place --threshold imbalance_min=100 --threshold local_access_ratio_max=0.95"
# A short program needs all samples, and to move a page by one.
place="$place --threshold sampling_divisor=1 --threshold samples_min=1"
echo '[apart]'; $place --json /tmp/apart.json -- ./parts 3.25 500 0 2 1 3
echo '[apart.json]'; cat /tmp/apart.json
echo '[whole]'; $place --json /tmp/whole.json -- ./parts 4 40 0 2 1 3
echo '[whole.json]'; cat /tmp/whole.json
published="--threshold split_shared=0 --threshold hot_page_share_min=2"
echo '[published]'; $place $published --json /tmp/published.json -- ./parts 3.25 60 0 2 1 3
echo '[published.json]'; cat /tmp/published.json
echo '[end]'
