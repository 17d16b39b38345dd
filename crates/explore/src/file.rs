//! Experiment files: TOML. Errors name the file, line, field and rule.
//!
//! Tables are abbreviated: `{word}` in a text stands for an entry of `[fragments]` or for a value in a row of `each`.
//! An experiment with rows becomes one experiment per row.

use crate::experiment::{Boot, Comparison, Contradiction, Experiment, Figure, Known, Reading, Suite, Thp, Value};
use crate::extract::Curve;
use crate::tolerance::Within;
use machine::{Mistake, Violation, bounded, chain, presets, read_checked, size};
use serde::{Deserialize, Deserializer, de};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of experiments cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("cannot read the experiments in {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has mistakes.
    #[error("{}", .0.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    about: String,
    sources: BTreeMap<String, String>,
    #[serde(default)]
    fragments: BTreeMap<String, String>,
    #[serde(default)]
    experiment: Vec<Table>,
    #[serde(default)]
    contradiction: Vec<Note>,
}

/// An experiment as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    preset: String,
    #[serde(default, deserialize_with = "size_text")]
    memory_per_node: Option<u64>,
    cpus_per_node: Option<u32>,
    thp: Option<Thp>,
    quantity: String,
    #[serde(default)]
    unit: String,
    command: Option<String>,
    /// In place of `command`: the value is the number of commands up to the first that comes near the largest figure.
    saturate: Option<Vec<String>>,
    figure: Option<String>,
    report: Option<String>,
    curve: Option<OnCurve>,
    compare: Option<Compare>,
    /// What to compare with. Omitted fields have the values of those without `against_`.
    against: Option<String>,
    against_figure: Option<String>,
    against_preset: Option<String>,
    #[serde(default = "once")]
    repeats: u32,
    published: Option<f64>,
    within: Within,
    least: Option<f64>,
    source: String,
    #[serde(default)]
    input: bool,
    reason: Option<String>,
    was: Option<f64>,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    each: Vec<Row>,
}

/// A curve, and the position to read. The position is a number, written as text so that it can contain `{words}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnCurve {
    points: String,
    x: String,
    y: String,
    at: String,
}

/// A row of an experiment's table.
#[derive(Clone, Debug, Default, Deserialize)]
struct Row {
    published: Option<f64>,
    least: Option<f64>,
    input: Option<bool>,
    reason: Option<String>,
    was: Option<f64>,
    #[serde(flatten)]
    words: BTreeMap<String, Word>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a string or an integer")]
enum Word {
    Text(String),
    Number(i64),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Compare {
    Ratio,
    Difference,
    Loss,
    Increase,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    text: String,
    source: String,
}

fn once() -> u32 {
    1
}

fn size_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    size::parse(&text).map(Some).map_err(de::Error::custom)
}

impl Suite {
    /// Reads and checks a file of experiments.
    pub fn load(path: &Path) -> Result<Self, ExperimentError> {
        let failed = |source| ExperimentError::Read { path: path.to_owned(), source };
        let text = bounded::text(path).map_err(failed)?;
        Self::from_toml(&text, path)
    }

    /// Parses and checks the text of a file of experiments. The suite is named after the file.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ExperimentError> {
        let check = |file: &File| file.experiments().err().unwrap_or_default();
        let file: File = read_checked(text, path, check).map_err(ExperimentError::Mistakes)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let experiments = file.experiments().unwrap_or_default();
        let note = |note: Note| Contradiction {
            source: file.sources.get(&note.source).cloned().unwrap_or(note.source),
            text: note.text,
        };
        let contradictions = file.contradiction.into_iter().map(note).collect();
        Ok(Self { name, title: file.title, about: file.about, experiments, contradictions })
    }
}

impl File {
    /// The experiments of all tables, or all violated rules.
    fn experiments(&self) -> Result<Vec<Experiment>, Vec<Violation>> {
        let (mut experiments, mut violations) = (Vec::new(), Vec::new());
        let mut used = BTreeSet::new();
        for (index, table) in self.experiment.iter().enumerate() {
            let row = [Row::default()];
            let rows = if table.each.is_empty() { &row[..] } else { &table.each };
            for (number, row) in rows.iter().enumerate() {
                let mut words = Words { fragments: &self.fragments, row: &row.words, used: BTreeSet::new() };
                match table.experiment(row, &self.sources, &mut words) {
                    Ok(experiment) => experiments.push(experiment),
                    Err((field, rule)) => {
                        let field = format!("experiment[{index}].{field}");
                        violations.push(Violation { field, rule });
                    }
                }
                let unused = row.words.keys().filter(|word| !words.used.contains(*word));
                violations.extend(unused.map(|word| Violation {
                    field: format!("experiment[{index}].each[{number}].{word}"),
                    rule: format!("no text of this experiment uses {{{word}}}"),
                }));
                used.extend(words.used);
            }
            used.insert(table.source.clone());
        }
        let unknown = |(index, note): (usize, &Note)| {
            (!self.sources.contains_key(&note.source)).then(|| Violation {
                field: format!("contradiction[{index}].source"),
                rule: format!("`{}` is not declared in [sources]", note.source),
            })
        };
        violations.extend(self.contradiction.iter().enumerate().filter_map(unknown));
        used.extend(self.contradiction.iter().map(|note| note.source.clone()));
        let unused = |table: &'static str, words: &BTreeMap<String, String>| {
            let unused = words.keys().filter(|word| !used.contains(*word));
            let rule = "it is not used";
            unused.map(|word| Violation { field: format!("{table}.{word}"), rule: rule.into() }).collect::<Vec<_>>()
        };
        violations.extend(unused("sources", &self.sources));
        violations.extend(unused("fragments", &self.fragments));
        if violations.is_empty() { Ok(experiments) } else { Err(violations) }
    }
}

/// A field and the rule that it violates.
type Broken = (&'static str, String);

impl Table {
    fn experiment(
        &self,
        row: &Row,
        sources: &BTreeMap<String, String>,
        words: &mut Words<'_>,
    ) -> Result<Experiment, Broken> {
        let quantity = words.fill("quantity", &self.quantity)?;
        let value = self.value(words)?;
        let published = row.published.or(self.published).filter(|number| number.is_finite());
        let published = published.ok_or(("published", "needs a number, here or in each row of `each`".to_owned()))?;
        let source = sources.get(&self.source);
        let source = source.ok_or_else(|| ("source", format!("`{}` is not declared in [sources]", self.source)))?;
        if !(1..=100).contains(&self.repeats) {
            return Err(("repeats", format!("must be from 1 to 100, is {}", self.repeats)));
        }
        if matches!(self.within, Within::Points(_)) && self.unit != "%" {
            return Err(("within", "points are percentage points: the unit must be `%`".into()));
        }
        let least = row.least.or(self.least);
        if least.is_some_and(|least| !least.is_finite() || least > published)
            || least.is_some() && self.within != Within::AtMost
        {
            return Err((
                "least",
                "must be a number, no more than `published`, and needs `within = \"at most\"`".into(),
            ));
        }
        // A reason may be shared by several rows, some of which are not missed.
        let known = match (row.reason.as_ref().or(self.reason.as_ref()), row.was.or(self.was)) {
            (Some(reason), Some(was)) if was.is_finite() => Some(Known { reason: reason.clone(), was }),
            (Some(_), None) if self.reason.is_some() && !self.each.is_empty() => None,
            (None, None) => None,
            _ => {
                return Err((
                    "reason",
                    "needs a number `was`, as measured when the reason was written, and `was` needs a reason".into(),
                ));
            }
        };
        Ok(Experiment {
            name: self.name.clone(),
            quantity,
            unit: self.unit.clone(),
            value,
            repeats: self.repeats,
            published,
            within: self.within,
            least,
            source: source.clone(),
            input: row.input.unwrap_or(self.input),
            known,
            quick: self.quick,
        })
    }

    fn value(&self, words: &mut Words<'_>) -> Result<Value, Broken> {
        let boot = self.boot("preset", &self.preset, words)?;
        let figure = match (&self.figure, &self.report, &self.curve) {
            (Some(text), None, None) => Figure::Printed(pointer("figure", text, words)?),
            (None, Some(text), None) => Figure::Reported(pointer("report", text, words)?),
            (None, None, Some(curve)) => Figure::OnCurve(curve.filled(words)?),
            _ => {
                let rule = "needs one of `figure`, `report` (JSON pointers, such as /mean_ns) and `curve`";
                return Err(("figure", rule.into()));
            }
        };
        let reading = |command: String| Reading { boot: boot.clone(), command, figure: figure.clone() };
        let one = match (&self.command, &self.saturate) {
            (Some(command), None) => reading(words.fill("command", command)?),
            (None, Some(commands)) => {
                if commands.is_empty() || self.compare.is_some() {
                    return Err((
                        "saturate",
                        "needs at least one command, and cannot be combined with `compare`".into(),
                    ));
                }
                let filled: Result<Vec<_>, _> = commands.iter().map(|text| words.fill("saturate", text)).collect();
                return Ok(Value::Saturation(filled?.into_iter().map(reading).collect()));
            }
            _ => return Err(("command", "needs one of `command` and `saturate`".into())),
        };
        let changed = self.against.is_some() || self.against_preset.is_some();
        let comparison = match (self.compare, changed) {
            (None, false) if self.against_figure.is_none() => return Ok(Value::Alone(one)),
            (Some(compare), true) => compare.into(),
            _ => return Err(("compare", "needs `against` or `against_preset`, and they need it".into())),
        };
        let mut other = one.clone();
        if let Some(command) = &self.against {
            other.command = words.fill("against", command)?;
        }
        if let Some(text) = &self.against_figure {
            other.figure = Figure::Printed(pointer("against_figure", text, words)?);
        }
        if let Some(preset) = &self.against_preset {
            other.boot = self.boot("against_preset", preset, words)?;
        }
        Ok(Value::Compared(comparison, one, other))
    }

    fn boot(&self, field: &'static str, preset: &str, words: &mut Words<'_>) -> Result<Boot, Broken> {
        let preset = words.fill(field, preset)?;
        presets::find(&preset).map_err(|error| (field, chain(&error)))?;
        let (memory_per_node, cpus_per_node, thp) = (self.memory_per_node, self.cpus_per_node, self.thp);
        Ok(Boot { preset, memory_per_node, cpus_per_node, thp })
    }
}

impl OnCurve {
    fn filled(&self, words: &mut Words<'_>) -> Result<Curve, Broken> {
        let at = words.fill("curve", &self.at)?;
        let number = at.parse().ok().filter(|at: &f64| at.is_finite());
        let at = number.ok_or_else(|| ("curve", format!("`at` must be a number, is `{at}`")))?;
        let mut pointer = |text| pointer("curve", text, words);
        Ok(Curve { points: pointer(&self.points)?, x: pointer(&self.x)?, y: pointer(&self.y)?, at })
    }
}

fn pointer(field: &'static str, text: &str, words: &mut Words<'_>) -> Result<String, Broken> {
    let pointer = words.fill(field, text)?;
    if pointer.starts_with('/') {
        Ok(pointer)
    } else {
        Err((field, format!("`{pointer}` is not a JSON pointer: these start with /")))
    }
}

/// What a word is that has no value.
const UNKNOWN: &str = "neither in [fragments] nor in the row of `each`";

/// The values of `{word}`.
struct Words<'a> {
    fragments: &'a BTreeMap<String, String>,
    row: &'a BTreeMap<String, Word>,
    used: BTreeSet<String>,
}

impl Words<'_> {
    /// Replaces the words in a text, fragments first: they may contain words of the row.
    fn fill(&mut self, field: &'static str, text: &str) -> Result<String, Broken> {
        let mut of_row = |word: &str| {
            self.used.insert(word.to_owned());
            match self.row.get(word) {
                Some(Word::Text(text)) => Ok(text.clone()),
                Some(Word::Number(number)) => Ok(number.to_string()),
                None => Err(format!("{{{word}}} is {UNKNOWN}")),
            }
        };
        let filled = replaced(text, |word| {
            let value = of_row(word);
            self.fragments.get(word).map_or(value, |fragment| replaced(fragment, &mut of_row))
        });
        filled.map_err(|rule| (field, rule))
    }
}

/// A text with each `{word}` replaced. `{{` and `}}` stand for single braces.
pub(crate) fn replaced(text: &str, mut by: impl FnMut(&str) -> Result<String, String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            out.push_str(brace);
            rest = after;
        } else if brace == "{" {
            let (word, after) = rest.split_once('}').ok_or("a { starts a word, but no } follows")?;
            out.push_str(&by(word)?);
            rest = after;
        } else {
            out.push_str(brace);
        }
    }
    out.push_str(rest);
    Ok(out)
}

impl From<Compare> for Comparison {
    fn from(compare: Compare) -> Self {
        match compare {
            Compare::Ratio => Self::Ratio,
            Compare::Difference => Self::Difference,
            Compare::Loss => Self::Loss,
            Compare::Increase => Self::Increase,
        }
    }
}
