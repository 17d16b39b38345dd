//! The service, on four nodes: killed repeatedly while it places programs that check their results, and queried.

use crate::support::{FAST, Lab, is_root_to};
use serde_json::Value;

/// A long-running program, short-lived programs that check for lost writes, an agent that moves pages and threads, and
/// the queries to it.
const BEGIN: &str = r#"
PATH=$(realpath ..):$PATH
# One has the kernel's switch changed, the other one moves pages at once.
for memory in carrefour interleave; do
    printf 'policy = "balanced+%s"\nround_s = 0.2\nfolder = "/tmp/agent"\n' $memory > /tmp/$memory.toml
done
# The process itself, and not a shell around it, is what is killed.
agent() { exec nearside agent --config /tmp/$1.toml; }
ask() { nearside agent "$@" --socket /tmp/agent/agent.sock; }
wait_for() { for look in $(seq 200); do "$@" > /dev/null 2>&1 && return; sleep 0.02; done; echo "never: $*"; }
state() { for task in /proc/$pid/task/* /proc/$$ /proc/1; do grep Cpus_allowed_list $task/status; done; cat /proc/sys/kernel/numa_balancing; }
nearside-workloads checksum --size 4M --threads 1 --writes 2000 --repeat 1000000 & pid=$!
while [ ! -e /tmp/enough ]; do nearside-workloads checksum --size 1M --threads 2 --writes 2000 --repeat 10 >> /tmp/sums || echo wrong >> /tmp/sums; sleep 0.05; done & others=$!
has_begun() { grep -q "none lost" /tmp/sums; }
wait_for has_begun
state > /tmp/before
"#;

const KILL: &str = r#"
seed=$(od -An -N2 -tu2 /dev/urandom | tr -d ' '); echo "seed $seed"
for moment in $(awk -v seed=$seed 'BEGIN { srand(seed); for (i = 0; i < 50; i++) printf "%.4f\n", 0.015 + rand() * 0.04 }'); do
    [ "$memory" = carrefour ] && memory=interleave || memory=carrefour
    agent $memory > /dev/null 2> /tmp/said & victim=$!
    sleep $moment; kill -9 $victim; wait $victim 2> /dev/null
    [ $? = 137 ] || { echo "ended by itself"; cat /tmp/said; }
    cat /tmp/said >> /tmp/all-said
done
echo "[put-back]"; grep -c 'restored the CPUs of' /tmp/all-said
echo "[switched]"; grep -c 'numa_balancing has its previous value again' /tmp/all-said
agent interleave 2> /tmp/said & service=$!
wait_for ask status
"#;

const ASK: &str = r#"
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
"#;

const END: &str = r#"
kill -TERM $service; wait $service; echo "[end]"; echo "status $?"
state > /tmp/after; diff /tmp/before /tmp/after && echo same; ls -A /tmp/agent
touch /tmp/enough; wait $others; kill $pid; wait $pid 2> /dev/null
grep -vc 'none lost' /tmp/sums; ask status 2>&1; echo "status $?"
echo "[sums]"; grep -c 'none lost' /tmp/sums
"#;

#[test]
fn an_agent_that_is_killed_leaves_nothing_and_one_that_runs_is_asked() {
    let lab = Lab::new();
    let script = [BEGIN, KILL, ASK, END].concat();
    let settings = ["--thp", "never", "--numa-balancing", "on", "--time-scale", "20", "--cpus-per-node", "1"];
    let options = [&["--quiet"][..], &settings, &FAST].concat();
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let text = ran.text();
    assert!(!text.contains("ended by itself") && !text.contains("never: "), "{text}");
    let number = |section: &str| ran.section(section).trim().parse::<u32>().unwrap();
    assert!(number("put-back") > 5 && number("switched") > 5, "{text}");
    let status: Value = serde_json::from_str(ran.section("status")).unwrap();
    assert_eq!((&status["policy"], &status["paused"]), (&"balanced+interleave".into(), &false.into()));
    assert!(status["pages_moved"].as_u64() > Some(0) && status["threads_moved"].as_u64() > Some(0), "{status:#}");
    let paused = ran.section("pause");
    assert!(paused.starts_with("the agent is paused\n") && paused.contains("\"paused\": true"), "{paused}");
    assert!(paused.ends_with("the agent is running\n"), "{paused}");
    assert_eq!(ran.section("left"), "no\nyes\n", "a program started during a pause is placed after it");
    let explained = ran.section("explain");
    assert!(explained.contains("(nearside-worklo) is managed by balanced+interleave"), "{explained}");
    assert!(explained.contains("process 2 is not managed: it is a kernel thread"), "{explained}");
    let metrics = ran.section("metrics");
    assert!(metrics.contains("nearside_agent_rounds_total ") && metrics.ends_with("# EOF\n"), "{metrics}");
    let second = ran.section("second");
    assert!(second.contains("an agent is running already (process ") && second.ends_with("status 1\n"), "{second}");
    if is_root_to("ask as another user") {
        let other = ran.section("other");
        assert!(other.contains("is restricted to its owner and group") && other.ends_with("status 1\n"), "{other}");
    }
    let end = ran.section("end");
    assert!(end.starts_with("status 0\nsame\n0\nnearside: no agent is running: there is no socket"), "{end}");
    assert!(number("sums") > 5, "{text}");
}
