//! Machine files: the description as TOML, with errors that name file, line, field and rule.

use crate::bounded::{self, TooLong};
use crate::description::Machine;
use crate::nearest::{did_you_mean, nearest};
use crate::presets;
use crate::violation::{Violation, lines};
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why no machine could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("cannot read the machine file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file was read, but does not describe a valid machine.
    #[error("{}", lines(.0))]
    Mistakes(Vec<Mistake>),
    /// No preset has this name.
    #[error(
        "there is no preset `{name}`{}; a machine file of your own is given as a path with a `/` or ending in .toml{}",
        did_you_mean(*.nearest), presets::list(all)
    )]
    UnknownPreset {
        /// The requested name.
        name: String,
        /// The preset with the most similar name, if any is similar.
        nearest: Option<&'static str>,
        /// All presets.
        all: Vec<&'static str>,
    },
    /// The description cannot be written as TOML.
    #[error("the machine cannot be written as TOML")]
    Write(#[from] toml::ser::Error),
}

/// One mistake in a machine file, or in another TOML file that people write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The field, such as `node[2].memory_bytes` (the third `[[node]]`); empty if the text is not TOML.
    pub field: String,
    /// The rule, and the actual value.
    pub rule: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.rule)
    }
}

impl Machine {
    /// Reads and checks a machine file.
    pub fn load(path: &Path) -> Result<Self, MachineError> {
        let text = bounded::text(path).map_err(|source| MachineError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text, path)
    }

    /// Parses and checks the text of a machine file. `file_name` is for errors only.
    pub fn from_toml(text: &str, file_name: &Path) -> Result<Self, MachineError> {
        read_checked(text, file_name, Self::validate).map_err(MachineError::Mistakes)
    }

    /// Writes a machine file.
    pub fn to_toml(&self) -> Result<String, MachineError> {
        Ok(toml::to_string(self)?)
    }
}

/// Longest text of a TOML file, bytes: parsed, it takes 60 times as much. A machine of 64 nodes and 512 CPUs has 100 KB.
const MOST_BYTES: u64 = 8 << 20;

/// Parses the text of any TOML file into its type, and locates the violations that `check` finds in it. `file_name` is
/// for errors only.
pub fn read_checked<T: DeserializeOwned>(
    text: &str,
    file_name: &Path,
    check: impl FnOnce(&T) -> Vec<Violation>,
) -> Result<T, Vec<Mistake>> {
    let line_ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let mistake = |offset: usize, field: String, rule: String| Mistake {
        file: file_name.to_owned(),
        line: 1 + line_ends.partition_point(|&end| end < offset),
        field,
        rule,
    };
    if text.len() as u64 > MOST_BYTES {
        return Err(vec![mistake(0, String::new(), TooLong(MOST_BYTES).to_string())]);
    }
    let value: T = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        vec![mistake(span.start, field_around(text, &span), with_nearest(&in_words(error.message())))]
    })?;
    let violations = check(&value);
    if violations.is_empty() {
        return Ok(value);
    }
    // The text is valid TOML, so this finds every place; otherwise mistakes would be reported at the first line.
    let root = DeTable::parse(text).unwrap_or_else(|_| Spanned::new(0..0, DeTable::new()));
    let at = |Violation { field, rule }| mistake(offset_of(&root, &field), field, rule);
    Err(violations.into_iter().map(at).collect())
}

/// serde's message with the types of TOML instead of those of Rust.
fn in_words(message: &str) -> String {
    let Some((wrong, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let words = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "a nonzero u32" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "path string" => "a path in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("an array ") || expected.starts_with("a tuple ") => "a list",
        _ => expected,
    };
    format!("{wrong}expected {words}")
}

/// Adds the most similar allowed name to serde's message about an unknown key or value.
fn with_nearest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.starts_with("unknown "));
    match unknown.and_then(|unknown| Some((unknown, nearest(unknown, quoted)?))) {
        Some((unknown, nearest)) => {
            message.replacen(&format!("`{unknown}`"), &format!("`{unknown}` (did you mean `{nearest}`?)"), 1)
        }
        None => message.to_owned(),
    }
}

/// Where a field such as `node[2].memory_bytes` begins; if it is missing, the innermost table around it.
fn offset_of(root: &Spanned<DeTable<'_>>, field: &str) -> usize {
    let mut steps = field.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let Some((_, mut value)) = steps.next().and_then(|step| root.get_ref().get_key_value(step)) else {
        return root.span().start;
    };
    for step in steps {
        let inner = match value.get_ref() {
            DeValue::Array(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
            DeValue::Table(table) => table.get(step),
            _ => None,
        };
        match inner {
            Some(inner) => value = inner,
            None => break,
        }
    }
    value.span().start
}

/// The field whose key or value has this text in it, the shortest one; none for what is missing in the file itself, whose text is empty.
fn field_around(text: &str, inner: &Range<usize>) -> String {
    let Some(root) = DeTable::parse(text).ok().filter(|_| !inner.is_empty()) else { return String::new() };
    let mut best = (usize::MAX, String::new());
    each_in_table(root.get_ref(), "", &mut |span, field| {
        if span.start <= inner.start && inner.end <= span.end && span.len() < best.0 {
            best = (span.len(), field.to_owned());
        }
    });
    best.1
}

fn each_in_table(table: &DeTable<'_>, path: &str, visit: &mut impl FnMut(Range<usize>, &str)) {
    for (key, value) in table {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", key.get_ref());
        visit(key.span(), &path);
        each_in_value(value, &path, visit);
    }
}

fn each_in_value(value: &Spanned<DeValue<'_>>, path: &str, visit: &mut impl FnMut(Range<usize>, &str)) {
    visit(value.span(), path);
    match value.get_ref() {
        DeValue::Table(table) => each_in_table(table, path, visit),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                each_in_value(item, &format!("{path}[{index}]"), visit);
            }
        }
        _ => {}
    }
}
