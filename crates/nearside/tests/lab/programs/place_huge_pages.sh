# Runs in the virtual machine of ../place.rs.
near=../nearside; work=../nearside-workloads
kib() { awk "/$1/ { print \$4 }" /sys/devices/system/node/node1/meminfo; }
echo always > /sys/kernel/mm/transparent_hugepage/enabled
run="$work streamcluster --json --size 16M --repeat 30 --pin 0,2,4,6,1,3,5,7"
echo '[huge]'; $near place --quiet --policy carrefour --json /tmp/huge.json -- $run; cat /tmp/huge.json > /tmp/huge
echo never > /sys/kernel/mm/transparent_hugepage/enabled
mkdir /tmp/full; mount -t tmpfs -o mpol=bind:1,size=4G none /tmp/full
head -c $(($(kib MemFree) - 10240))K /dev/zero > /tmp/full/hog; before=$(kib 'AnonPages|Shmem:')
run="$work streamcluster --json --size 32M --repeat 8 --pin 0-7"
echo '[plain]'; $run
echo '[placed]'; $near place --quiet --policy carrefour --json /tmp/placed.json -- $run
echo '[left]'; echo $before; kib 'AnonPages|Shmem:'
echo '[split]'; cat /tmp/huge; echo '[full]'; cat /tmp/placed.json
echo '[end]'
