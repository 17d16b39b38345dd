# Runs in the virtual machine of ../agent.rs.
seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); echo "seed $seed"
for moment in $(awk -v seed=$seed 'BEGIN { srand(seed); for (i = 0; i < 20; i++) printf "%.4f\n", 0.015 + rand() * 0.04 }'); do
    [ "$memory" = carrefour ] && memory=interleave || memory=carrefour
    agent $memory > /dev/null 2> /tmp/said & victim=$!
    sleep $moment; kill -9 $victim; wait $victim 2> /dev/null
    [ $? = 137 ] || { echo "ended by itself"; cat /tmp/said; }
    cat /tmp/said >> /tmp/all-said
done
echo "[put-back]"; grep -c 'restored the CPUs of' /tmp/all-said
echo "[switched]"; grep -c 'numa_balancing has its previous value again' /tmp/all-said
agent interleave 2> /tmp/said & service=$!
wait_for ask status
