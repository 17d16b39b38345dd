//! `nearside hugepages` on virtual machines: a program whose threads use parts of its huge pages.

use crate::support::Lab;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Four parts of 5.25 MiB: their three borders are within huge pages.
const PARTS: &str = "5.25";

/// Compiles the program into the folder that the guest works in.
fn compile(lab: &Lab) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs/parts.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(lab.path("work/parts")).arg(source);
    assert!(compiler.status().unwrap().success());
}

/// Neighbouring parts are of threads on different nodes: of eleven huge pages, the three at borders are found, with
/// their owners, and the misplaced pages are those that the program counts.
#[test]
fn huge_pages_at_borders_of_parts_are_found_with_their_owners() {
    let lab = Lab::new();
    compile(&lab);
    let mut find = lab.nearside();
    find.args(["hugepages", "find", "--machine", "small-4x2", "--numa-balancing", "off", "--quiet"]);
    find.args(["--timeout", "300", "--json", "found.json", "--", "./parts", PARTS, "12", "0", "2", "4", "6"]);
    let ran = lab.run(find, b"");
    assert_eq!(ran.status, 3, "{}\n{}", ran.text(), ran.error);
    let counted = ran.text().lines().find_map(|line| line.strip_prefix("misplaced ")).unwrap();
    let misplaced: i64 = counted.split(' ').next().unwrap().parse().unwrap();
    let found: Value = lab.json("work/found.json");
    let counts = &found["huge_pages"];
    assert_eq!((counts["all"].as_u64(), counts["falsely_shared"].as_u64()), (Some(11), Some(3)), "{counts:#}");
    let told = found["objects"][0]["pages"]["misplaced_pages"].as_i64().unwrap();
    assert!((told - misplaced).abs() <= 24, "{told} are not the {misplaced} that the program counts");
    assert!(found["gain"]["speedup"].as_f64() > Some(1.01) && found["found"] == true, "{:#}", found["gain"]);
    let text = ran.text();
    assert!(text.contains("3 of 11 huge pages are falsely shared: with small pages there"), "{text}");
    lab.assert_nothing_left();
}

/// The same parts in order of nodes on huge pages of their own are left alone.
#[test]
fn huge_pages_of_one_owner_each_are_not_found() {
    let lab = Lab::new();
    compile(&lab);
    let mut find = lab.nearside();
    find.args(["hugepages", "find", "--machine", "small-4x2", "--numa-balancing", "off", "--quiet"]);
    find.args(["--timeout", "300", "--json", "found.json", "--", "./parts", "6", "12", "0", "2", "4", "6"]);
    let ran = lab.run(find, b"").succeeded();
    let counts = &lab.json("work/found.json")["huge_pages"];
    assert_eq!((counts["all"].as_u64(), counts["local_owner"].as_u64()), (Some(12), Some(12)), "{counts:#}");
    assert!(ran.text().contains("none of 12 huge pages is falsely shared"), "{}", ran.text());
}
