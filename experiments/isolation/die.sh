#!/bin/sh
# A program on a core of node 2, with streamcluster on the node's other cores (Razavi, 2011, 5.3); prints JSON.
#
# die.sh COUNT MEMORY [PROGRAM]: COUNT others, which use memory of node MEMORY; PROGRAM instead of streamcluster.
count=$1
memory=$2
program="nearside-workloads streamcluster --size 4M --threads 1 --repeat 1000000"
first=${3:-$program}
set -- "nearside run --physcpubind 12 --membind 2 $first"
for core in $(seq 13 $((12 + count))); do
    set -- "$@" "nearside run --physcpubind $core --membind $memory $program"
done
nearside-workloads crowd --json "$@" | sed 's/"seconds":[^,]*,"watched_seconds"/"seconds"/'
