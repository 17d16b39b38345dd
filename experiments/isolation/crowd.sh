#!/bin/sh
# Programs on the 24 cores of nodes 0 to 3, the first of them isolated (Razavi, 2011, 7.3); prints JSON.
#
# crowd.sh none|cache|controller|ways|both PROGRAMS ISOLATED...
#
# ways: 30 of the 40 ways of the L3, where the machine has control hardware. both: these, and the controller.
# 25 PROGRAMS are five canneal, five fluid and fifteen streamcluster. ISOLATED names the first ones. With CORES=5, the others
# have five cores of a node each, which they share with others; without it, one.
. "$(dirname "$0")/agent.sh"
kind=$1
programs=$2
shift 2
watched=$#

# The command of a program. A guarded one says how it uses memory: streamcluster by bandwidth, the others wait for each
# access.
with_grant() {
    case $1 in
        canneal) prefer=latency options="--size 16M --swaps 10000" ;;
        fluid) prefer=latency options="--size 64K" ;;
        streamcluster) prefer=none options="--size 8M" ;;
    esac
    case $2 in
        cache) isolate="--isolate core,cache" ;;
        controller) isolate="--isolate core,controller --prefer $prefer" ;;
        ways) isolate="--isolate core --cache-ways 30" ;;
        both) isolate="--isolate core,controller --cache-ways 30 --prefer $prefer" ;;
        none) isolate="--cores ${CORES:-1}" ;;
    esac
    echo "nearside reserve run $isolate -- nearside-workloads $1 --threads 1 --repeat 1000000 $options"
}

rest="canneal fluid streamcluster canneal fluid streamcluster canneal fluid streamcluster canneal fluid streamcluster
canneal fluid streamcluster $(yes streamcluster | head -10)"
for program in "$@"; do
    rest=$(echo $rest | sed "s/\<$program\>//")
done
isolated="$*"
set --
for program in $isolated; do
    set -- "$@" "$(with_grant $program $kind)"
done
for program in $rest; do
    [ $# -lt $programs ] && set -- "$@" "$(with_grant $program none)"
done
nearside-workloads crowd --json --watched $watched "$@"
