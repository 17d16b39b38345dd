# Runs in the virtual machine of ../top.rs.
near=../nearside; read="../nearside-workloads readers --size 8M --pin 2-3 --touch-cpu 0"
echo '[none]'; $near top --source none --once --interval 0.1
echo '[lab]'; $near top --json --interval 0.1 -- $read --repeat 40
cd /sys/kernel/debug/sched/numa_balancing; echo 50 > scan_delay_ms; echo 50 > scan_period_min_ms; cd - > /dev/null
echo '[faults]'; $near top --source hint-faults --json --interval 0.1 -- $read --repeat 40
echo '[left]'; cat /proc/sys/kernel/numa_balancing
echo '[end]'
