# Runs in the virtual machine of ../policies.rs.
near=../nearside; work=../nearside-workloads
try() { "$@" 2>&1; echo "status $?"; }
hold() {
    "$@" > /tmp/held-$user & pid=$!
    until grep -q holding /tmp/held-$user; do sleep 0.05; done
    range=$(sed 's/holding //' /tmp/held-$user); rm /tmp/held-$user
}
nodes() { grep "^${range%-*}" /proc/$pid/numa_maps | grep -oE 'N[0-9]+=[0-9]+' | tr '\n' ' '; echo; }
let_go() { kill $pid; wait $pid 2>/dev/null; }
placed() {
    hold $near run "$@" -- $work hold --size 4M
    echo "[$user $*]"; echo $pid; nodes; $near pages $pid $range --each --json 2>/dev/null; let_go
}
placed_by_numactl() { hold numactl "$@" -- $work hold --size 4M; echo "[numactl $*]"; nodes; let_go; }
all_placed() {
    placed --interleave 0,3,7; placed --membind 7; placed --preferred 1; placed -P 4,5 -N 0; placed --localalloc -N 3
    placed -N 2
}
