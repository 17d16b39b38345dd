# Runs in the virtual machine of ../migrate.rs.
echo '[placed]'; near="../nearside"; $near run --membind 1 -- $work hold --size 8M > /tmp/held & pid=$!; until grep -q holding /tmp/held; do sleep 0.05; done
range=$(sed 's/holding //' /tmp/held); nodes; try $near migrate $pid --to 0 --range $range | tail -1; nodes
try $near bind $pid --cpunodebind 1 | sed "s/$pid/N/"; kill $pid
echo '[doctor]'; $near doctor --json; status=$?; echo '[status]'; echo $status
echo '[end]'
