#!/bin/sh
# Loads that wait for each other through 2 MiB, which fit in an L3, beside five readers (Razavi, 2011, 5.3).
#
# caches.sh alone|far|near|exclusive: prints the time of a load, as JSON.
#
# far: the readers share the L3, and read memory of node 1. near: of their own node. exclusive: the L3 is the first one's,
# and the readers have been there before.
. "$(dirname "$0")/agent.sh"
chase="nearside-workloads chase --size 2M --repeat 20 --json"
reader="nearside-workloads rivals --size 8M --repeat 1000000"
for core in 1 2 3 4 5; do
    case $1 in
        far) nearside run --physcpubind $core --membind 1 $reader > /dev/null & ;;
        near) nearside run --physcpubind $core --membind 0 $reader > /dev/null & ;;
        exclusive) nearside reserve run -- $reader > /dev/null & ;;
        alone) continue ;;
    esac
    readers="$readers $!"
done
sleep 0.5
if [ $1 = exclusive ]; then
    nearside reserve run --isolate core,cache --cpus 0 --node 0 -- $chase > /tmp/chase
else
    nearside run --physcpubind 0 --membind 0 $chase > /tmp/chase
fi
[ -z "$readers" ] || kill $readers
sed -n 's/.*"mean_ns":\([0-9.]*\).*/\1/p' /tmp/chase | awk '{ printf "{\"seconds\": %.12f}\n", $1 / 1e9 }'
