# Runs in the virtual machine of ../hugepages.rs.
near=$(realpath ../nearside); library=$(realpath ../libnearside_preload.so); parts="./parts 3.5 90 0 2 1 3"
for mode in find cure; do
    printf 'policy = "kernel"\nround_s = 0.05\nfolder = "/tmp/agent"\n[hugepages]\nmode = "%s"\nevery_s = 0.1\n' $mode > /tmp/$mode.toml
done
# The process itself, and not a shell around it, gets the signal.
agent() { exec $near agent --config /tmp/$1.toml 2> /tmp/$1.said; }
ask() { $near agent "$@" --socket /tmp/agent/agent.sock; }
begin() { agent $1 & service=$!; wait_for ask status; }
end() { kill -TERM $service; wait $service; echo "status $?"; ls -A /tmp/agent; }
has_found() { ask status --json | grep -q '"falsely_shared": [1-9]'; }
has_split() { ask status --json | grep -q '"split": 3'; }
begin find
echo '[find]'; $parts & pid=$!; wait_for has_found; ask status --json > /tmp/find.json; wait $pid; end
echo '[find.json]'; cat /tmp/find.json
begin cure
echo '[cure]'; $parts & pid=$!; wait_for has_split; ask explain $pid; wait $pid
echo '[cure.json]'; ask status --json
echo '[cure.text]'; ask status
echo '[end]'; end
begin cure
echo '[library]'; LD_PRELOAD=$library NEARSIDE_ADVICE=/tmp/agent/advice $parts
echo '[library.json]'; ask status --json
echo '[last]'; end
