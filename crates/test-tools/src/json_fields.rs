//! The fields of JSON output, and docs/json.md, which has all of them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The types at each path, such as `advice[].gain.speedup`.
type Fields = BTreeMap<String, BTreeSet<&'static str>>;

/// Objects whose keys are data, as those with numbers for keys are.
const MAPS: [&str; 4] = ["sources", "source", "failed", "events"];

/// Tests that write the page do so one at a time.
static PAGE: Mutex<()> = Mutex::new(());

fn add(fields: &mut Fields, path: &str, value: &Value) {
    let (kind, is_map) = match value {
        Value::Null => ("null", false),
        Value::Bool(_) => ("boolean", false),
        Value::Number(_) => ("number", false),
        Value::String(_) => ("string", false),
        Value::Array(items) => {
            for item in items {
                add(fields, &format!("{path}[]"), item);
            }
            ("array", false)
        }
        Value::Object(members) => {
            let name = path.rsplit(['.', ']']).next().unwrap_or_default();
            let is_map =
                MAPS.contains(&name) || members.keys().any(|key| key.starts_with(|c: char| c.is_ascii_digit()));
            for (key, value) in members {
                let key = if is_map { "*" } else { key };
                add(fields, &if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }, value);
            }
            (if is_map { "map" } else { "object" }, is_map)
        }
    };
    if !path.is_empty() && (kind != "object" || is_map) {
        fields.entry(path.to_owned()).or_default().insert(kind);
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// The parts of the page: the command of each, and its fields.
fn documented(text: &str) -> BTreeMap<String, Fields> {
    let mut parts: BTreeMap<String, Fields> = BTreeMap::new();
    let mut title = None;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')) {
            title = Some(command.to_owned());
            parts.entry(command.to_owned()).or_default();
        } else if let (Some(title), Some((path, kinds))) = (&title, line.split_once("  ")) {
            let all = ["null", "boolean", "number", "string", "array", "map"];
            let of = |kind: &str| all.into_iter().find(|known| *known == kind).unwrap_or_else(|| panic!("{line}"));
            let kinds = kinds.trim().split(" or ").map(of).collect();
            parts.get_mut(title).expect("a title before its fields").insert(path.to_owned(), kinds);
        }
    }
    parts
}

fn written(parts: &BTreeMap<String, Fields>) -> String {
    let mut text = String::new();
    for (title, fields) in parts {
        let width = fields.keys().map(String::len).max().unwrap_or(0);
        let _ = writeln!(text, "### `{title}`\n\n```");
        for (path, kinds) in fields {
            let kinds: Vec<&str> = kinds.iter().copied().collect();
            let _ = writeln!(text, "{path:width$}  {}", kinds.join(" or "));
        }
        let _ = writeln!(text, "```\n");
    }
    text.trim_end().to_owned() + "\n"
}

/// Asserts that docs/json.md has every field of what a command printed, and the version of its schema.
/// `NEARSIDE_WRITE_DOCS=1` adds those that it lacks.
///
/// # Panics
///
/// If a field is not in the page, or the page cannot be read.
pub fn assert_documented<'a>(command: &str, values: impl IntoIterator<Item = &'a Value>) {
    let mut found = Fields::new();
    for value in values {
        assert_eq!(value["schema"], 1, "{command}: {value:#}");
        add(&mut found, "", value);
    }
    assert!(!found.is_empty(), "{command}: no output");
    let _one_at_a_time = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(page()).expect("docs/json.md is read");
    let mut documented = documented(&text);
    let as_written = written(&documented);
    let known = documented.entry(command.to_owned()).or_default();
    let mut missing = Vec::new();
    for (path, kinds) in found {
        let all = known.entry(path.clone()).or_default();
        // What another host does not know is no other field.
        let is_told = |kind: &&&str| **kind != "null" && *all != BTreeSet::from(["null"]);
        missing.extend(kinds.difference(all).filter(is_told).map(|kind| format!("{path}: {kind}")));
        all.extend(kinds);
    }
    if std::env::var_os("NEARSIDE_WRITE_DOCS").is_some() {
        let (before, _) = text.split_once("\n### ").unwrap_or((&text, ""));
        let page_text = format!("{}\n\n{}", before.trim_end(), written(&documented));
        fs::write(page(), page_text).expect("docs/json.md is written");
        return;
    }
    assert!(missing.is_empty(), "docs/json.md, {command}, lacks: {missing:#?}");
    assert!(text.ends_with(&as_written), "docs/json.md is not as it is written");
}
