# Runs in the virtual machine of ../calls.rs.
as_user=; if [ $(id -u) = 0 ]; then
    mount -t debugfs debugfs /sys/kernel/debug
    as_user='setpriv --reuid 65534 --regid 65534 --clear-groups'
fi
calls='../nearside-workloads calls'
../nearside-workloads place 1:mixed:2M > placed & pid=$!
until [ -s placed ] || ! kill -0 $pid; do sleep 0.05; done
start=$(cut -d - -f 1 placed)
echo '[root]'; $calls --nodes 1,3 --pid $pid --start $start
echo '[after]'; ../nearside pages $pid $(cat placed) --json
echo '[user]'; $as_user $calls --nodes 1,3 --pid $pid --start $start
echo '[zones]'; grep -c '^Node 0, zone' /proc/zoneinfo
echo '[machine]'; ../nearside show --json
../nearside bind $pid --cpunodebind 2 > /dev/null
echo '[bound]'; ../nearside show $pid --json
kill $pid

# Of node 3 about 64 MB are left, for 128 MB that prefer it.
free=$(awk '/MemFree/ { print $4 }' /sys/devices/system/node/node3/meminfo)
pool=/sys/devices/system/node/node3/hugepages/hugepages-2048kB/nr_hugepages
echo $(((free - 65536) / 2048)) > $pool
../nearside run --preferred 3 -- ../nearside-workloads hold --size 128M > held & pid=$!
until grep -q holding held || ! kill -0 $pid; do sleep 0.05; done
echo '[preferred]'; ../nearside pages $pid $(sed 's/holding //' held) --json
kill $pid; echo 0 > $pool
echo '[end]'
