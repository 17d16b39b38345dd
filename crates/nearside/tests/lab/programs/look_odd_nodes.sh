# Runs in the virtual machine of ../look.rs.
../nearside-workloads place 0,1,3:base:12M 3:base:4M > placed & pid=$!
until [ -s placed ] || ! kill -0 $pid; do sleep 0.05; done
echo '[show]'; ../nearside show --json $pid
echo '[numa_maps]'; cat /proc/$pid/numa_maps
echo '[pages]'; ../nearside pages $pid $(sed -n 1p placed) --json
echo '[lines]'; ../nearside pages $pid $(sed -n 2p placed) --each | awk 'NR > 1 { print $4 }' | sort | uniq -c
echo '[machine]'; ../nearside show --json
echo '[memory]'; ../nearside memory --json
echo '[text]'; ../nearside show; ../nearside memory
kill $pid
echo '[end]'
