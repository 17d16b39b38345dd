//! The service, on four nodes: killed repeatedly while it places programs that check their results, and queried.

use crate::support::{Lab, RunOutput, is_root_to};
use test_tools::Checks;
use test_tools::json_fields::assert_documented;

/// A long-running program, short-lived programs that check for lost writes, an agent that moves pages and threads, and
/// the queries to it.
const BEGIN: &str = include_str!("programs/agent_begin.sh");

const KILL: &str = include_str!("programs/agent_kill.sh");

const ASK: &str = include_str!("programs/agent_ask.sh");

/// Requests that change what it does.
const ORDER: &str = include_str!("programs/agent_order.sh");

const END: &str = include_str!("programs/agent_end.sh");

#[test]
fn an_agent_that_is_killed_leaves_nothing_and_one_that_runs_is_asked() {
    let lab = Lab::new();
    let script = [crate::WAIT_FOR, BEGIN, KILL, ASK, ORDER, END].concat();
    let options = ["--quiet", "--thp", "never", "--numa-balancing", "on", "--time-scale", "20", "--cpus-per-node", "1"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let text = ran.text();
    assert!(!text.contains("ended by itself") && !text.contains("never: "), "{text}");
    let number = |section: &str| ran.section(section).trim().parse::<u32>().unwrap();
    let checks = Checks::new();
    checks.part("kills", || assert!(number("put-back") > 1 && number("switched") > 1, "{text}"));
    checks.part("status", || {
        let status = ran.json("status");
        assert_documented("agent status", [&status]);
        assert_eq!((&status["policy"], &status["paused"]), (&"balanced+interleave".into(), &false.into()));
        let of = &status["cpu_time_of"];
        let shares = ["observing", "deciding", "moving"].map(|what| of[what].as_f64().unwrap());
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6 && shares[2] > 0.0, "{status:#}");
        assert!(status["moves"].as_array().is_some_and(|moves| !moves.is_empty()), "{status:#}");
        assert!(status["pages_moved"].as_u64() > Some(0) && status["threads_moved"].as_u64() > Some(0), "{status:#}");
    });
    checks.part("pause", || {
        let paused = ran.section("pause");
        assert!(paused.starts_with("the agent is paused\n") && paused.contains("\"paused\": true"), "{paused}");
        assert!(paused.ends_with("the agent is running\n"), "{paused}");
    });
    checks.part("left", || {
        assert_eq!(ran.section("left"), "no\nyes\n", "a program started during a pause is placed after it");
    });
    checks.part("explain", || {
        let explained = ran.section("explain");
        assert!(explained.contains("(nearside-worklo) is managed by balanced+interleave"), "{explained}");
        assert!(explained.contains("process 2 is not managed: it is a kernel thread"), "{explained}");
    });
    checks.part("metrics", || {
        let metrics = ran.section("metrics");
        let families =
            ["nearside_agent_rounds_total ", "nearside_agent_node_moved_bytes_total{from=", "{work=\"moving\"} "];
        assert!(families.iter().all(|family| metrics.contains(family)), "{metrics}");
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    });
    checks.part("second", || {
        let second = ran.section("second");
        assert!(second.contains("an agent is running already (process ") && second.ends_with("status 1\n"), "{second}");
    });
    if is_root_to("ask as another user") {
        checks.part("other", || {
            let other = ran.section("other");
            assert!(other.contains("is restricted to its owner and group") && other.ends_with("status 1\n"), "{other}");
        });
    }
    check_orders(&ran, &checks);
    checks.part("end", || {
        let end = ran.section("end");
        assert!(end.starts_with("status 0\nsame\n0\nnearside: no agent is running: there is no socket"), "{end}");
    });
    checks.part("sums", || assert!(number("sums") > 5, "{text}"));
}

/// Requests that change what the agent does.
fn check_orders(ran: &RunOutput, checks: &Checks) {
    checks.part("policy", || {
        let policy = ran.section("policy");
        let ordered = "the agent follows policy balanced\n{\n  \"schema\"";
        assert!(policy.starts_with(ordered) && policy.contains("uses 0.5 for threshold imbalance_min"), "{policy}");
        assert!(policy.contains("the agent refused: policy bind:9 wants "), "{policy}");
    });
    checks.part("place", || {
        let place = ran.section("place");
        assert!(place.starts_with("elsewhere\nthe agent places process "), "{place}");
        assert!(place.contains("\nthere\n2\n") && place.contains("process 2 is not managed"), "{place}");
        assert!(place.contains("node 9 has no memory: nodes 0-3 have"), "{place}");
    });
    checks.part("owner", || {
        let owner = ran.section("owner");
        assert!(
            owner.contains("cannot be placed on node 3: its owner has chosen CPUs 0, which respect_owner"),
            "{owner}"
        );
    });
    checks.part("orphan", || assert_eq!(ran.section("orphan"), "kept\nfree\n"));
    checks.part("reload", || {
        let reload = ran.section("reload");
        assert!(
            reload.starts_with("yes\nthe agent follows /tmp/interleave.toml with policy balanced+interleave\n"),
            "{reload}"
        );
        assert!(
            reload.contains("/tmp/interleave.toml:1: policie: unknown field") && reload.ends_with("yes\n"),
            "{reload}"
        );
    });
}
