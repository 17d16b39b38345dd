# Runs in the virtual machine of ../reserve_agent.rs: an agent that makes grants, on four nodes of two CPUs.
PATH=$(realpath ..):$PATH
G=/sys/fs/cgroup
mkdir $G/batch; echo +cpuset +cpu +memory > $G/cgroup.subtree_control
cat > /tmp/agent.toml <<END
policy = "first-touch"
round_s = 3600
[reserve]
enabled = true
limit = ["/batch"]
[reserve.users.65534]
grants = 2
cores = 3
[reserve.users.65533]
grants = 0
cores = 0
END
state() { ls -d $G/nearside-grant-*; cat $G/cpuset.cpus.isolated $G/batch/cpu.max; ls /run/nearside/grants | grep -v lock; ls /run/nearside | grep grant-; cat /proc/irq/*/smp_affinity_list; } 2> /dev/null
wait_for() { for look in $(seq 100); do "$@" > /dev/null 2>&1 && return; sleep 0.02; done; echo "never: $*"; }
answers() { nearside reserve enter none --pid $$ 2> /dev/null; [ $? = 1 ]; }
start() { nearside agent --config /tmp/agent.toml 2>> /tmp/said & service=$!; wait_for answers; }
as() { user=$1; shift; setpriv --reuid $user --regid $user --clear-groups "$@"; }
listed() { nearside reserve list | grep -q "$1"; }
gone() { ! ls -d $G/nearside-grant-*; }
is_same() { state > /tmp/now; cmp -s /tmp/before /tmp/now; }
same() { wait_for is_same; diff /tmp/before /tmp/now && echo same; }
allowed() { grep -E '^(Cpus|Mems)_allowed_list' /proc/$1/status; }
