//! `nearside lab run --shake`: a program that is moved, and the same program in peace.

use crate::support::Lab;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn shaken_threads_and_pages_move_within_the_programs_choices_and_are_given_back() {
    let lab = Lab::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs/stays.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(lab.path("work/stays")).arg(source);
    assert!(compiler.status().unwrap().success());
    let run = |options: &[&str]| -> (Value, Value) {
        let options = [&["--quiet", "--numa-balancing", "off", "--json", "../report.json"], options].concat();
        let ran = lab.script("small-4x2", &options, "./stays").succeeded();
        (serde_json::from_str(ran.text()).unwrap(), lab.json("report.json")["shake"].clone())
    };

    let (seen, moved) = run(&["--shake", "7"]);
    let at_least = |name: &str, least: u64| assert!(seen[name].as_u64() >= Some(least), "{name}: {seen}, {moved}");
    at_least("nodes", 3);
    // All CPUs, and those of some nodes.
    at_least("sets", 3);
    at_least("of_free", 3);
    // What the program has chosen stays, and what was taken is given back.
    let kept = json!([seen["mostly_free"], seen["of_bound"], seen["pinned"], seen["late_is_free"]]);
    assert_eq!(kept, json!([1, 1, 1, 1]), "{seen}");
    assert_eq!(moved["seed"], 7);
    for (name, least) in [("rounds", 30), ("thread_moves", 5), ("pages_moved", 64)] {
        assert!(moved[name].as_u64() >= Some(least), "{name}: {moved}");
    }

    let (seen, moved) = run(&[]);
    assert_eq!(moved, Value::Null);
    let calm = json!([seen["sets"], seen["mostly_free"], seen["of_free"], seen["of_bound"], seen["pinned"]]);
    assert_eq!(calm, json!([1, 1, 1, 1, 1]), "{seen}");
}
