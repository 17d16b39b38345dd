//! `nearside migrate` and `nearside bind` on virtual machines: pages move to the requested nodes, keep every write, and
//! have a reason if they stay.

use crate::support::{Lab, RunOutput, is_root, is_root_to};
use serde_json::Value;
use test_tools::Checks;
use test_tools::json_fields::assert_documented;

/// `hold OPTIONS` starts a process and sets `pid` and `range`; `let_go` ends it.
const HOLD: &str = include_str!("programs/migrate_hold.sh");

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why} in:\n{text}"))
}

/// The reports in a section, one after another.
fn reports(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .map(|value| value.unwrap_or_else(|why| panic!("{why} in:\n{text}")))
        .collect()
}

fn stayed<'a>(report: &'a Value, reason: &str) -> &'a Value {
    assert_documented("migrate PID", [report]);
    let found = report["stayed"].as_array().unwrap().iter().find(|stayed| stayed["reason"] == reason);
    found.unwrap_or_else(|| panic!("nothing stayed for {reason}: {report:#}"))
}

/// Claims 9 and 10 of the specification, ranges, single pages, mappings, budget, huge pages.
#[test]
fn pages_and_threads_go_where_they_are_sent() {
    let lab = Lab::new();
    let script = HOLD.to_owned() + include_str!("programs/migrate_where_sent.sh");
    let options = ["--quiet", "--thp", "never", "--numa-balancing", "off"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let checks = Checks::new();
    checks.part("threads", || threads_go_where_they_are_bound_and_their_pages_follow(&ran));
    let section = |name: &str| {
        let report = ran.json(name);
        assert_documented("migrate PID", [&report]);
        report
    };
    let bytes = |report: &Value, what: &str| report[what]["bytes"].as_u64().unwrap();
    checks.part("all", || {
        let all = section("all");
        assert!(bytes(&all, "moved") >= 32 << 20 && all["moved_to"][0]["node"] == 1, "{all:#}");
        assert_eq!(ran.section("all-nodes"), "N1=8192 \n");
    });
    checks.part("range", || {
        let range = section("range");
        assert_eq!((bytes(&range, "moved"), &range["stayed"]), (4 << 20, &Value::from(Vec::<Value>::new())));
        assert_eq!(ran.section("range-nodes"), "N1=7168 N2=1024 \n");
    });
    checks.part("page", || {
        assert_eq!(section("page")["moved"]["pages"], 1);
        assert_eq!(ran.section("page-nodes"), "N1=7168 N2=1023 N3=1 \n");
    });
    checks.part("from", || {
        let from = section("from");
        assert_eq!((&from["moved"]["pages"], &from["on_other_nodes"]["pages"]), (&1023.into(), &7169.into()));
        assert_eq!(ran.section("from-nodes"), "N0=1023 N1=7168 N3=1 \n");
    });
    checks.part("dealt", || {
        let dealt = section("dealt");
        assert_eq!((&dealt["already_there"]["pages"], &dealt["moved"]["pages"]), (&7168.into(), &1024.into()));
        assert_eq!(ran.section("dealt-nodes"), "N1=7680 N2=512 \n");
    });
    checks.part("half", || {
        let half = ran.section("half");
        let (report, status) = half.split_once("status ").unwrap();
        assert!(status == "3\n" && bytes(&json(report), "moved") >= 32 << 20, "{half}");
        assert!(json(report)["unmapped_bytes"].as_u64().unwrap() > 1 << 40, "{half}");
    });
    checks.part("budget", || {
        let budget = section("budget");
        assert!(bytes(&budget, "moved") == 32 << 20 && budget["seconds"].as_f64().unwrap() >= 0.3, "{budget:#}");
    });
    checks.part("stack", || {
        let stack = section("stack");
        assert_eq!((&stack["threads"]["cpus"], &stack["threads"]["bound"]), (&"4-5".into(), &1.into()));
    });
    checks.part("wrong", || {
        assert_eq!(ran.section("wrong"), "status 2\n".repeat(8));
    });
    if !is_root_to("reserve huge pages") {
        return;
    }
    checks.part("huge", || {
        let huge = section("huge");
        assert_eq!((&huge["moved"]["pages"], bytes(&huge, "moved")), (&8.into(), 16 << 20), "{huge:#}");
    });
    checks.part("hugetlb", || {
        let hugetlb = section("hugetlb");
        assert_eq!((&hugetlb["moved"]["pages"], bytes(&hugetlb, "moved")), (&4.into(), 8 << 20), "{hugetlb:#}");
    });
}

/// Claims 3, 11, 12, 15 and 26 of the specification: existing threads get the new mask, or its intersection with their
/// own; pages follow a thread that has moved (2.7).
fn threads_go_where_they_are_bound_and_their_pages_follow(ran: &RunOutput) {
    let intersect = ran.json("intersect");
    assert_documented("bind PID", [&intersect]);
    assert_eq!((&intersect["threads"]["bound"], &intersect["threads"]["cpus"]), (&2.into(), &"2-5".into()));
    assert_eq!(ran.section("intersect-masks"), "4-5 2-5 \n");
    assert_eq!(ran.section("nothing-left"), "status 1\n4-5 2-5 \n");
    assert_eq!(ran.section("overwrite"), "2-3 2-3 \n");
    assert_eq!(ran.section("one"), "2-3 7 \n");
    assert_eq!(ran.section("bind-wrong"), "2\n2\n2\n2\n2\n");
    // Claim 12: pages that other processes also map stay, here those of the program.
    let shared: Vec<u32> = ran.section("follow-shared").lines().map(|pages| pages.parse().unwrap()).collect();
    assert!(shared[0] > 0 && shared[1] >= shared[0], "{shared:?}");
    // A policy of its own decides where its pages go.
    let not = ran.section("follow-not");
    assert!(not.starts_with("status 0\n") && not.ends_with("to 2: 0 B followed\nthe process has ended\n"), "{not}");
    assert!(ran.section("follow-exec").ends_with("has ended\n"), "{}", ran.section("follow-exec"));
    let follow = ran.section("follow");
    let (before, events) = follow.split_once("status 0\n").unwrap_or_else(|| panic!("{follow}"));
    let on_new_node: u64 = before.trim().strip_prefix("N2=").unwrap().parse().unwrap();
    assert!(on_new_node >= 4096, "{follow}");
    let events: Vec<Value> = events.lines().map(json).collect();
    assert_documented("bind PID --follow", &events);
    let followed = events.iter().find(|event| event["event"] == "pages_followed").unwrap();
    assert_eq!((&followed["from"], &followed["to"]), (&0.into(), &2.into()));
    assert!(followed["moved"]["bytes"].as_u64().unwrap() >= 16 << 20, "{follow}");
    assert_eq!(events.last().unwrap()["event"], "ended");
}

/// Millions of random writes while their pages move back and forth; processes that exit, execute and fork meanwhile;
/// pages that cannot move; processes of other users.
#[test]
fn no_write_is_lost_and_what_stays_has_its_reason() {
    let lab = Lab::new();
    let script = HOLD.to_owned() + include_str!("programs/migrate_reasons.sh");
    let options = ["--quiet", "--thp", "never", "--memory-per-node", "192M"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let checks = Checks::new();
    checks.part("writes", || {
        let writes = ran.section("writes");
        assert!(
            writes.contains("status 0\n") && writes.ends_with("32000000 writes, none lost\n"),
            "{writes}{}",
            ran.error
        );
        // There and back; a slow machine moves no more while the program runs.
        assert!(writes.matches("\"moved\":").count() >= 2, "{writes}");
    });
    checks.part("exit", || {
        let exit = ran.json("exit");
        assert_eq!((&exit["process_ended"], &exit["interrupted"]), (&true.into(), &false.into()), "{exit:#}");
    });
    checks.part("exec", || {
        assert!(ran.section("exec").ends_with("status 0\n"), "{}", ran.section("exec"));
    });
    checks.part("fork", || {
        assert_eq!(ran.section("fork"), "status 0\n".repeat(3));
    });
    let shared = ran.section("shared").replace("status 0", "");
    let shared = reports(&shared);
    checks.part("shared", || assert_eq!(stayed(&shared[0], "shared")["pages"], 1024));
    if !is_root_to("change users and move shared pages") {
        return;
    }
    checks.part("shared by root", || assert_eq!(shared[1]["moved"]["pages"], 1024, "{:#}", shared[1]));
    checks.part("pinned", || {
        let pinned = reports(&ran.section("pinned").replace("status 3", "")).remove(0);
        assert_eq!(
            (&stayed(&pinned, "held")["pages"], &pinned["moved"]["pages"]),
            (&256.into(), &768.into()),
            "{pinned:#}"
        );
    });
    checks.part("full", || {
        let full = reports(&ran.section("full").replace("status 3", "")).remove(0);
        let stays = full["stayed"].as_array().unwrap();
        assert!(stays.iter().all(|stayed| stayed["why"].as_str().unwrap().starts_with("node 3 is full")), "{full:#}");
        assert!(stays[0]["pages"].as_u64().unwrap() > 1000, "{full:#}");
    });
    checks.part("limit", || {
        // Moved pages are not charged twice: a group at its limit does not block them.
        let limit = ran.section("limit");
        assert!(limit.ends_with("N1=9216 \nmax 0\noom 0\n"), "{limit}");
    });
    let others = ran.section("others");
    let all_told = [
        "gone\nnearside: cannot look at process 99999: there is no process 99999: it has ended, or the number is wrong\nstatus 1\n",
        "kernel\nnearside: cannot look at process 2: process 2 is a kernel thread: it has no memory of its own\nstatus 1\n4\n",
        "zombie\nnearside: cannot look at process N: process N has ended (it is a zombie that waits for its parent) and has no memory left\nstatus 1\n",
        "stranger\nnearside: cannot look at process N: process N runs as user 0, and user 65534 may not access it without CAP_SYS_PTRACE; run it",
        "stranger-bind\nprocess N (sleep): 0 threads run on CPUs 2-3\n",
        "process N runs as user 0, and user 65534 may not access it without CAP_SYS_NICE; run it with sudo",
        "own\nstatus 0\n",
        "shared\nnearside: cannot move pages of process N (move_pages: Operation not permitted (os error 1)): moving pages that other \
         processes map too needs CAP_SYS_NICE, which you do not have; run it with sudo",
        "cpuset\nnearside: cannot use 2: node 2 is outside the cpuset of control group /few, which allows memory of 0-1 only; to widen \
         it: echo 0-2 | sudo tee /sys/fs/cgroup/few/cpuset.mems\nstatus 1\nprocess N (sleep): 1 thread runs on CPUs 4-5\n",
    ];
    for told in all_told {
        let name = told.lines().next().unwrap_or_default();
        checks.part(name, || assert!(others.contains(told), "no {told:?} in:\n{others}"));
    }
}

/// Feature F51 of the `MemProf` specification: memory goes to the threads that use it and threads to the memory that
/// they use, according to a trace, which must be of the same process.
#[test]
fn memory_and_threads_go_where_a_trace_has_seen_them_used() {
    let lab = Lab::new();
    let script = HOLD.to_owned() + include_str!("programs/migrate_by_trace.sh");
    let options = ["--quiet", "--thp", "never", "--numa-balancing", "off"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let [before, after] =
        ["before", "after"].map(|when| ran.json(when)["counts"]["local_access_ratio"].as_f64().unwrap());
    assert!(before < 0.4 && after > before + 0.2, "{before} {after}");
    let moved = ran.json("moved");
    let to: Vec<_> = moved["moved_to"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect();
    assert_eq!(to, [1, 2, 3], "{moved:#}");
    // A sample may be of a library, whose pages other processes map as well.
    let stayed = moved["stayed"].as_array().unwrap();
    assert!(stayed.iter().all(|stayed| stayed["reason"] == "shared"), "{moved:#}");
    let bound = "process N (nearside-worklo), by the memory that its threads use:\nnode 2: 1 thread runs on CPUs 4-5\n";
    assert_eq!(ran.section("bound"), bound.to_owned() + "0 4-5 \n");
    let refused = |trace: &str, why: &str| format!("nearside: {trace} cannot be used: {why}\nstatus 2\n");
    let others =
        refused("near", "it has no accesses of process N: nearside report shows what it has, and why") + "again 0\n";
    let again = refused("near", "process N started later: it is not the recorded one");
    assert_eq!(ran.section("others"), others + &again);
    let elsewhere = ran.section("elsewhere");
    assert!(elsewhere.starts_with("nearside: far cannot be used: it was recorded on "), "{elsewhere}");
    assert!(elsewhere.ends_with(", and this is elsewhere\nstatus 2\n"), "{elsewhere}");
}

/// Two nodes; the same as an ordinary user, for whom doctor predicts what will not work.
#[test]
fn an_ordinary_user_moves_its_own_and_learns_what_else_it_would_take() {
    let lab = Lab::new();
    let script = HOLD.to_owned() + include_str!("programs/migrate_ordinary_user.sh");
    let script = script.replace('\'', "'\\''");
    let as_nobody = if is_root() { "setpriv --reuid 65534 --regid 65534 --clear-groups " } else { "" };
    let options = ["--quiet", "--thp", "never"];
    let ran = lab.script("small-2x2", &options, &format!("{as_nobody}sh -c '{script}'")).succeeded();
    let placed = ran.section("placed");
    assert_eq!(
        placed,
        "N1=2048 \nstatus 0\nN0=2048 \nprocess N (nearside-worklo): 1 thread runs on CPUs 2-3\nstatus 0\n"
    );
    let doctor = ran.json("doctor");
    let feature = |name: &str| {
        let features = doctor["features"].as_array().unwrap();
        features.iter().find(|feature| feature["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    assert_eq!((&feature("move_pages")["works"], ran.section("status")), (&true.into(), "3\n"));
    let why = feature("lab_pmu")["why"].to_string();
    assert!(why.contains("it belongs to the user who began the lab's run"), "{why}");
    let shared = feature("move_shared_pages");
    assert_eq!(shared["why"], "moving pages that other processes map too needs CAP_SYS_NICE, which you do not have");
    assert!(shared["what_to_do"].as_str().unwrap().contains("setcap cap_sys_nice+ep"), "{shared}");
}
