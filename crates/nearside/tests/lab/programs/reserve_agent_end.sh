# Runs in the virtual machine of ../reserve_agent.rs.
echo "[end]"
nearside reserve create --name db --isolate core,controller > /dev/null
kill -TERM $service; wait $service; echo "status $?"; same; ls -A /run/nearside
# Nothing but what an agent says that begins, or that puts back what a killed one has left.
grep -v -E '^(seed|nearside agent: (policy|grants are made|nearside was killed|nearside left|the control group|the journal ends|grant [0-9]+ .*goes on|/))' /tmp/agent | head
