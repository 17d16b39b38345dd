# Runs in the virtual machine of ../reserve_agent.rs: an agent that makes grants, on four nodes of two CPUs.
mkdir $G/batch
cat >> /tmp/agent.toml <<END
limit = ["/batch"]
[reserve.users.65534]
grants = 2
cores = 3
[reserve.users.65533]
grants = 0
cores = 0
END
state() { ls -d $G/nearside-grant-*; cat $G/cpuset.cpus.isolated $G/batch/cpu.max; ls /run/nearside/grants | grep -v lock; ls /run/nearside | grep grant-; cat /proc/irq/*/smp_affinity_list; } 2> /dev/null
as() { user=$1; shift; setpriv --reuid $user --regid $user --clear-groups "$@"; }
allowed() { grep -E '^(Cpus|Mems)_allowed_list' /proc/$1/status; }
