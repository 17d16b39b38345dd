# Runs in the virtual machine of ../run.rs.
near=../nearside; work=../nearside-workloads
same() {
    sed -E -i '/interleave next/s/node: [0-9]+/node: any/; s/^interleavenode: [0-9]+/interleavenode: any/' /tmp/theirs /tmp/ours
    diff /tmp/theirs /tmp/ours
}
try() { "$@" 2>&1; echo "status $?"; }
balanced() {
    $near run --membind 0,1 "$@" -- $work checksum --size 4M --threads 1 --pin 2 --touch-cpu 0 --writes 100000 --repeat 100000 & pid=$!
    for look in $(seq 100); do
        sleep 0.1; on_1=$(grep -o 'N1=[0-9]*' /proc/$pid/numa_maps | cut -d= -f2 | sort -n | tail -1)
        [ "${on_1:-0}" -ge 1024 ] && break
        [ "$look" = 30 ] && [ $# = 0 ] && break
    done
    kill $pid; [ "${on_1:-0}" -ge 1024 ] && echo "moved" || echo "stayed"
}
