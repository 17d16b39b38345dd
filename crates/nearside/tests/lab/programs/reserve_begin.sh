# What scripts of grants begin with.
PATH=$(realpath ..):$PATH
W=nearside-workloads; G=/sys/fs/cgroup
echo +cpuset +cpu +memory > $G/cgroup.subtree_control
listed() { nearside reserve list | grep -q "$1"; }
gone() { ! ls -d $G/nearside-grant-*; }
is_same() { state > /tmp/now; cmp -s /tmp/before /tmp/now; }
same() { wait_for is_same; diff /tmp/before /tmp/now && echo same; }
# An agent that makes grants: /tmp/agent.toml ends with its table `reserve`.
cat > /tmp/agent.toml <<END
policy = "first-touch"
round_s = 3600
[reserve]
enabled = true
END
answers() { nearside reserve enter none --pid $$ 2> /dev/null; [ $? = 1 ]; }
start() { nearside agent --config /tmp/agent.toml 2>> /tmp/agent & service=$!; wait_for answers; }
