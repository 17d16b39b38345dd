# Runs in the virtual machine of ../reserve_agent.rs: an agent that is killed while it makes and ends grants.
# Zombies of which the first process has not heard yet have no program.
count() { ls -l /proc/[0-9]*/exe 2> /dev/null | grep -c '/nearside$'; }
others=$(count)
idle() { [ $(count) = $others ]; }
state > /tmp/before; start
seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); echo "seed $seed" >> /tmp/said
for moment in $(awk -v seed=$seed 'BEGIN { srand(seed); for (i = 0; i < 12; i++) printf "%.4f\n", 0.002 + rand() * 0.15 }'); do
    while :; do
        nearside reserve create --name a --isolate core,cache,controller --node 1
        nearside reserve run --isolate core --node 2 -- true
        nearside reserve release a
    done > /dev/null 2>&1 & clients=$!
    sleep $moment; kill -9 $service; kill $clients; wait $service $clients 2> /dev/null
    # Without its agent, what the loop has started ends.
    wait_for idle
    gone > /dev/null 2>&1 || echo left >> /tmp/left
    start; same >> /tmp/kills
done
echo "[kills]"; uniq -c /tmp/kills; grep -c left /tmp/left
