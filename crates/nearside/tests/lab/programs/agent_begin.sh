# Runs in the virtual machine of ../agent.rs.
PATH=$(realpath ..):$PATH
# One has the kernel's switch changed, the other one moves pages at once.
for memory in carrefour interleave; do
    printf 'policy = "balanced+%s"\nround_s = 0.2\nfolder = "/tmp/agent"\n' $memory > /tmp/$memory.toml
done
# The process itself, and not a shell around it, is what is killed.
agent() { exec nearside agent --config /tmp/$1.toml; }
ask() { nearside agent "$@" --socket /tmp/agent/agent.sock; }
state() { for task in /proc/$pid/task/* /proc/$$ /proc/1; do grep Cpus_allowed_list $task/status; done; cat /proc/sys/kernel/numa_balancing; }
nearside-workloads checksum --size 4M --threads 1 --writes 2000 --repeat 1000000 & pid=$!
while [ ! -e /tmp/enough ]; do nearside-workloads checksum --size 1M --threads 2 --writes 2000 --repeat 10 >> /tmp/sums || echo wrong >> /tmp/sums; sleep 0.05; done & others=$!
has_begun() { grep -q "none lost" /tmp/sums; }
wait_for has_begun
state > /tmp/before
