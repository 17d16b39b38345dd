# Runs in the virtual machine of ../kernel_module.rs.
parameters=/sys/module/nearside_thp/parameters; trace=/sys/kernel/debug/tracing; parts="./parts 3.25 60 0 2 1 3"
counters() {
    for name in splits failed_splits reapplied marked marked_moves migrated; do echo "$name $(cat $parameters/$name)"; done
    grep -E '^(numa_hint_faults|thp_split_page) ' /proc/vmstat
    echo "thp_split $(grep -c thp_split: $trace/trace)"
}
# What the program adds to the counters.
run() {
    counters > /tmp/before; $parts > /tmp/said; counters > /tmp/after
    echo "[$1]"; paste -d ' ' /tmp/before /tmp/after | while read name before same after; do echo "$name $((after - before))"; done
}
dmesg --clear
echo 1 > $trace/events/nearside/thp_split/enable
run off
echo page > $parameters/split; run split
for option in reapply reset migrate; do echo 1 > $parameters/$option; done; run all
echo last > $parameters/split; run last
echo '[warnings]'; dmesg | grep -cE 'WARNING|BUG|Call Trace|Oops'
echo '[end]'
