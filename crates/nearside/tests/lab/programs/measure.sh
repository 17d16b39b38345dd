# Runs in the virtual machine of ../measure.rs.
measure='../nearside measure --quick --repeats 3'
echo '[all]'
$measure --size 32M --only latency,bandwidth,caches --json --output ../kept/measured.toml
status=$?; echo '[status]'; echo $status
echo '[cpuset]'
taskset -c 0-5 $measure --size 16M --only latency --json
status=$?; echo '[cpuset-status]'; echo $status
echo '[memory]'
$measure --size 700M --only bandwidth 2>&1
status=$?; echo '[memory-status]'; echo $status
echo '[end]'
