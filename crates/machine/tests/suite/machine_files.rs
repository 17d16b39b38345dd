//! Machine files: what is accepted, and the file, line, field and rule of each error.

use machine::{Machine, MachineError, Mistake, presets};
use proptest::prelude::*;
use std::path::Path;

/// The example of the manual.
fn example() -> String {
    let manual = include_str!("../../../../docs/machine-files.md");
    manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned()
}

fn mistakes(text: &str) -> Vec<Mistake> {
    match Machine::from_toml(text, Path::new("my.toml")) {
        Err(MachineError::Mistakes(mistakes)) => mistakes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_manuals_example_is_a_machine_with_a_source_for_each_number() {
    let machine = Machine::from_toml(&example(), Path::new("docs/machine-files.md")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(machine.missing_sources(), []);
    // The example uses every feature of the format.
    assert!(!machine.smt_cores.is_empty() && machine.core.is_some() && machine.latency.is_some());
    assert!(machine.distances.is_some() && !machine.packages.is_empty() && !machine.caches.is_empty());
    assert!(!machine.links.is_empty() && !machine.routes.is_empty());
}

/// The keys that a table may have, from the message about one that it may not have.
fn keys_of(table: &str) -> Vec<String> {
    let text = if table.is_empty() { "no_key = 1".to_owned() } else { format!("name = \"x\"\n[{table}]\nno_key = 1") };
    let found = mistakes(&text);
    let (_, expected) = found[0].rule.split_once("expected ").unwrap_or_else(|| panic!("{found:?}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The manual page is made from this text too.
#[test]
fn the_manual_has_every_key_of_every_table() {
    let manual = include_str!("../../../../docs/machine-files.md").split_once("## Fields").unwrap().1;
    let section = |start: &str| {
        let at = manual.find(&format!("\n{start}")).unwrap_or_else(|| panic!("no {start}"));
        manual[at + 1..].split("\n`[").next().unwrap()
    };
    let has = |section: &str, key: &str| section.contains(&format!("\n| `{key}` | "));
    let top = keys_of("");
    assert!(top.len() > 14, "{top:?}");
    for key in &top {
        let tables = ["core", "coherence", "control", "disk", "latency", "distances"];
        let arrays = ["package", "node", "cache", "tlb", "link", "route"];
        let (start, table) = match key.as_str() {
            "sources" => {
                section("`[sources]`");
                continue;
            }
            key if tables.contains(&key) => (format!("`[{key}]`"), key.to_owned()),
            key if arrays.contains(&key) => (format!("`[[{key}]]`"), format!("[{key}]")),
            key => {
                assert!(has(section("At the top"), key), "{key}");
                continue;
            }
        };
        let keys = keys_of(&table);
        assert!(!keys.is_empty(), "{table}");
        for key in keys.iter().filter(|key| *key != "source") {
            assert!(has(section(&start), key), "{start} lacks {key}");
        }
    }
    for key in ["probes.answer_ns", "probes.per_second"] {
        assert!(has(section("`[coherence]`"), key), "{key}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let machines = presets::names().into_iter().map(|name| presets::find(name).unwrap());
    let example = Machine::from_toml(&example(), Path::new("example")).unwrap();
    for machine in machines.chain([example]) {
        let text = machine.to_toml().unwrap();
        assert_eq!(Machine::from_toml(&text, Path::new("again")).unwrap(), machine);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = machine::chain(&Machine::load(Path::new("/nowhere/my.toml")).unwrap_err());
    assert!(error.starts_with("cannot read the machine file /nowhere/my.toml: there is no such file"), "{error}");
}

/// The field that the first line has is not the missing one's table.
#[test]
fn a_missing_field_is_of_the_table_that_lacks_it() {
    let said = |text: &str| Machine::from_toml(text, Path::new("m")).unwrap_err().to_string();
    let missing = said("description = \"x\"\n");
    assert!(missing.contains("m:1: missing field `name`"), "{missing}");
    let of_table = said("name = \"x\"\n[[node]]\nid = 0\n[[node]]\n");
    assert!(of_table.contains("m:2: node: missing field `"), "{of_table}");
}

/// Each replaces a part of the example: the old text, the new text, and the mistakes, each as `field: part of the
/// rule`. The line must be that of the replacement, marked by `@` in it.
const WRONG: &[(&str, &str, &[&str])] = &[
    ("name = ", "@name = = ", &[": "]),
    ("name = \"two-sockets\"", "", &[": missing field `name`"]),
    (
        "description =",
        "@descripton =",
        &["descripton: unknown field `descripton` (did you mean `description`?), expected one of"],
    ),
    (
        "id = 1\ncpus = \"4-7\"\nmemory",
        "id = 1\n@cpus = \"4-x\"\nmemory",
        &["node[1].cpus: `4-x` is neither a number nor"],
    ),
    ("memory_bytes = \"8 GiB\"", "@memory_bytes = \"8 Gib/s\"", &["node[0].memory_bytes: "]),
    ("memory_bytes = \"8 GiB\"", "@memory_bytes = true", &["node[0].memory_bytes: "]),
    ("shared_by = \"core\"", "@shared_by = \"cores\"", &["cache[0].shared_by: "]),
    (
        "id = 1\ncpus = \"4-7\"\nmemory",
        "@id = 0\ncpus = \"4-7\"\nmemory",
        &["node[1].id: ids ascend and differ, but 0 follows 0"],
    ),
    (
        "id = 2\n",
        "@id = 2000000\n",
        &[
            "node[2].id: a node's id is at most 1048576",
            // Links are not checked while nodes are invalid.
        ],
    ),
    ("cpus = \"4-7\"\nmemory", "@cpus = \"3-7\"\nmemory", &["node[1].cpus: a node already has CPU 3"]),
    ("smt_cores = [\"0-1\",", "@smt_cores = [\"0,9\",", &["smt_cores[0]: no node has CPU 9"]),
    ("smt_cores = [\"0-1\",", "@smt_cores = [\"0-2\",", &["smt_cores[1]: a core already has CPU 2"]),
    (
        "cpus = \"0-3\"\n\n[[package]]\n",
        "@cpus = \"0-4,8\"\n\n[[package]]\n",
        &["package[0].cpus: no node has CPU 8", "package[1].cpus: a package already has CPU 4"],
    ),
    (
        "line_bytes = 64 # L1",
        "@line_bytes = 48 # L1",
        &[
            "cache[0].line_bytes: a line is a power of two, not 48",
            "cache[0].size_bytes: a size is sets x ways x line, but 32768 is not a multiple of 8 x 48",
        ],
    ),
    (
        "line_bytes = 64 # L1",
        "@line_bytes = 0 # L1",
        &[
            "cache[0].line_bytes: a line is a power of two, not 0",
            "cache[0].line_bytes: must be from 8 to 65536 bytes, is 0",
        ],
    ),
    (
        "[\"0-3\", \"4-7\"]",
        "[\"0-4\", \"4-8\"]",
        &[
            "cache[1].shared_by[1]: no node has CPU 8",
            "cache[1].shared_by[1]: a level 3 unified cache already has CPU 4",
        ],
    ),
    (
        "level = 3\nkind = \"unified\"",
        "level = 1\nkind = \"data\"",
        &["cache[1].shared_by[0]: a level 1 data cache already has CPU 0-3", "cache[1].shared_by[1]: "],
    ),
    ("latency_ns = 1.2", "@latency_ns = -1.2", &["cache[0].latency_ns: must be from 0.01 to 1e7 ns, is -1.2"]),
    ("latency_ns = 1.2", "@latency_ns = nan", &["cache[0].latency_ns: must be from 0.01 to 1e7 ns, is NaN"]),
    (
        "bandwidth_bytes_per_s = 20e9",
        "@bandwidth_bytes_per_s = 20",
        &["link[0].bandwidth_bytes_per_s: must be from 1e6 to 1e14 bytes/s, is 20"],
    ),
    ("clock_hz = 2.5e9", "@clock_hz = inf", &["core.clock_hz: must be from 1e6 to 1e11 Hz, is inf"]),
    (
        "    [10, 21, 17],",
        "    @[11, 21, 17],",
        &["distances.matrix[0][0]: the distance of a node to itself is 10, not 11"],
    ),
    ("    [10, 21, 17],", "    @[10, 9, 17],", &["distances.matrix[0][1]: must be from 10 to 255, is 9"]),
    ("    [10, 21, 17],", "    @[10, 21],", &["distances.matrix[0]: has a column for each of the 3 nodes, not 2"]),
    (
        "    [10, 21, 17],",
        "",
        &[
            "distances.matrix: has a row for each of the 3 nodes, not 2",
            "distances.matrix[0][0]: the distance of a node to itself is 10, not 21",
            "distances.matrix[1][1]: the distance of a node to itself is 10, not 28",
        ],
    ),
    (
        "by_hops_ns = [90, 140, 210]",
        "@by_hops_ns = [90, 140]",
        &["latency.by_hops_ns: the longest route has 2 hops, so 3 latencies are needed"],
    ),
    (
        "by_hops_ns = [90, 140, 210]",
        "matrix_ns = [[90]]",
        &["latency.matrix_ns: has a row for each of the 3 nodes, not 1"],
    ),
    (
        "by_hops_ns = [90, 140, 210]",
        "by_hops_ns = [90, 140, 210]\nmatrix_ns = [[90]]",
        &["latency: only one of by_hops_ns and matrix_ns is given"],
    ),
    ("by_hops_ns = [90, 140, 210]", "", &["latency: one of by_hops_ns and matrix_ns is given"]),
    ("nodes = [0, 1]", "@nodes = [0, 0]", &["link[0].nodes: a link joins two different nodes"]),
    ("[latency]", "[control]\n@classes = 99\n[latency]", &["control.classes: must be from 2 to 16 classes, is 99"]),
    (
        "[latency]",
        "[control]\nclasses = 4\n@least_ways = 9\n[latency]",
        &["control.least_ways: must be at most 8, half of the ways of a level 3 cache, is 9"],
    ),
    (
        "[latency]",
        "[control]\nclasses = 4\nbandwidth_step_bytes_per_s = 0.1\n[latency]",
        &["control.bandwidth_step_bytes_per_s: must be from 1e6 to 1e14 bytes/s, is 0.1"],
    ),
    ("nodes = [0, 1]", "@nodes = [0, 7]", &["link[0].nodes: there is no node 7"]),
    (
        "nodes = [0, 1]",
        "nodes = [0, 2]",
        &[
            "route[0]: no link carries accesses from node 1 to node 0",
            "link: links join all nodes, but none leads from node 0 to node 1",
            "link: links join all nodes, but none leads from node 1 to node 0,2",
            "link: links join all nodes, but none leads from node 2 to node 1",
        ],
    ),
    ("via = [0]", "via = [7]", &["route[0]: there is no node 7"]),
    ("via = [0]", "via = []", &["route[0]: no link carries accesses from node 1 to node 2"]),
    ("via = [0]", "via = [0, 1]", &["route[0]: a route passes each node once"]),
    (
        "[[route]]",
        "[[route]]\nfrom = 1\nto = 2\nvia = [0]\n\n[[route]]",
        &["route[1]: there is one route from node 1 to node 2"],
    ),
    ("20e9\nsource = \"board\"", "20e9\n@source = \"bord\"", &["link[0].source: `bord` is not declared in [sources]"]),
    (
        "source = { latency_ns =",
        "source = { latencyns =",
        &[
            "cache[0].source: `latencyns` is not a number of this table; level, size_bytes, ways, line_bytes, latency_ns are, and *",
        ],
    ),
];

#[test]
fn mistakes_name_file_line_field_and_rule() {
    for (part, wrong, expected) in WRONG {
        let example = example();
        assert!(example.contains(part), "the example lacks {part}");
        let marked = example.replacen(part, wrong, 1);
        let line = marked
            .split_once('@')
            .map(|(before, _)| before.lines().count().max(1) + usize::from(before.ends_with('\n')));
        let text = marked.replacen('@', "", 1);
        let found = mistakes(&text);
        let shown: Vec<String> = found.iter().map(|m| format!("{}: {}", m.field, m.rule)).collect();
        assert_eq!(found.len(), expected.len(), "{wrong}: {shown:#?}");
        for (shown, expected) in shown.iter().zip(*expected) {
            assert!(shown.starts_with(expected), "{wrong}:\n{shown}\n{expected}");
        }
        assert_eq!(line.unwrap_or(found[0].line), found[0].line, "{wrong}: {shown:#?}");
    }
}

#[test]
fn control_is_by_level_3_caches_whose_ways_fit_a_mask() {
    let with = example().replacen("[latency]", "[control]\nclasses = 4\nleast_ways = 1\n[latency]", 1);
    for (part, wrong, rule) in [
        ("ways = 16", "ways = 16", None),
        ("ways = 16", "ways = 0", Some("needs caches of level 3 with 1 to 64 ways, not 0")),
        ("ways = 16", "ways = 128", Some("needs caches of level 3 with 1 to 64 ways, not 128")),
        (
            "level = 3",
            "level = 2",
            Some("needs caches of level 3 and none above: masks and limits are by such a cache"),
        ),
    ] {
        let text = with.replacen(part, wrong, 1);
        let machine = Machine::from_toml(&text, Path::new("my.toml"));
        let Some(rule) = rule else {
            assert_eq!(machine.unwrap().controlled_ways(), Some(16));
            continue;
        };
        assert_eq!(mistakes(&text).iter().map(|mistake| mistake.rule.as_str()).collect::<Vec<_>>(), [rule]);
    }
}

#[test]
fn a_mistake_reads_as_compilers_write_them() {
    let text = "name = \"x\"\n\n[[node]]\nid = 0\nmemory_bytes = 0\n\n[[node]]\nid = 1\nmemory_bytes = 0\nbandwidth_bytes_per_s = 1\n";
    let error = Machine::from_toml(text, Path::new("my.toml")).unwrap_err().to_string();
    assert_eq!(
        error,
        "my.toml:3: node: some node has memory, but every memory_bytes is 0\n\
         my.toml:10: node[1].bandwidth_bytes_per_s: must be from 1e6 to 1e14 bytes/s, is 1"
    );
    let error = Machine::from_toml("name = \"x\"\nnode = []\n", Path::new("my.toml")).unwrap_err().to_string();
    assert_eq!(error, "my.toml:2: node: a machine has at least one node");
}

#[test]
fn very_many_mistakes_are_counted() {
    let text = format!("name = \"x\"\n{}", "[[node]]\nid = 1\nmemory_bytes = 1\n".repeat(100));
    let error = Machine::from_toml(&text, Path::new("my.toml")).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 21);
    assert!(error.to_string().ends_with("and 79 more"));
}

#[test]
fn of_a_wrong_matrix_the_first_values_are_named() {
    let row = "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]";
    let text = format!("name = \"x\"\n[[node]]\nid = 0\nmemory_bytes = 1\n[latency]\nmatrix_ns = [{row}]\n");
    let error = Machine::from_toml(&text, Path::new("my.toml")).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[9], "my.toml:6: latency.matrix_ns[0][9]: must be from 0.01 to 1e7 ns, is 0");
    assert_eq!(lines[10], "my.toml:6: latency.matrix_ns: 2 more of its values must be from 0.01 to 1e7 ns");
    assert_eq!(lines.len(), 12, "the matrix is not square either: {error}");
}

#[test]
fn a_number_without_source_is_named() {
    let text = example().replacen("20e9\nsource = \"board\"", "20e9", 1).replacen(", \"*\" = \"guide\"", "", 1);
    let machine = Machine::from_toml(&text, Path::new("my.toml")).unwrap();
    let missing: Vec<String> = machine.missing_sources().into_iter().map(|violation| violation.field).collect();
    assert_eq!(
        missing,
        [
            "cache[0].level",
            "cache[0].size_bytes",
            "cache[0].ways",
            "cache[0].line_bytes",
            "link[0].bandwidth_bytes_per_s"
        ]
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".*") {
        let _ = Machine::from_toml(&text, Path::new("any"));
    }

    /// Texts that are nearly machine files: the example with a part cut out and another inserted instead.
    #[test]
    fn a_damaged_machine_file_is_read_or_refused(from in 0_usize..3000, length in 0_usize..60, put in "[\\[\\]{}=\"0-9a-z.,\n# -]{0,12}") {
        let example = example();
        let cut: String = example.chars().enumerate().filter(|(at, _)| *at < from || *at >= from + length).map(|(_, c)| c).collect();
        let at = cut.char_indices().nth(from).map_or(cut.len(), |(at, _)| at);
        let text = format!("{}{put}{}", &cut[..at], &cut[at..]);
        if let Err(error) = Machine::from_toml(&text, Path::new("any")) {
            prop_assert!(error.to_string().starts_with("any:"), "{}", error);
        }
    }
}
