# A server on CPU 0 of node 0, whose requests read 8 MiB each, beside a batch of five readers of the node's memory that
# comes and goes. The forecast's bound is loose; the server's own figure holds the target.
# The slowest of the last 30 requests, every 50 ms.
cat > /tmp/worst.sh <<'END'
while sleep 0.05; do tail -n 30 /tmp/passes | sort -n | tail -n 1 | awk '{ print 1000 * $1 }'; done
END
requests() { wc -l < /tmp/passes; }
phase() { # NAME SECONDS: the 99th percentile of the requests in the last SECONDS
  from=$(requests); sleep $2; to=$(requests)
  sed -n "$((from + 1)),${to}p" /tmp/passes | sort -n > /tmp/phase
  awk -v name="$1" '{ all[NR] = $1 } END { printf "%s: %d requests, 99 of 100 within %.2f ms\n", name, NR, 1000 * all[int(0.99 * NR + 0.999)] }' /tmp/phase
}
batch() { numactl -m 0 $W rivals --pin 1 --rivals 2-5 --size 8M --repeat 100000 > /dev/null & streams=$!; }
limits() { grep -o 'class-0/limit-0".*' /run/nearside/reserve-*.journal | sed 's/.*"after":"\([a-z0-9]*\)".*/\1/' | tr '\n' ' '; echo; }
serve() {
  rm -f /tmp/passes; : > /tmp/passes
  nearside reserve run --node 0 --cpus 0 --isolate core,controller --most-slowdown 100 "$@" -- \
    $W rivals --pin 0 --size 8M --repeat 100000 --passes /tmp/passes 2> /tmp/said > /dev/null & run=$!
  wait_for test -s /tmp/passes; sleep 0.1
}
end() { kill -TERM $run; wait $run 2> /dev/null; }
echo "[without]"
serve; phase alone 0.2
batch; sleep 0.1; phase batch 0.2; limits
end; kill $streams; wait $streams 2> /dev/null
echo "[with]"
serve --slo-command "exec sh /tmp/worst.sh" --slo-target-ms 2; phase alone 0.2
batch; sleep 0.5; phase batch 0.3; limits
nearside reserve list | tail -n 1
kill $streams; wait $streams 2> /dev/null; sleep 0.1; phase gone 0.2
batch; sleep 0.4; phase "batch again" 0.25; limits
end; cat /tmp/said; kill $streams; wait $streams 2> /dev/null
echo "[agent]"
start
has_limit() { grep -q "limit-0.*after\":\"$1\"" /run/nearside/reserve.journal; }
nearside reserve run --node 0 --cpus 0 --isolate core,controller --bandwidth 5.9G --slo-target-ms 3 \
  --slo-command 'for said in 9 nonsense 9 9; do echo $said; sleep 0.05; done
    until [ -e /tmp/again ]; do sleep 0.02; done; echo 9; exec sleep 1000' -- \
  sh -c 'grep Cpus_allowed_list /proc/self/status; until [ -e /tmp/finish ]; do sleep 0.02; done; exit 7' 2> /tmp/said & run=$!
set_limits() { grep -o 'limit-0.*' /run/nearside/reserve.journal | sed 's/.*"after":"\([a-z0-9]*\)".*/\1/' | tr '\n' ' '; echo; }
wait_for has_limit 250000000; set_limits
nearside reserve list | tail -n 1; nearside reserve explain 1 | grep -v "^grant"
nearside reserve explain 1 --json | grep -E "course|latency_ms|target_ms"
nearside agent metrics | grep -E "^nearside_grant_(service_[lt]|service_course.* 1|rest)"
echo "[restart]"
grep -Ev "grants are made|policy first-touch" /tmp/agent; kill -KILL $service; wait $service 2> /dev/null
: > /tmp/agent; start
set_limits; nearside reserve list | tail -n 1
: > /tmp/again; wait_for has_limit 125000000; nearside reserve list | tail -n 1
: > /tmp/finish; wait $run; echo "status $?"; grep slo-command /tmp/said
wait_for gone; ps -eo stat,comm | grep -E "^[^Z].*(sleep|worst)" || echo "nothing runs on"
kill -TERM $service; wait $service; echo "status $?"; grep cannot /tmp/agent
nearside reserve run --node 0 --cpus 0 --isolate core,controller --bandwidth 5.9G -- true 2> /dev/null; echo "status $?"
echo "[end]"
