# Runs in the virtual machine of ../place.rs: threads that are kept near their memory.
near="../nearside place --quiet"
$near --json /tmp/report -- ./wander 1200 > /tmp/kept; echo '[kept]'; cat /tmp/kept; echo '[report]'; cat /tmp/report
$near --threshold keep_threads=0 -- ./wander 200 > /tmp/left; echo '[left]'; cat /tmp/left
./wander 1200 > /tmp/freed & program=$!; $near --json /tmp/report --pid $program & placing=$!
sleep 1; kill -INT $placing; wait $placing; wait $program; echo '[freed]'; cat /tmp/freed
echo '[report of freed]'; cat /tmp/report
