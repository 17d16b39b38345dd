//! docs/json.md has every field of the JSON output. `NEARSIDE_WRITE_DOCS=1` adds those that it lacks.

use crate::report::{nearside, written};
use crate::traces;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The types at each path, such as `advice[].gain.speedup`.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// Objects whose keys are data, as those with numbers for keys are.
const MAPS: [&str; 4] = ["sources", "source", "failed", "events"];

fn add(shape: &mut Shape, path: &str, value: &Value) {
    let (kind, is_map) = match value {
        Value::Null => ("null", false),
        Value::Bool(_) => ("boolean", false),
        Value::Number(_) => ("number", false),
        Value::String(_) => ("string", false),
        Value::Array(items) => {
            for item in items {
                add(shape, &format!("{path}[]"), item);
            }
            ("array", false)
        }
        Value::Object(fields) => {
            let name = path.rsplit(['.', ']']).next().unwrap_or_default();
            let is_map = MAPS.contains(&name) || fields.keys().any(|key| key.starts_with(|c: char| c.is_ascii_digit()));
            for (key, value) in fields {
                let key = if is_map { "*" } else { key };
                add(shape, &if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }, value);
            }
            (if is_map { "map" } else { "object" }, is_map)
        }
    };
    if !path.is_empty() && (kind != "object" || is_map) {
        shape.entry(path.to_owned()).or_default().insert(kind);
    }
}

/// The shape of all values that a command prints; it may end with any code that its help lists.
fn shape(arguments: &[&str]) -> Shape {
    let output = assert_cmd::Command::cargo_bin("nearside").unwrap().args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found = Shape::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let value = value.unwrap_or_else(|why| panic!("{arguments:?}: {why}: {text}"));
        assert_eq!(value["schema"], 1, "{arguments:?}: {text}");
        add(&mut found, "", &value);
    }
    assert!(!found.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    found
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// The parts of the page: the title of each, and its fields.
fn documented(text: &str) -> BTreeMap<String, Shape> {
    let mut parts: BTreeMap<String, Shape> = BTreeMap::new();
    let mut title = None;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')) {
            title = Some(command.to_owned());
            parts.entry(command.to_owned()).or_default();
        } else if let (Some(title), Some((path, kinds))) = (&title, line.split_once("  ")) {
            let all = ["null", "boolean", "number", "string", "array", "map"];
            let of = |kind: &str| all.into_iter().find(|known| *known == kind).unwrap_or_else(|| panic!("{line}"));
            let kinds = kinds.trim().split(" or ").map(of).collect();
            parts.get_mut(title).unwrap().insert(path.to_owned(), kinds);
        }
    }
    parts
}

fn written_out(parts: &BTreeMap<String, Shape>) -> String {
    let mut text = String::new();
    for (title, shape) in parts {
        let width = shape.keys().map(String::len).max().unwrap_or(0);
        let _ = writeln!(text, "### `{title}`\n\n```");
        for (path, kinds) in shape {
            let kinds: Vec<&str> = kinds.iter().copied().collect();
            let _ = writeln!(text, "{path:width$}  {}", kinds.join(" or "));
        }
        let _ = writeln!(text, "```\n");
    }
    text.trim_end().to_owned() + "\n"
}

/// What the commands print, by the title of their part.
fn observed() -> BTreeMap<String, Shape> {
    let (_first, before) = written(traces::face_recognition());
    let (_second, after) = written(traces::stream_clustering());
    let object = nearside(&["report", &before, "--json"]);
    let object: Value = serde_json::from_str(&object.out).unwrap();
    let object = object["objects"]["first"][0]["object"].to_string();
    let own = std::process::id().to_string();
    let commands = [
        ("report TRACE", vec!["report", &before, "--json"]),
        ("report TRACE", vec!["report", &after, "--json"]),
        ("report TRACE --object OBJECT", vec!["report", &before, "--object", &object, "--json"]),
        ("diff A B", vec!["diff", &before, &after, "--json"]),
        ("hugepages find TRACE --json -", vec!["hugepages", "find", &before, "--json", "-"]),
        ("assert TRACE", vec!["assert", "--local", "95%", &before, "--json"]),
        ("lab list", vec!["lab", "list", "--json"]),
        ("topology", vec!["topology", "--from", "opteron-6164x2", "--json"]),
        ("topology", vec!["topology", "--from", "xeon-6130x2", "--json"]),
        ("reserve check", vec!["reserve", "check", "--machine", "magny-cours-4p", "--cores", "1", "--json"]),
        ("reserve check", vec!["reserve", "check", "--machine", "magny-cours-4p", "--cores", "60", "--json"]),
        ("reserve facts", vec!["reserve", "facts", "--machine", "magny-cours-4p", "--format", "json"]),
        ("doctor", vec!["doctor", "--json"]),
        ("show", vec!["show", "--json"]),
        ("show PID", vec!["show", &own, "--json"]),
        ("memory", vec!["memory", "--json"]),
        ("pages PID", vec!["pages", &own, "--json"]),
    ];
    let mut all: BTreeMap<String, Shape> = BTreeMap::new();
    for (title, arguments) in commands {
        for (path, kinds) in shape(&arguments) {
            all.entry(title.to_owned()).or_default().entry(path).or_default().extend(kinds);
        }
    }
    all
}

#[test]
fn every_field_is_documented() {
    let text = fs::read_to_string(page()).unwrap();
    let mut documented = documented(&text);
    let as_written = written_out(&documented);
    let mut missing = Vec::new();
    for (title, shape) in observed() {
        let known = documented.entry(title.clone()).or_default();
        for (path, kinds) in shape {
            let all = known.entry(path.clone()).or_default();
            // What another host does not know is no other field.
            let is_told = |kind: &&&str| **kind != "null" && *all != BTreeSet::from(["null"]);
            missing.extend(kinds.difference(all).filter(is_told).map(|kind| format!("{title}: {path}: {kind}")));
            all.extend(kinds);
        }
    }
    if std::env::var_os("NEARSIDE_WRITE_DOCS").is_some() {
        let (before, _) = text.split_once("\n### ").unwrap_or((&text, ""));
        fs::write(page(), format!("{}\n\n{}", before.trim_end(), written_out(&documented))).unwrap();
        return;
    }
    assert!(missing.is_empty(), "docs/json.md lacks: {missing:#?}");
    assert!(text.ends_with(&as_written), "docs/json.md is not as it is written");
}
