# Runs in the virtual machine of ../hugepages.rs: programs and systems that a cure cannot change in the usual way.
near="../nearside"; record="--duration 0.06 --period 400"; parts="3.5 45 0 2 1 3"
chmod 1777 /tmp; export TMPDIR=/tmp
state() { cat /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/numa_balancing /proc/sys/vm/nr_hugepages; }
flags() { grep -h VmFlags /proc/$1/smaps | sort | uniq -c; }
cure() { # NAME COMMAND
    name=$1; shift
    echo "[$name]"; $near hugepages cure $record --json /tmp/$name.json --quiet -- "$@" 2>&1; echo "status $?"
    echo "[$name.json]"; cat /tmp/$name.json
}
echo 16 > /proc/sys/vm/nr_hugepages; state > /tmp/before
for kind in locked bound hugetlb forked; do cure $kind env PARTS=$kind ./parts $parts; done
# Halfway, the recording has ended and is being judged.
for kind in exit exec; do cure $kind env PARTS=$kind ./parts 3.5 30 0 2 1 3; done
cure static ./parts-static $parts
echo never > /sys/kernel/mm/transparent_hugepage/enabled; state > /tmp/never
cure never ./parts $parts
echo '[still never]'; state | diff - /tmp/never && echo same
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo '[attached]'; PARTS=locked ./parts 3.5 1200 0 2 1 3 > /dev/null & pid=$!; sleep 0.05; flags $pid > /tmp/flags
$near hugepages cure $record --quiet --pid $pid 2>&1; echo "status $?"; flags $pid | diff /tmp/flags - && echo "same flags"; kill $pid; wait $pid 2> /dev/null
record="--rounds 10 $record"; cure first env PARTS=first ./parts 3.5 30 0 2 1 3
echo '[switches]'; state | diff - /tmp/before && echo same
echo '[end]'
