# Runs in the virtual machine of ../reserve_agent.rs: clients that end, agents that are killed, and a full disk.
kill_agent() { kill -9 $service; wait $service 2> /dev/null; }
grants() { nearside reserve list | sed -n 's/^ *[0-9][0-9]* .* \([a-z-]*\)$/\1/p' | tr '\n' ' '; }
state > /tmp/before; start
echo "[between]"
# A client that ends without the answer to its call, once the agent has begun to carry that out: there is a grant's control
# group, or none any more. The agent would refuse a client that has ended before.
unanswered() { # CALL GRANTS
    perl -MSocket -e 'socket(my $agent, AF_UNIX, SOCK_SEQPACKET, 0) or die; connect($agent, sockaddr_un("/run/nearside/reserve.sock")) or die "$!";
        send($agent, "$ARGV[0]\n", 0) or die "$!";
        until (@{[glob "$ARGV[2]/nearside-grant-*"]} == $ARGV[1]) { select(undef, undef, undef, 0.001) }' "$1" $2 $G
    sleep 0.3; echo "has $(grants)"
}
unanswered '{"call":"create","request":{"isolate":{"core":true}}}' 1
unanswered '{"call":"create","request":{"isolate":{"core":true},"name":"stays"},"stays":true}' 1
unanswered '{"call":"release","grant":"stays"}' 0
same
echo "[old handle]"
# A handle of a killed agent that a process of another user has kept gives no right; the owner may still end the grant.
nearside reserve run --cpus 2 --isolate core -- sh -c 'while [ ! -e /tmp/restarted ]; do sleep 0.02; done
    for call in "upgrade $NEARSIDE_GRANT --add-node 3" "release $NEARSIDE_GRANT"; do
        setpriv --reuid 65534 --clear-groups nearside reserve $call 2>&1; echo "status $?"
    done
    nearside reserve release $NEARSIDE_GRANT 2>&1; echo "status $?"' 2> /dev/null & run=$!
wait_for listed "^ *3 "; kill_agent; start; : > /tmp/restarted; wait $run; same
echo "[no CPU]"
for node in 0 1 2; do nearside reserve create --name node$node --node $node --cores 2 --isolate core > /dev/null; done
mkdir $G/all; sleep 1000 & member=$!; echo $member > $G/all/cgroup.procs
nearside reserve adopt --cgroup /all --node 3 --cores 2 --isolate core 2>&1; echo "status $?"; allowed $member
kill $member; wait_for rmdir $G/all; for node in 0 1 2; do nearside reserve release node$node; done; same
echo "[full disk]"
# The journal's folder fills while the agent runs: nothing is granted, and what was can still end.
kill -TERM $service; wait $service; cp /run/nearside/machine.toml /tmp
mount -t tmpfs -o size=64k,mode=755 none /run/nearside; cp /tmp/machine.toml /run/nearside; start
nearside reserve create --name before --cpus 2 --isolate core,controller > /dev/null
head -c 65536 /dev/zero > /run/nearside/filler 2> /dev/null
nearside reserve create --name full --cpus 4 --isolate core,controller 2>&1; echo "status $?"; echo "has $(grants)"
nearside reserve release before 2>&1; echo "status $?"; rm -f /run/nearside/filler
nearside reserve create --name after --cpus 4 --isolate core,controller > /dev/null; echo "has $(grants)"; nearside reserve release after; same
kill -TERM $service; wait $service; umount /run/nearside; start
