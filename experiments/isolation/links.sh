#!/bin/sh
# A reader on node 7 of memory of node 5, whose data come through node 4, and another reader (Razavi, 2011, 4.3.3, 5.1).
#
# links.sh alone|shared|refused|other: prints the time of a pass, as JSON.
#
# shared: the second reads over the same links, without grants. refused: the first has its links for itself, and the second
# asks for the same ones; it reads if it gets them. other: the second gets memory of its own node.
zone=0-47
. "$(dirname "$0")/agent.sh"
reader="nearside-workloads rivals --size 8M --json"
isolated="nearside reserve run --cpus 42 --node 5 --isolate core,route --"
beside() { "$@" $reader --repeat 1000000 > /dev/null & second=$!; sleep 0.3; }
first() { "$@" $reader --repeat 20 > /tmp/first; }
case $1 in
    alone) first $isolated ;;
    shared)
        beside nearside run --physcpubind 43 --membind 5
        first nearside run --physcpubind 42 --membind 5
        ;;
    refused | other)
        nearside reserve create --name holder --cpus 42 --node 5 --isolate core,route > /dev/null
        memory=5
        [ $1 = other ] && memory=7
        beside nearside reserve run --cpus 43 --node $memory --
        if [ $1 = other ]; then
            kill -0 $second || exit 1
        else
            kill -0 $second 2> /dev/null && exit 1
            # Not admitted.
            wait $second
            [ $? = 3 ] || exit 1
            second=
        fi
        first nearside reserve enter holder --
        ;;
esac
[ -z "$second" ] || kill $second 2> /dev/null
# 8 MiB in MB, over MB/s.
sed -n 's/.*"median_mb_per_s":\([0-9.]*\).*/\1/p' /tmp/first | awk '{ printf "{\"seconds\": %.9f}\n", 8.388608 / $1 }'
