# Runs in the virtual machine of ../reserve_agent.rs.
echo "[end]"
nearside reserve create --name db --isolate core,controller > /dev/null
kill -TERM $service; wait $service; echo "status $?"; same; ls -A /run/nearside
grep -v -E '^nearside agent: (policy|grants are made|an agent was killed|the control group|/|seed|restored)' /tmp/said | head
