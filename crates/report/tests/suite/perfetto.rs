//! The trace for the Perfetto UI, checked against the rules of its importer for Chrome's trace event format.

use crate::support::{Shape, profile, view};
use report::profile_to_perfetto;
use serde_json::Value;
use std::collections::BTreeMap;

fn trace(shape: &Shape) -> Value {
    let profile = profile(shape);
    serde_json::from_str(&profile_to_perfetto(&view(&profile))).unwrap()
}

/// Required fields of every event, by phase; the importer would ignore events without them, or count them as errors.
fn check(trace: &Value) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    let mut ends: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut open: BTreeMap<String, f64> = BTreeMap::new();
    assert_eq!(trace["displayTimeUnit"], "ns");
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        *phases.entry(phase.to_owned()).or_insert(0) += 1;
        let number = |name: &str| u64::from(u32::try_from(event[name].as_u64().unwrap()).unwrap());
        let thread = (number("pid"), number("tid"));
        assert!(event["name"].is_string() && event["args"].is_object(), "{event}");
        if phase == "M" {
            assert!(["process_name", "thread_name"].contains(&event["name"].as_str().unwrap()));
            assert!(event["args"]["name"].is_string());
            continue;
        }
        let ts = event["ts"].as_f64().unwrap();
        assert!(ts >= 0.0 && ts.is_finite());
        match phase {
            "X" => {
                // Slices of one track may not overlap.
                let end = ts + event["dur"].as_f64().unwrap();
                let before = ends.insert(thread, end).unwrap_or(0.0);
                assert!(end >= ts && before <= ts + 1e-6, "{before} of the one before {event}");
            }
            "b" => assert_eq!(open.insert(event["id"].as_str().unwrap().to_owned(), ts), None),
            "e" => assert!(open.remove(event["id"].as_str().unwrap()).unwrap() <= ts),
            "C" => assert!(event["args"].as_object().unwrap().values().all(Value::is_number), "{event}"),
            other => panic!("{other} is not written"),
        }
    }
    assert!(open.is_empty());
    phases
}

#[test]
fn events_are_what_the_importer_asks_for() {
    for shape in [
        Shape::default(),
        Shape { processes: 3, ..Shape::default() },
        Shape { timed: false, ..Shape::default() },
        Shape { name: "\"},{\"ph\":\"X\\\u{0}".into(), ..Shape::default() },
    ] {
        let phases = check(&trace(&shape));
        assert_eq!(phases["X"], 4000 / shape.processes as usize * shape.processes as usize);
        assert!(phases["C"] > 400 && phases["b"] == phases["e"], "{phases:?}");
    }
    let empty = check(&trace(&Shape { samples: 0, ..Shape::default() }));
    assert_eq!(empty.into_iter().collect::<Vec<_>>(), [("M".to_owned(), 1)]);
}

#[test]
fn counters_tell_of_nodes_over_time() {
    let trace = trace(&Shape::default());
    let values = |name: &str, unit: &str| -> Vec<f64> {
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.filter(|event| event["name"] == name).map(|event| event["args"][unit].as_f64().unwrap()).collect()
    };
    let local = values("local access ratio", "ratio");
    assert!(local.first() > Some(&0.99) && local.last() < Some(&0.7), "{local:?}");
    let latency = values("node 1 latency", "ns");
    assert!(latency.iter().fold(0.0, |a: f64, b| a.max(*b)) > 500.0 && latency.first() < Some(&200.0));
    // 4000 samples of 50 accesses of 64 bytes in 200 ms, minus cache hits.
    let sum: f64 = (0..4).flat_map(|node| values(&format!("node {node} bandwidth"), "bytes_per_s")).sum();
    assert!((0.9..1.0).contains(&(sum / 200.0 / (4000.0 * 50.0 * 64.0 / 0.2))), "{sum}");
}

#[test]
fn of_too_many_accesses_some_are_written_and_the_rest_is_counted() {
    let trace = trace(&Shape { samples: 130_000, ..Shape::default() });
    assert_eq!(check(&trace)["X"], 100_000);
    assert_eq!(
        (&trace["otherData"]["accesses"], &trace["otherData"]["accesses_left_out"]),
        (&130_000.into(), &30_000.into())
    );
}

#[test]
fn a_trace_as_it_was_reviewed() {
    let profile = profile(&Shape { threads: 2, samples: 6, ..Shape::default() });
    insta::assert_snapshot!(profile_to_perfetto(&view(&profile)));
}
