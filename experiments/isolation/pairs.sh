#!/bin/sh
# A program on one core of each node with memory of each node, and where `--prefer latency` puts it (Razavi, 2011, 7.2).
#
# pairs.sh least|most|most-local|chosen PROGRAM: prints the time of one of them, as JSON.
which=$1
case $2 in
    canneal) program="canneal --size 16M --swaps 10000 --repeat 1" ;;
    fluid) program="fluid --size 256K --repeat 1" ;;
    streamcluster) program="streamcluster --size 8M" ;;
    blackscholes) program="blackscholes --size 2M --repeat 4" ;;
esac
program="nearside-workloads $program --threads 1 --json"
seconds() { "$@" 2> /dev/null | sed -n 's/.*"seconds":\([0-9.e-]*\).*/\1/p'; }
if [ $which = chosen ]; then
    times=$(seconds nearside reserve run --prefer latency --isolate core -- $program)
else
    for core in 0 1 2 3 4 5 6 7; do
        for memory in 0 1 2 3 4 5 6 7; do
            [ $which = most-local ] && [ $core != $memory ] && continue
            times="$times
$(seconds nearside run --physcpubind $((6 * core)) --membind $memory $program)"
        done
    done
fi
case $which in
    least) chosen=$(echo "$times" | grep . | sort -g | head -1) ;;
    *) chosen=$(echo "$times" | grep . | sort -g | tail -1) ;;
esac
echo "{\"seconds\": $chosen}"
