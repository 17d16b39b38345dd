# Runs in the virtual machine of lab_kills.rs, after agent_begin.sh: kills agents at random moments, and compares each time.
printf 'policy = "first-touch"\nkernel_balancing = "keep"\nfolder = "/tmp/agent"\n' > /tmp/quiet.toml
seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); echo "seed $seed"
acted=0
for moment in $(awk -v seed=$seed -v kills=$kills 'BEGIN { srand(seed); for (i = 0; i < kills; i++) printf "%.4f\n", 0.015 + rand() * 0.04 }'); do
    [ "$memory" = carrefour ] && memory=interleave || memory=carrefour
    agent $memory > /dev/null 2> /tmp/said & victim=$!
    sleep $moment; kill -9 $victim; wait $victim 2> /dev/null
    [ $? = 137 ] || { echo "broken: the agent ended by itself: $(cat /tmp/said)"; }
    state > /tmp/meanwhile; cmp -s /tmp/before /tmp/meanwhile || acted=$((acted + 1))
    agent quiet > /dev/null 2> /tmp/said & quiet=$!
    wait_for ask status
    kill -TERM $quiet; wait $quiet || echo "broken: the next agent: $(cat /tmp/said)"
    state > /tmp/after; cmp -s /tmp/before /tmp/after || echo "broken: after $moment s: $(diff /tmp/before /tmp/after | tr '\n' ' ')"
    [ -z "$(ls -A /tmp/agent)" ] || echo "broken: left: $(ls -A /tmp/agent)"
done
touch /tmp/enough; wait $others; kill $pid; wait $pid 2> /dev/null
[ "$(grep -vc 'none lost' /tmp/sums)" = 0 ] || echo "broken: a program has lost writes"
echo "done: $kills kills, $acted of agents that had changed settings"
