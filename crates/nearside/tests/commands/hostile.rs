//! Names that others have chosen: what a terminal would obey, what is no UTF-8, and what is very long.

use assert_cmd::Command;
use saved_files::SavedFiles;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Output;

/// A colour by ESC and by the one-character CSI, text from right to left, a bell; and characters of two columns.
const HOSTILE: &str = "\u{1b}[31m\u{9b}32m\u{202e}\u{7}数据";
/// What is left of it.
const PLAIN: &str = "?[31m?32m??数据";
/// Longest output about a long name, bytes: the name in messages is 3,000 characters at most; usage follows.
const LONGEST: usize = 4096;

fn nearside<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap()
}

/// Its output and errors, neither of which may have a character that a terminal obeys.
fn said(output: &Output) -> String {
    let text = String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap();
    let obeyed =
        |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(obeyed), "{text:?}");
    assert!(output.status.code().is_some_and(|code| code != 101), "{text}");
    text
}

/// Command lines in which NAME stands for something that does not exist.
const MESSAGES: [&str; 21] = [
    "topology --from NAME",
    "lab run --machine NAME -- true",
    "lab show NAME",
    "lab record --machine NAME -- true",
    "report NAME",
    "diff NAME other",
    "export NAME --parquet file",
    "assert --local 95% NAME",
    "hugepages find NAME",
    "run --membind NAME true",
    "run -- /no/NAME",
    "show NAME",
    "pages NAME",
    "bind NAME --cpus 0",
    "migrate 1 --to NAME",
    "compare --policies NAME -- true",
    "compare --machine NAME -- true",
    "explore NAME",
    "replay NAME",
    "reserve check --machine NAME",
    "NAME",
];

#[test]
fn messages_cannot_change_a_terminal() {
    for line in MESSAGES {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("NAME", HOSTILE)).collect();
        let output = nearside(&words);
        assert!(!output.status.success(), "{line}");
        // clap leaves whole escape sequences out.
        assert!(said(&output).contains("数据"), "{line}: {}", said(&output));
    }
}

#[test]
fn messages_about_long_names_are_short() {
    let long = "x".repeat(10_000);
    for line in MESSAGES {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("NAME", &long)).collect();
        let output = nearside(&words);
        let said = said(&output);
        assert!(!output.status.success() && said.len() <= LONGEST, "{line}: {} bytes", said.len());
    }
}

#[test]
fn names_that_are_no_utf8_are_names_or_refused() {
    for line in MESSAGES {
        let words = line.split(' ').map(|word| OsString::from(OsStr::from_bytes(&replaced(word.as_bytes()))));
        let output = nearside(&words.collect::<Vec<_>>());
        assert!(!output.status.success(), "{line}");
        assert!(!said(&output).is_empty(), "{line}");
    }
    // As a program's argument it arrives unchanged.
    let echo: [&OsStr; 4] = ["run", "--localalloc", "echo", ""].map(OsStr::new);
    let output = nearside(&[&echo[..3], &[OsStr::from_bytes(b"a\xff\xfe")]].concat());
    assert_eq!(output.stdout, b"a\xff\xfe\n");
}

fn replaced(word: &[u8]) -> Vec<u8> {
    let at = word.windows(4).position(|part| part == b"NAME");
    at.map_or_else(|| word.to_vec(), |at| [&word[..at], b"a\xff\xfeb", &word[at + 4..]].concat())
}

/// A saved system with hostile names wherever it has names.
fn system() -> SavedFiles {
    let system = SavedFiles::new();
    system.put("sys/devices/system/node/online", "0\n");
    system.put("sys/devices/system/cpu/online", "0\n");
    system.put("sys/devices/system/node/node0/cpulist", "0\n");
    system.put("sys/devices/system/node/node0/distance", "10\n");
    system.put("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1048576 kB\n");
    let device = format!("sys/bus/pci/devices/{HOSTILE}");
    system.put(&format!("{device}/class"), "0x020000\n");
    system.put(&format!("{device}/numa_node"), "0\n");
    system.put(&format!("{device}/net/{HOSTILE}/mtu"), "1500\n");
    system.put("proc/cpuinfo", &format!("processor\t: 0\nmodel name\t: {HOSTILE}\n"));
    let status = format!(
        "Name:\t{HOSTILE}\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nVmSize:\t1 kB\nCpus_allowed_list:\t0\nMems_allowed_list:\t0\n"
    );
    system.put("proc/7/status", &status);
    system.put("proc/7/cgroup", &format!("0::/{HOSTILE}\n"));
    let smaps = include_str!("fixtures/mixed-page-sizes/smaps").replace("[heap]", &format!("/tmp/{HOSTILE}"));
    system.put("proc/7/smaps", &smaps);
    system.put("proc/7/numa_maps", include_str!("fixtures/mixed-page-sizes/numa_maps"));
    system.put("proc/7/task/7/status", &status);
    system.put("proc/7/task/7/stat", &format!("7 (x) S {}2 0", "0 ".repeat(35)));
    system.put("proc/7/task/7/numa_maps", include_str!("fixtures/mixed-page-sizes/numa_maps"));
    system
}

#[test]
fn saved_systems_cannot_change_a_terminal() {
    let system = system();
    let root = system.path().to_str().unwrap();
    for line in ["topology --from ROOT", "topology --from ROOT --format svg", "show --root ROOT 7", "show --root ROOT"]
    {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "ROOT" { root } else { word }).collect();
        let output = nearside(&words);
        assert!(output.status.success(), "{line}: {}", said(&output));
        assert!(said(&output).contains("数据"), "{line}: {}", said(&output));
    }
    let judged = said(&nearside(&["doctor", "--devices", "--root", root]));
    assert!(judged.contains(PLAIN), "{judged}");

    // JSON means the same, in characters that no terminal obeys.
    let json = said(&nearside(&["topology", "--from", root, "--json"]));
    let machine: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(machine["devices"][0]["names"][0], HOSTILE);
    assert_eq!(machine["devices"][0]["address"], HOSTILE);
    let shown: Value = serde_json::from_str(&said(&nearside(&["show", "--root", root, "--json", "7"]))).unwrap();
    assert_eq!(shown["pid"], 7);

    // What is damaged is reported with its text.
    system.put("sys/devices/system/node/node0/cpulist", &format!("0 {HOSTILE}"));
    let refused = nearside(&["topology", "--from", root]);
    assert!(!refused.status.success() && said(&refused).contains(PLAIN), "{}", said(&refused));
}
