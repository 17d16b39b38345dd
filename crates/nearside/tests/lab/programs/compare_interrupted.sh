# Runs in the virtual machine of ../compare.rs.
near=../nearside; before=$(cat /proc/sys/kernel/numa_balancing)
echo '[fails]'; $near compare -q -p first-touch,interleave -r 2 -- sh -c 'echo out; echo oops >&2; exit 3'; echo "status $?"
echo '[interrupted]'
$near compare -q --keep-caches --warm-ups 0 -p first-touch,interleave -r 1 -- sh -c 'test -e second && exec sleep 1000; touch second' & 
sleep 0.2; while ! pidof sleep > /dev/null; do sleep 0.05; done; kill -INT $!; wait $!; echo "status $?"
pidof sleep
echo '[switch]'; [ "$before" = "$(cat /proc/sys/kernel/numa_balancing)" ] && echo "as before: $before"
echo '[end]'
