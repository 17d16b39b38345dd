# Runs in the virtual machine of ../reserve_agent.rs: how long it takes until a program has a grant, and until that has ended.
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
