# Runs in the virtual machine of ../reserve_agent.rs: an agent that is killed while it makes and ends grants.
# Zombies of which the first process has not heard yet have no program.
count() { ls -l /proc/[0-9]*/exe 2> /dev/null | grep -c '/nearside$'; }
others=$(count)
idle() { [ $(count) = $others ]; }
state > /tmp/before; start
seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); echo "seed $seed" >> /tmp/agent
for moment in $(awk -v seed=$seed 'BEGIN { srand(seed); for (i = 0; i < 4; i++) printf "%.4f\n", 0.002 + rand() * 0.15 }'); do
    while :; do
        nearside reserve create --name a --isolate core,cache,controller --node 1
        nearside reserve run --isolate core --node 2 -- true
        nearside reserve release a
    done > /dev/null 2>&1 & clients=$!
    sleep $moment; kill -9 $service; kill $clients; wait $service $clients 2> /dev/null
    # Without its agent, what the loop has started ends.
    wait_for idle
    start
    # What was whole goes on.
    nearside reserve list | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' | while read grant; do echo went on >> /tmp/went; nearside reserve release $grant; done
    same >> /tmp/kills
done
# Before every Nth change of a file or folder that the thread of grants makes for these calls, the first of them at random.
changes=write,pwrite64,mkdir,rmdir,unlink,unlinkat,rename,renameat,renameat2
traced() { ! grep -q "^TracerPid:.0$" /proc/$service/task/$thread/status; }
is_alive() { case $(sed -n 's/^State:.//p' /proc/$service/status 2> /dev/null) in '' | Z*) false ;; esac; }
kill_steps() { # N CALLS
    : > /tmp/steps; : > /tmp/left_in_steps
    for step in $(seq $((1 + seed % $1)) $1 900); do
        thread=$(basename $(dirname $(grep -lx reserve /proc/$service/task/*/comm)))
        strace -qq -o /dev/null -e inject=$changes:signal=KILL:when=$step -p $thread 2> /dev/null & tracer=$!
        wait_for traced
        $2 > /dev/null 2>&1
        is_alive && break
        wait $service $tracer 2> /dev/null; wait_for idle
        gone > /dev/null 2>&1 || echo left >> /tmp/left_in_steps
        start
        nearside reserve list | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' | while read grant; do nearside reserve release $grant; done
        same >> /tmp/steps
    done
    kill $tracer; wait $tracer 2> /dev/null
    echo "$step"; uniq -c /tmp/steps; grep -c left /tmp/left_in_steps
}
create_and_release() { nearside reserve create --name a --isolate core,cache,controller --node 1 && nearside reserve release a; }
echo "[steps]"; kill_steps 6 create_and_release
change() {
    nearside reserve create --name a --isolate core,cache,controller --node 1
    nearside reserve upgrade a --add-node 3; nearside reserve release a --only cores
    nearside reserve adopt --cgroup /outer --cpus 4 --node 2 --bytes 64M --isolate core --name outer; nearside reserve release outer
    nearside reserve release a
}
mkdir $G/outer; sleep 1000 & outer=$!; echo $outer > $G/outer/cgroup.procs
# A group with processes cannot have empty lists again.
settings() { cat $G/outer/cpuset.cpus $G/outer/cpuset.mems $G/outer/memory.max $G/outer/cpuset.cpus.partition | sed 's/^0-7$//; s/^0-3$//'; }
outers=$(settings)
echo "[changes]"; kill_steps 24 change; [ "$outers" = "$(settings)" ] && echo "as before"
kill $outer; wait_for rmdir $G/outer
# Grants that stay, that have processes, that have none any more, and that are no longer as they were.
nearside reserve create --name db --cores 2 --isolate core,cache,controller --node 1 > /dev/null
sleep 1000 & member=$!; nearside reserve enter db --pid $member
mkdir $G/outer; sleep 1000 & outer=$!; echo $outer > $G/outer/cgroup.procs
nearside reserve adopt --cgroup /outer --cpus 4 --node 2-3 --isolate core --name outer > /dev/null
nearside reserve run --cpus 6 --isolate core -- sleep 1000 2> /dev/null & holder=$!; wait_for listed " 6 "
nearside reserve create --name broken --cpus 7 --isolate core > /dev/null
broken=$(nearside reserve list | sed -n 's/^ *\([0-9][0-9]*\) .* broken$/\1/p')
quota=$(cat $G/batch/cpu.max)
kill -9 $service; wait $service 2> /dev/null; echo member > $G/nearside-grant-$broken/cpuset.cpus.partition
start; echo "[left]"; nearside reserve list | sed 's/  */ /g; s/ [0-9]* s / N s /; s/+[0-9.]* %/+N %/'
allowed $member; allowed $outer; allowed $holder; taskset -c 2 true 2> /dev/null; echo "taskset $?"
[ "$quota" = "$(cat $G/batch/cpu.max)" ] && echo "limited as before"
nearside reserve create --name db 2>&1 | tail -1 | sed 's/grant [0-9]*/grant N/'
nearside agent metrics --socket /run/nearside/agent.sock | sed -n 's/^nearside_grant_\(info\|cpus\|most_slowdown_ratio\){grant="[0-9]*"/\1/p'
kill $holder; wait_for sh -c "! nearside reserve list | grep -q ' 6 '"; nearside reserve list | wc -l
nearside reserve release db; nearside reserve release outer; allowed $member; allowed $outer; kill $member $outer; wait_for rmdir $G/outer; same
echo "[kills]"; uniq -c /tmp/kills
