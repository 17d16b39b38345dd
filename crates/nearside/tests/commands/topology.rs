//! `nearside topology` as its users run it.

use assert_cmd::Command;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn nearside(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nearside").unwrap();
    command.current_dir(root()).args(arguments);
    command
}

/// Its output on success.
fn printed(arguments: &[&str]) -> String {
    let assert = nearside(arguments).assert().success().stderr("");
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Its error when it fails with this code.
fn refused(code: i32, arguments: &[&str]) -> String {
    let assert = nearside(arguments).assert().code(code).stdout("");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

fn topology(from: &str, format: &str) -> String {
    printed(&["topology", "--from", from, "--format", format])
}

fn json(from: &str) -> serde_json::Value {
    serde_json::from_str(&topology(from, "json")).unwrap()
}

const FIXTURES: &str = "crates/machine/tests/fixtures";

#[test]
fn a_preset_as_text() {
    insta::assert_snapshot!(topology("opteron-8380x4", "text"));
}

#[test]
fn a_preset_with_its_sources() {
    insta::assert_snapshot!(printed(&["topology", "--from", "small-2x2", "--sources"]));
}

#[test]
fn a_preset_as_json() {
    insta::assert_snapshot!(topology("small-2x2", "json"));
}

#[test]
fn a_preset_as_a_picture() {
    insta::assert_snapshot!(topology("small-2x2", "svg"));
}

#[test]
fn a_saved_sysfs_tree_with_a_node_of_memory_only() {
    insta::assert_snapshot!(topology(&format!("{FIXTURES}/3-nodes-16-cpus-smt-offline-memory-only"), "text"));
}

#[test]
fn the_picture_of_the_readme_is_current() {
    let kept = fs::read_to_string(root().join("docs/opteron-8380x4.svg")).unwrap();
    let drawn = topology("opteron-8380x4", "svg");
    assert!(
        kept == drawn,
        "run: nearside topology --from opteron-8380x4 --format svg --output docs/opteron-8380x4.svg"
    );
}

#[test]
fn the_transcripts_of_the_manual_are_real() {
    let manual = fs::read_to_string(root().join("docs/topology.md")).unwrap();
    let blocks: Vec<&str> = manual.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2, "the manual shows what users see");
    for block in blocks {
        let (command, shown) = block.split_once('\n').unwrap();
        let arguments: Vec<&str> = command.strip_prefix("$ nearside ").unwrap().split_whitespace().collect();
        let output = nearside(&arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert_eq!(String::from_utf8(said).unwrap(), shown, "{command}");
    }
}

#[test]
fn this_host_has_a_node_with_cpus() {
    let host: serde_json::Value = serde_json::from_str(&printed(&["topology", "--json"])).unwrap();
    assert!(
        host["derived"]["node_count"].as_u64() >= Some(1) && host["derived"]["cpu_count"].as_u64() >= Some(1),
        "{host}"
    );
}

#[test]
fn content_decides_what_a_path_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Neither name says what the file contains.
    fs::write(path("a.toml"), topology("small-4x2", "hwloc-xml")).unwrap();
    fs::write(path("b.xml"), topology("small-4x2", "toml")).unwrap();
    assert_eq!(json(&path("a.toml"))["derived"]["node_count"], 4);
    assert_eq!(json(&path("b.xml")), json("small-4x2"));

    for (fixture, nodes) in [
        ("8-nodes-48-cpus-no-slit", 8),
        ("8-nodes-48-cpus-no-slit/sys", 8),
        ("acpi/4-nodes-6-cpus-hmat", 4),
        ("hwloc/2-packages-4-nodes-8-l3-smt.xml", 4),
        ("odd.toml", 4),
    ] {
        assert_eq!(json(&format!("{FIXTURES}/{fixture}"))["derived"]["node_count"], nodes, "{fixture}");
    }
}

#[test]
fn a_presets_name_is_the_preset_and_a_path_is_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small-2x2"), topology("small-8x2", "toml")).unwrap();
    let nodes = |from: &str| {
        let output = nearside(&["topology", "--json", "--from", from]).current_dir(folder.path()).assert().success();
        let machine: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
        machine["derived"]["node_count"].as_u64()
    };
    assert_eq!((nodes("small-2x2"), nodes("./small-2x2")), (Some(2), Some(8)));
}

#[test]
fn json_has_what_follows_from_the_description() {
    let derived = &json("opteron-8380x4")["derived"];
    assert_eq!(derived["core_count"], 16);
    assert_eq!(derived["memory_bytes"], 32_u64 << 30);
    assert_eq!(derived["hops"], serde_json::json!([[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]]));
    assert_eq!(derived["latency_ns"][0], serde_json::json!([104.4, 114.4, 114.4, 150.8]));
    assert_eq!(derived["nodes"][1], serde_json::json!({"id": 1, "cores": ["4", "5", "6", "7"], "packages": "1"}));
}

#[test]
fn output_goes_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.svg");
    assert_eq!(
        printed(&["topology", "--from", "small-2x2", "--format", "svg", "--output", file.to_str().unwrap()]),
        ""
    );
    assert_eq!(fs::read_to_string(file).unwrap(), topology("small-2x2", "svg"));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let command =
        format!("{} topology --from small-8x2 --json | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_nearside"));
    Command::new("bash").args(["-c", &command]).assert().success().stderr("");
}

#[test]
fn a_full_disk_is_a_failure() {
    let full = refused(1, &["topology", "--from", "small-2x2", "--output", "/dev/full"]);
    assert_eq!(full, "nearside: cannot write to /dev/full: the disk is full\n");
    let help = format!("{} --help > /dev/full", env!("CARGO_BIN_EXE_nearside"));
    let said = "nearside: cannot write to standard output: the disk is full\n";
    Command::new("sh").args(["-c", &help]).assert().code(1).stderr(said);
}

#[test]
fn half_of_a_new_file_is_not_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine");
    let limited = format!(
        "ulimit -f 1; exec {} topology --from small-2x2 --json --output {}",
        env!("CARGO_BIN_EXE_nearside"),
        file.display()
    );
    let said = format!("nearside: cannot write to {}: ", file.display());
    let ended = Command::new("bash").args(["-c", &limited]).assert().code(1);
    assert!(String::from_utf8_lossy(&ended.get_output().stderr).starts_with(&said));
    assert!(!file.exists());
}

#[test]
fn what_names_no_machine_is_reported_with_everything_that_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("table");
    fs::write(&binary, b"SRAT\x00\xff\x01").unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let said =
        |from: &str| refused(1, &["topology", "--from", from]).replace(folder.path().to_str().unwrap(), "FOLDER");
    let all =
        ["opteron-8380x5", "nothing/like/it", empty.to_str().unwrap(), binary.to_str().unwrap()].map(said).concat();
    insta::assert_snapshot!(all);
}

#[test]
fn mistakes_in_files_have_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        refused(1, &["topology", "--from", path.to_str().unwrap()]).replace(folder.path().to_str().unwrap(), "FOLDER")
    };
    let good = topology("small-2x2", "toml");
    let broken = said("broken.toml", "name = \"x\"\n[[node]\n");
    let wrong_type = said("type.toml", &good.replacen("line_bytes = 64", "line_bytes = \"wide\"", 1));
    let rule = said("rule.toml", &good.replacen("nodes = [0, 1]", "nodes = [0, 7]", 1));
    let xml = said("x.xml", "<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n  <object type=\"Machine\"\n");
    insta::assert_snapshot!([broken, wrong_type, rule, xml].concat());
}

#[test]
fn a_wrong_command_line_is_distinguished() {
    assert!(refused(2, &["topology", "--format", "png"]).contains("possible values"));
    assert!(refused(2, &["topology", "--json", "--format", "svg"]).contains("cannot be used with"));
    assert!(refused(2, &["topologie"]).contains("topology"));
}

#[test]
fn a_machine_of_1024_nodes_and_8192_cpus_stays_readable() {
    use std::fmt::Write;
    let mut file = String::from("name = \"large\"\n");
    for node in 0..1024 {
        writeln!(file, "[[node]]\nid = {node}\ncpus = \"{}-{}\"\nmemory_bytes = \"16 GiB\"", 8 * node, 8 * node + 7)
            .unwrap();
    }
    file += "[[cache]]\nlevel = 2\nkind = \"unified\"\nsize_bytes = \"1 MiB\"\nline_bytes = 64\nshared_by = \"core\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.toml");
    fs::write(&path, file).unwrap();
    insta::assert_snapshot!(topology(path.to_str().unwrap(), "text"));
    assert!(topology(path.to_str().unwrap(), "svg").len() < 100_000);
}
