# A chase and a reader on CPU 0 of node 0, beside five readers of its memory on the node's other CPUs, with grants whose
# ways and limits the hardware keeps.
chase() { nearside reserve run --node 0 --cpus 0 --isolate "$@" -- $W chase --pin 0 --size 2M --repeat 4 2> /tmp/said; }
reader() { nearside reserve run --node 0 --cpus 0 --isolate "$@" -- $W rivals --pin 0 --size 32M --repeat 4 2> /tmp/said; }
echo "[alone]"; chase core; reader core
numactl -m 0 $W rivals --pin 1 --rivals 2-5 --size 8M --repeat 100000 > /dev/null & streams=$!; sleep 0.15
echo "[shared]"; chase core; reader core
echo "[20 ways]"; chase core --cache-ways 20; cat /tmp/said
echo "[8 ways]"; chase core --cache-ways 8
echo "[guarded]"; reader core,controller --bandwidth 5.9G --strict; cat /tmp/said
echo "[list]"
nearside reserve run --node 0 --cpus 0 --isolate core,controller --cache-ways 20 --bandwidth 5.9G -- sleep 1000 2> /dev/null & run=$!; wait_for listed sleep
nearside reserve list | sed 's/  */ /g'; nearside reserve explain 1
nearside reserve list --json | grep -E '"(throttle|ways)":'
echo "[taken]"
nearside reserve run --node 1 --cache-ways 8 -- true 2>&1; echo "status $?"
for isolate in core core,controller; do
  nearside reserve run --node 0 --cpus 1 --isolate $isolate --bandwidth 0.1G -- true 2>&1 | tail -1
done
nearside reserve run --node 0 --cpus 1 --bandwidth 0.1G -- true > /tmp/said 2>&1; echo "plain: $?"
echo "[killed]"
kill -9 $run; wait $run 2> /dev/null
nearside reserve run --node 2 -- true 2>&1 | grep -o '/lab-control/[^ ]* has' | sort; pkill -x sleep
chase core; reader core
echo "[agent]"
echo 'throttle = "hardware"' >> /tmp/agent.toml; start
nearside reserve create --name high --node 0 --cpus 0 --isolate core,controller --cache-ways 20 --bandwidth 5.9G > /dev/null
nearside reserve create --name low --node 0 --cpus 1 --isolate core --cache-ways 8 --bandwidth 0.3G > /dev/null
inside() { nearside reserve enter high -- $W chase --pin 0 --size 2M --repeat 4; }
inside
kill -9 $service; wait $service 2> /dev/null; start
inside; nearside reserve list | grep -o '0x[0-9a-f]*'
nearside reserve release high; nearside reserve release low; kill -TERM $service; wait $service; echo "status $?"
chase core; reader core
echo "[both]"
# An agent beside a process with ways, which ends first.
nearside reserve run --node 0 --cpus 0 --cache-ways 20 -- sleep 1000 2> /dev/null & run=$!; wait_for listed sleep
start
nearside reserve create --name low --node 0 --cpus 1 --cache-ways 8 --bandwidth 0.3G > /dev/null
nearside reserve list | grep -o '0x[0-9a-f]*'
kill -TERM $run; wait $run 2> /dev/null
nearside reserve release low; kill -TERM $service; wait $service
nearside reserve run --node 0 --cpus 0 --cache-ways 8 -- true 2>&1; echo "status $?"
kill $streams
echo "[end]"
