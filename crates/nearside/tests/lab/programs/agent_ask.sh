# Runs in the virtual machine of ../agent.rs.
has_moved() { ask explain $pid | grep -q '^round .*: move '; }
echo "[status]"; wait_for has_moved; ask status --json
echo "[pause]"; ask pause; ask status --json; ask resume
echo "[left]"; ask pause > /dev/null
nearside-workloads checksum --size 1M --threads 1 --writes 2000 --repeat 1000000 > /dev/null & late=$!
is_placed() { ask explain $late | grep -q 'is managed by'; }
sleep 0.5; is_placed || echo no; ask resume > /dev/null; wait_for is_placed; is_placed && echo yes
kill $late; wait $late 2> /dev/null
echo "[explain]"; ask explain $pid; ask explain 2
echo "[metrics]"; ask metrics
echo "[second]"; (agent carrefour 2>&1); echo "status $?"
if [ $(id -u) = 0 ]; then
    echo "[other]"; setpriv --reuid 65534 --regid 65534 --clear-groups nearside agent status --socket /tmp/agent/agent.sock 2>&1; echo "status $?"
fi
