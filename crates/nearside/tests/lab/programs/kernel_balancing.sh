# Runs in the virtual machine of ../kernel_balancing.rs.
count() { grep -E '^numa_(pte_updates|hint_faults|pages_migrated) ' /proc/vmstat; }
read_on() { ../nearside-workloads readers --size 8M --pin $1 --touch-cpu 0 --repeat 30 > /dev/null; }
echo '[begin]'; count
read_on 2; echo '[remote]'; count
read_on 0; echo '[local]'; count
echo '[end]'
