# A grant beside another one that draws nothing at first, and then all that its core can.
sed -i 's/^enabled = true/&\nmonitor_s = 0.02/' /tmp/agent.toml
state > /tmp/before; start
guard() { nearside reserve create --name guard --node 3 --cpus 6 --isolate core,controller --bandwidth 4G; }
reads() { nearside reserve list | grep "tenant" | grep -qE ' [2-9]\.[0-9]/'; }
spaced() { sed 's/  */ /g'; }
echo "[unseen]"
nearside reserve create --name tenant --node 3 --cpus 7 --isolate core > /dev/null
sleep 0.1; guard; echo "status $?"
echo "[idle]"
nearside reserve enter tenant -- sleep 1000 & sleeper=$!; wait_for guard
nearside reserve explain guard; nearside reserve list | spaced
nearside reserve check --node 3 --cpus 6 --isolate core,controller --bandwidth 4G | head -1
echo "[busy]"
nearside reserve enter tenant -- $W rivals --pin 7 --size 16M --repeat 100000 > /dev/null & busy=$!
wait_for grep -q "others slow" /tmp/agent; wait_for reads
grep -o "by the most that was drawn.*" /tmp/agent; nearside reserve list | spaced; nearside reserve explain tenant
nearside reserve list --json > /tmp/list.json
echo "[json]"; cat /tmp/list.json
: > /tmp/agent
echo "[ended]"
kill $busy $sleeper; wait $busy $sleeper 2> /dev/null
nearside reserve release guard; nearside reserve release tenant
