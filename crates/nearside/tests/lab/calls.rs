//! System calls of crate `linux`, on a virtual machine of four nodes, as root and as an ordinary user. Claims are
//! numbered as in section 8 of the specification.

use crate::support::{Lab, is_root_to};
use serde_json::{Value, json};

const CALLS: &str = include_str!("programs/calls.sh");

#[test]
fn each_call_does_what_it_says_and_says_why_not() {
    let lab = Lab::new();
    let ran = lab.script("small-4x2", &["--quiet", "--thp", "madvise"], CALLS).succeeded();
    let section = |name: &str| -> Value {
        serde_json::from_str(ran.section(name)).unwrap_or_else(|why| panic!("{why} in:\n{}", ran.section(name)))
    };
    let user = section("user");
    let told = section("root");
    for told in [&told, &user] {
        // Claims 5 and 6: pages without a policy are where they were first touched.
        assert_eq!(told["first_touch"], json!({ "policy": "Default", "pages": { "1": 200, "3": 201 } }));
        // Claim 4: ranges keep their policies, and new ones have the thread's.
        assert_eq!(told["inherited"], json!({ "old": { "1": 16 }, "new": { "3": 16 } }));
        // Claim 7: even pages on one node, odd ones on the other, within one page of the half.
        let pages = &told["interleaved"]["pages"];
        let (one, other) = (pages["1"].as_u64().unwrap(), pages["3"].as_u64().unwrap());
        assert!(one + other == 401 && one.abs_diff(other) == 1, "{pages}");
        assert_eq!(
            (&told["interleaved"]["alternate"], &told["interleaved"]["next_is_one"]),
            (&json!(true), &json!(true))
        );
        let home = json!({ "without": { "1": 401 }, "with": { "3": 401 }, "errno_without_policy": 2 });
        assert_eq!(told["home_node"], home);
        assert_eq!((&told["huge"]["before"], &told["huge"]["collapsed"]), (&json!(0), &json!(1)), "{}", told["huge"]);
        assert_eq!(told["huge"]["kept"], true);
    }
    // Claim 24: a running process has the CPUs that it is given, and reports them.
    let threads = section("bound")["threads"].clone();
    assert!(threads.as_array().unwrap().iter().all(|thread| thread["cpus"] == "4-5"), "{threads}");
    if is_root_to("set weights and switches, and split huge pages") {
        // Claim 8: pages that do not fit on a preferred node go to other nodes, and nothing fails.
        let (mut there, mut elsewhere) = (0, 0);
        for on in section("preferred")["mappings"][0]["pages"].as_array().unwrap() {
            let sum = if on["node"] == 3 { &mut there } else { &mut elsewhere };
            *sum += on["pages"].as_u64().unwrap();
        }
        assert!(there > 0 && elsewhere > 0 && there + elsewhere == 32768, "{there} and {elsewhere}");
        assert_eq!(told["weighted"], json!({ "pages": { "1": 100, "3": 300 }, "weight_put_back": true }));
        assert_eq!((&told["huge"]["split"], &told["huge"]["after"]), (&Value::Null, &json!(0)));
        assert_eq!(told["switch"], json!({ "changed": true, "put_back": true }));
        let other = json!({ "bytes": 2 << 20, "populate_errno": 22, "unmapped_errno": 14 });
        assert_eq!(told["other_process"], other);
        let pages = &section("after")["mappings"][0]["pages"][0];
        assert_eq!((&pages["kind"], &pages["pages"]), (&json!("transparent_huge"), &json!(1)));
        // The ordinary user must not touch processes of others.
        let other = user["other_process"].as_str().unwrap();
        assert!(other.contains("Permission denied"), "{other}");
        let split = user["huge"]["split"].as_str().unwrap();
        assert!(split.contains("/sys/kernel/debug/split_huge_pages: Permission denied"), "{split}");
    }
    // The ordinary user gets an error that names the file it may not write.
    for (call, says) in [
        ("weighted", "cannot set /sys/kernel/mm/mempolicy/weighted_interleave/node1: Permission denied"),
        ("switch", "cannot set /proc/sys/kernel/numa_balancing: Permission denied"),
    ] {
        assert!(user[call].as_str().is_some_and(|error| error.contains(says)), "{call}: {}", user[call]);
    }
    assert_eq!(user["huge"]["after"], 1);
    // Claim 28: a node of several zones is one node.
    let zones: u32 = ran.section("zones").trim().parse().unwrap();
    assert!(zones > 1);
    let nodes: Vec<u64> =
        section("machine")["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [0, 1, 2, 3]);
}
