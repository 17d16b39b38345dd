# Runs in the virtual machine of ../place.rs: threads that are kept near their memory, and freed.
near="../nearside place --round 0.05"
$near --quiet --json /tmp/report -- ./wander > /tmp/kept; echo '[kept]'; cat /tmp/kept; echo '[report]'; cat /tmp/report
./wander /tmp/stop > /tmp/freed & program=$!
$near --explain --json /tmp/report --pid $program 2> /tmp/steps & placing=$!
for look in $(seq 200); do grep -q 'most of the memory' /tmp/steps && break; sleep 0.02; done
kill -INT $placing; wait $placing; touch /tmp/stop; wait $program; echo '[freed]'; cat /tmp/freed
echo '[report of freed]'; cat /tmp/report
# One thread that follows pointers makes few accesses a round: 7 a microsecond.
../nearside place --quiet --forget --json /tmp/report -- ../nearside-workloads chase --size 32M --pin 0 --touch-cpu 6 \
    --repeat 16 > /tmp/chased; echo '[report of chase]'; cat /tmp/report
