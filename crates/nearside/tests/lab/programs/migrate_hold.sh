# Runs in the virtual machine of ../migrate.rs.
work=../nearside-workloads; near=../nearside
hold() { numactl $on $work hold "$@" > /tmp/held & pid=$!; until grep -q holding /tmp/held; do sleep 0.05; done
    range=$(sed 's/holding //' /tmp/held); rm /tmp/held; }
let_go() { kill $pid; wait $pid 2>/dev/null; }
move() { $near migrate $pid --quiet --json "$@"; }
try() { "$@" 2>&1; echo "status $?"; }
nodes() { grep "^${range%-*}" /proc/$pid/numa_maps | grep -oE 'N[0-9]+=[0-9]+' | tr '\n' ' '; echo; }
on='--membind 0'
