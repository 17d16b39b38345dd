//! A comparison of policies, as text and as a page.

use crate::support::html_reader::{read, stays_here};
use machine::{NodeId, presets};
use report::{
    CompareReport, Comparison, Estimate, FailedRun, MemoryCounts, OneRun, PolicyRuns, Simulation, comparison_to_html,
};

fn memory(local: u64, remote: u64, latency_ns: f64) -> MemoryCounts {
    let nodes: Vec<NodeId> = (0..4).map(NodeId).collect();
    let row = |from: usize| (0..4).map(|to| if from == to { local } else { remote }).collect();
    MemoryCounts {
        accesses_by_node: (0..4).map(row).collect(),
        controllers: nodes.clone(),
        nodes,
        latency_mean_ns: Some(latency_ns),
    }
}

/// All accesses go to node 1.
fn hot() -> MemoryCounts {
    let mut hot = memory(0, 0, 991.0);
    hot.accesses_by_node.iter_mut().for_each(|row| row[1] = 1000);
    hot
}

fn runs(policy: &str, milliseconds: &[f64], memory: Option<&MemoryCounts>) -> PolicyRuns {
    let run = |(index, ms): (usize, &f64)| OneRun {
        index: index + 1,
        seconds: ms / 1e3,
        wall_seconds: ms / 1e3 + 0.1,
        memory: memory.cloned(),
        pages_moved: Some(12_345 * index as u64),
        policy_cpu_seconds: (policy != "kernel").then_some(if policy == "carrefour" { 0.002 } else { 0.0 }),
    };
    PolicyRuns {
        policy: policy.into(),
        means: format!("what {policy} does"),
        runs: milliseconds.iter().enumerate().map(run).collect(),
        ..PolicyRuns::default()
    }
}

fn comparison(policies: Vec<PolicyRuns>) -> Comparison {
    Comparison {
        command: ["nearside-workloads", "streamcluster"].map(str::to_owned).to_vec(),
        machine: "opteron-6164x2".into(),
        nodes: 4,
        cpus: 24,
        simulation: Some(Simulation {
            model_version: "0.1.0".into(),
            model_without: vec![],
            time_scale: 20,
            kernel: "6.12.1".into(),
        }),
        repeat: 3,
        warm_ups: 0,
        seconds_are: "what the command prints (/seconds)".into(),
        policies,
        notes: vec![],
        interrupted: false,
    }
}

fn usual() -> Comparison {
    let spread = memory(250, 250, 383.0);
    let numad = PolicyRuns { left_out: Some("it is not installed (package numad)".into()), ..runs("numad", &[], None) };
    let mut bind = runs("bind:0", &[], None);
    bind.failed = Some(FailedRun { index: 6, why: "signal 9 ended it".into(), output: "filling\nkilled".into() });
    let mut oracle = runs("oracle", &[100.0, 101.0, 102.0], Some(&memory(700, 100, 200.0)));
    oracle.notes.push("the best of 8 static bindings that were tried once is all CPUs, memory of node 1".into());
    comparison(vec![
        runs("first-touch", &[275.0, 276.0, 277.0], Some(&hot())),
        runs("kernel", &[250.0, 290.0, 270.0], Some(&hot())),
        numad,
        runs("interleave", &[94.0, 94.2, 94.4], Some(&spread)),
        bind,
        oracle,
    ])
}

fn text(policies: Vec<PolicyRuns>) -> String {
    CompareReport::new(comparison(policies)).verdict.text
}

#[test]
fn a_comparison_as_text() {
    let report = CompareReport::new(usual());
    assert_eq!((report.verdict.winner.as_deref(), report.is_complete()), (Some("interleave"), false));
    insta::assert_snapshot!(report);
}

#[test]
fn a_winner_is_named_only_where_chance_allows() {
    let slow = || runs("first-touch", &[200.0, 201.0, 199.0], Some(&hot()));
    let twice = text(vec![slow(), runs("carrefour", &[100.0, 101.0, 99.0], Some(&memory(250, 250, 383.0)))]);
    assert!(twice.starts_with("carrefour is the fastest: 2.00 times (1.9"), "{twice}");
    let why = "The busiest node serves 25.0 % of the accesses to memory instead of 100.0 %, and each takes 383 ns \
               instead of 991.";
    assert!(twice.ends_with(why), "{twice}");
    let same = text(vec![slow(), runs("carrefour", &[199.0, 203.0, 196.0], None)]);
    assert!(same.starts_with("No significant difference: the best, carrefour, was 1.00 times ("), "{same}");
    let none = text(vec![slow(), runs("interleave", &[202.0, 203.0, 199.0], None)]);
    assert_eq!(
        none,
        "No significant difference: first-touch had the shortest mean, and interleave does not differ significantly."
    );
    let two = text(vec![slow(), runs("a", &[100.0, 101.0, 99.0], None), runs("b", &[100.5, 101.0, 99.0], None)]);
    assert!(
        two.starts_with("The fastest are a, b, without a significant difference between them: 2.00 times ("),
        "{two}"
    );
    let best = text(vec![slow(), runs("kernel", &[300.0, 301.0, 302.0], None)]);
    assert!(
        best.starts_with("first-touch is the fastest: 1.50 times (") && best.contains("as fast as kernel, the next")
    );
    // Of two runs each, whose own times are known to 80 and 140 %.
    let few = text(vec![runs("first-touch", &[200.0, 226.0], None), runs("carrefour", &[100.0, 125.0], None)]);
    assert!(few.starts_with("No significant difference: the best, carrefour, was 1."), "{few}");
    let once = text(vec![slow(), runs("carrefour", &[100.0], None)]);
    assert!(once.starts_with("carrefour was the fastest, but not every policy has two runs"), "{once}");
    // A policy under which the program failed cannot be the fastest, and leaves the others' verdict.
    let failed = Some(FailedRun { index: 4, why: "exit status 9".into(), output: String::new() });
    let failing = |times| PolicyRuns { failed: failed.clone(), ..runs("interleave", times, None) };
    let fast = || runs("carrefour", &[100.0, 101.0, 99.0], None);
    for times in [&[50.0][..], &[50.0, 50.1, 50.2]] {
        let left = text(vec![slow(), failing(times), fast()]);
        assert!(left.starts_with("carrefour is the fastest: 2.00 times (") && !left.contains("interleave"), "{left}");
    }
    // One that failed as first touch is no baseline.
    let failed_first = PolicyRuns { failed: failed.clone(), ..slow() };
    let report = CompareReport::new(comparison(vec![failed_first, fast(), runs("b", &[100.2, 101.1, 98.8], None)]));
    assert_eq!(report.baseline.as_deref(), Some("carrefour"));
    assert!(
        report.verdict.text.contains("carrefour, was ") || report.verdict.text.contains("carrefour had"),
        "{report}"
    );
    let own = report.summaries.iter().find(|summary| summary.policy == "carrefour").unwrap();
    assert_eq!(own.speedup, Some(Estimate::ONE));
    assert!(text(vec![slow()]).starts_with("Only first-touch ran"));
    assert!(text(vec![]).starts_with("No policy completed a run"));
    // Without first touch, the first policy is the baseline.
    let report = CompareReport::new(comparison(vec![runs("a", &[2.0, 2.0], None), runs("b", &[1.0, 1.0], None)]));
    assert_eq!((report.baseline.as_deref(), report.verdict.winner.as_deref()), (Some("a"), Some("b")));
    assert!(!report.to_string().contains("NaN"), "{report}");
}

#[test]
fn json_output_can_be_read_again() {
    let report = CompareReport::new(usual());
    let json = serde_json::to_string(&report).unwrap();
    let read: Comparison = serde_json::from_str(&json).unwrap();
    assert_eq!(CompareReport::new(read), report);
}

#[test]
fn a_page_is_well_formed_and_loads_nothing() {
    let machine = presets::find("opteron-6164x2").unwrap();
    let page = |comparison: Comparison| comparison_to_html(&CompareReport::new(comparison), &machine).unwrap();
    let whole = page(usual());
    let seen = read(&whole);
    stays_here(&seen, 0);
    assert!(whole.contains("default-src 'none'") && whole.contains("prefers-color-scheme: dark"));
    for says in
        ["interleave is the fastest", "package numad", "signal 9 ended it", "killed", "275.00 ms", "what kernel does"]
    {
        assert!(seen.text.contains(says), "{says}");
    }
    assert_eq!(whole.matches("class=\"paper heat\"").count(), 4, "a map for each policy that ran");
    // Untrusted names stay text, and missing values are left out.
    let mut hostile = usual();
    hostile.command = vec!["</title><script>alert(1)</script>".into()];
    hostile.policies[4].failed.as_mut().unwrap().output = "<img src=x onerror=alert(1)>".into();
    assert_eq!(read(&page(hostile)).elements, seen.elements);
    for policies in
        [vec![], vec![runs("a", &[1e-9], None)], vec![runs("a", &[1e9, 1.0], None), runs("b", &[2.0, 2.0], None)]]
    {
        let page = page(comparison(policies));
        stays_here(&read(&page), 0);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
