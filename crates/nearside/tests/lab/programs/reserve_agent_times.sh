# Runs in the virtual machine of ../reserve_agent.rs: how long it takes until a program has a grant, and until that has ended.
# The study's zone of four nodes.
sed -i 's/^enabled = true/&\nzone = "0-23"/' /tmp/agent.toml
state > /tmp/before; start
ms() { echo "$1 $((($(date +%s%N) - begin) / 1000000))"; }
hold() { rm -f /tmp/began; nearside reserve run --isolate core,cache,controller -- sh -c 'date +%s%N > /tmp/began; exec sleep 1000' 2> /dev/null & holder=$!; wait_for test -s /tmp/began; }
echo "[times]"
for turn in 1 2 3; do
    begin=$(date +%s%N); hold; echo "grant $((($(cat /tmp/began) - begin) / 1000000))"
    grant=$(ls -d $G/nearside-grant-*[0-9]); begin=$(date +%s%N); nearside reserve release ${grant##*-}; ms release; kill $holder; is_same || echo "something is left"
    hold; grant=$(ls -d $G/nearside-grant-*[0-9]); begin=$(date +%s%N); kill -9 $holder; while [ -d $grant ] || [ -d $grant-idle ]; do :; done; ms killed
done
same
echo "[moved]"
# Programs without isolation are on all cores, and one that wants a whole cache comes last.
for tenant in $(seq 24); do
    nearside reserve create --name t$tenant > /dev/null; sleep 1000 & pids="$pids $!"; nearside reserve enter t$tenant --pid $!
done
begin=$(date +%s%N); nearside reserve create --name own --isolate core,cache > /tmp/own; ms moved; grep -c moves /tmp/own
echo "[monitor]"
# What the agent works in two seconds in which it only counts and looks, ns.
works() { cat /proc/$service/task/*/schedstat | awk '{ ns += $1 } END { printf "%.0f\n", ns }'; }
before=$(works); sleep 2; echo $(($(works) - before))
for grant in own $(seq -f t%g 24); do nearside reserve release $grant; done; kill $pids; same
