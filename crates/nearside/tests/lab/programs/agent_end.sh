# Runs in the virtual machine of ../agent.rs.
kill -TERM $service; wait $service; echo "[end]"; echo "status $?"
state > /tmp/after; diff /tmp/before /tmp/after && echo same; ls -A /tmp/agent
touch /tmp/enough; wait $others; kill $pid; wait $pid 2> /dev/null
grep -vc 'none lost' /tmp/sums; ask status 2>&1; echo "status $?"
echo "[sums]"; grep -c 'none lost' /tmp/sums
