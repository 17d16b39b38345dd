//! Campaign files: TOML with a table `[grid]`. Errors name the file, line, field and rule.

use super::cell::{Cell, LabMachine, Place};
use super::read::{Axis, Correlation, Effect, File, Lab, Order, RESERVED, Runs};
use super::selector::Selector;
use crate::experiment::Thp;
use crate::seconds::Seconds;
use machine::{Mistake, Pinning, Violation, bounded, chain, presets, read_checked};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of combinations of a grid.
const MOST_CELLS: usize = 100_000;
/// Axes whose values are no words of the command.
const SETTINGS: [&str; 6] = ["app", "machine", "pinning", "balancing", "huge_pages", "kernel_module"];

/// A campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// What it is about, in a line.
    pub title: String,
    /// What it is about, at length.
    pub about: String,
    /// A hash of the file.
    pub hash: String,
    /// The axes, in the file's order.
    pub axes: Vec<Axis>,
    /// The combinations that are not excluded, in the order of the grid.
    pub cells: Vec<Cell>,
    /// Unmeasured runs of a cell before its first measured one.
    pub warmups: u32,
    /// How many runs.
    pub runs: Runs,
    /// The seed of the order of each round; `None` for the order of the grid.
    pub seed: Option<u64>,
    /// Where programs print their time; from start to end if they do not.
    pub seconds: Option<Seconds>,
    /// What else they print.
    pub metrics: Vec<(String, Seconds)>,
    /// When a run is ended.
    pub timeout: Option<Duration>,
    /// The labels that others are compared with in tables.
    pub baseline: Selector,
    /// How virtual machines are started.
    pub lab: Lab,
    /// Claims about ratios.
    pub effects: Vec<Effect>,
    /// Claims about correlations.
    pub correlations: Vec<Correlation>,
}

/// Why a campaign cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The file cannot be read.
    #[error("cannot read the campaign in {}", path.display())]
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

/// The values of an axis, by label.
type Values = Vec<(String, String)>;

impl Campaign {
    /// Reads and checks a campaign. Cells in the lab depend on the version of its model.
    pub fn load(path: &Path, model_version: &str) -> Result<Self, CampaignError> {
        let failed = |source| CampaignError::Read { path: path.to_owned(), source };
        let text = bounded::text(path).map_err(failed)?;
        Self::from_toml(&text, path, model_version)
    }

    /// Parses and checks the text of a campaign.
    pub fn from_toml(text: &str, path: &Path, model_version: &str) -> Result<Self, CampaignError> {
        let hash = hex(&Sha256::digest(text));
        let mut campaign = None;
        let check = |file: &File| match file.campaign(&hash, model_version) {
            Ok(read) => {
                campaign = Some(read);
                Vec::new()
            }
            Err(violations) => violations,
        };
        let _: File = read_checked(text, path, check).map_err(CampaignError::Mistakes)?;
        Ok(campaign.unwrap_or_else(|| unreachable!("without violations there is a campaign")))
    }

    /// The label of a cell on each axis.
    pub fn labels<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = (&'a str, &'a str)> {
        let label = |(axis, label): (&'a Axis, &usize)| (axis.name.as_str(), axis.labels[*label].as_str());
        self.axes.iter().zip(&cell.labels).map(label)
    }

    /// The cell with these labels, if it is not excluded.
    pub fn cell(&self, labels: &[usize]) -> Option<&Cell> {
        // Cells are in ascending order of their labels, as the grid is.
        self.cells.binary_search_by(|cell| cell.labels.as_slice().cmp(labels)).ok().map(|index| &self.cells[index])
    }
}

impl File {
    fn campaign(&self, hash: &str, model_version: &str) -> Result<Campaign, Vec<Violation>> {
        let mut broken = self.check_runs();
        let values = self.grid.iter().map(|(name, value)| Ok((name.as_str(), axis_values(name, value)?)));
        let values: Vec<(&str, Values)> = values.collect::<Result<_, _>>().map_err(|violation| vec![violation])?;
        let axes: Vec<Axis> = values
            .iter()
            .map(|(name, values)| Axis {
                name: (*name).to_owned(),
                labels: values.iter().map(|(label, _)| label.clone()).collect(),
            })
            .collect();
        let mut keep = |violation: Violation| broken.push(violation);
        let seconds = self.seconds.as_deref().map(str::parse::<Seconds>).transpose();
        let seconds = seconds.map_err(|rule| keep(Violation { field: "seconds".to_owned(), rule })).ok().flatten();
        let metrics = self.metrics().map_err(&mut keep).unwrap_or_default();
        let effects = self.effects(&axes).map_err(&mut keep).unwrap_or_default();
        let correlations = self.correlations(&axes).map_err(&mut keep).unwrap_or_default();
        let baseline = Selector::new(&self.baseline, &axes, "baseline").map_err(&mut keep).unwrap_or_default();
        if !baseline.is_one() {
            keep(Violation { field: "baseline".to_owned(), rule: "has one label of an axis".to_owned() });
        }
        let exclude = self.exclude.iter().enumerate();
        let exclude = exclude.map(|(index, written)| Selector::new(written, &axes, &format!("exclude[{index}]")));
        let exclude: Vec<Selector> = exclude.filter_map(|selector| selector.map_err(&mut keep).ok()).collect();
        let builder = CellBuilder { file: self, values: &values, model_version, machines: machines(&values) };
        let cells = builder.cells(&exclude).map_err(&mut keep).unwrap_or_default();
        if !broken.is_empty() {
            return Err(broken);
        }
        Ok(Campaign {
            title: self.title.clone(),
            about: self.about.clone(),
            hash: hash.to_owned(),
            axes,
            cells,
            warmups: self.warmups,
            runs: self.runs,
            seed: (self.order == Order::Shuffled).then_some(self.seed),
            seconds,
            metrics,
            timeout: self.timeout(),
            baseline,
            lab: self.lab.clone(),
            effects,
            correlations,
        })
    }
}

/// Whether a text can be part of a cell's name.
fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._+".contains(c))
}

/// The labels and values of an axis: a list of values, which are their own labels, or a table.
fn axis_values(name: &str, value: &toml::Value) -> Result<Values, Violation> {
    let broken = |rule: &str| Violation { field: format!("grid.{name}"), rule: rule.to_owned() };
    if !is_label(name) || name.contains('.') {
        return Err(broken("the name of an axis has 1 to 64 letters, digits and - _ +"));
    }
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        _ => Err(broken("values are texts or integers")),
    };
    let values: Values = match value {
        toml::Value::Array(list) => {
            list.iter().map(|value| text(value).map(|text| (text.clone(), text))).collect::<Result<_, _>>()?
        }
        toml::Value::Table(table) => {
            table.iter().map(|(label, value)| Ok((label.clone(), text(value)?))).collect::<Result<_, _>>()?
        }
        _ => return Err(broken("is neither a list of values nor a table of labels with their values")),
    };
    // Labels of machines are paths as well.
    let labels: Values = match name {
        "machine" => values.into_iter().map(|(label, value)| (label_of_machine(&label), value)).collect(),
        _ => values,
    };
    if labels.is_empty() {
        return Err(broken("needs at least one value"));
    }
    if let Some((label, _)) = labels.iter().find(|(label, _)| !is_label(label)) {
        let rule =
            "a label has 1 to 64 letters, digits and - . _ +; with a table, `label = \"value\"`, a value may be any";
        return Err(broken(&format!("{rule}; this one is `{}`", label.escape_debug())));
    }
    let different: BTreeSet<&str> = labels.iter().map(|(label, _)| label.as_str()).collect();
    if different.len() < labels.len() {
        return Err(broken("has a label twice"));
    }
    Ok(labels)
}

/// The file name of a path, without `.toml`.
fn label_of_machine(text: &str) -> String {
    let path = Path::new(text);
    if text.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
        path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    } else {
        text.to_owned()
    }
}

/// A hash of a kernel module's file, which is named up to the first comma.
fn module_hash(module: &str) -> Result<String, String> {
    let file = Path::new(module.split(',').next().unwrap_or(module));
    let failed = |error| format!("cannot read {}: {error}", file.display());
    let bytes =
        std::fs::File::open(file).and_then(|file| bounded::bytes_of(file, bounded::MOST_BYTES)).map_err(failed)?;
    Ok(hex(&Sha256::digest(bytes)))
}

/// Hashes of the machines that cells run on, or why one cannot be read.
fn machines(values: &[(&str, Values)]) -> BTreeMap<String, Result<String, String>> {
    let machines = values.iter().filter(|(name, _)| *name == "machine").flat_map(|(_, values)| values);
    let hash = |machine: &str| {
        let machine = presets::load(machine).map_err(|error| chain(&error))?;
        let text = machine.to_toml().map_err(|error| chain(&error))?;
        Ok(hex(&Sha256::digest(text)))
    };
    let named = machines.map(|(_, value)| value).filter(|value| *value != HERE);
    named.map(|value| (value.clone(), hash(value))).collect()
}

/// The value of `machine` for cells that run on this one.
const HERE: &str = "this";

/// Makes the cells of a grid.
struct CellBuilder<'a> {
    file: &'a File,
    values: &'a [(&'a str, Values)],
    model_version: &'a str,
    machines: BTreeMap<String, Result<String, String>>,
}

impl CellBuilder<'_> {
    /// All combinations that are not excluded, the last axis varying fastest.
    fn cells(&self, exclude: &[Selector]) -> Result<Vec<Cell>, Violation> {
        let grid = |rule: String| Violation { field: "grid".to_owned(), rule };
        let sizes = self.values.iter().map(|(_, values)| values.len());
        let count = sizes.clone().try_fold(1_usize, usize::checked_mul).filter(|count| *count <= MOST_CELLS);
        let count = count.ok_or_else(|| grid(format!("has more than {MOST_CELLS} combinations")))?;
        self.check_words()?;
        let (mut cells, mut names): (Vec<Cell>, _) = (Vec::with_capacity(count), BTreeSet::new());
        let mut ids = BTreeMap::new();
        let mut labels = vec![0; self.values.len()];
        for _ in 0..count {
            if !exclude.iter().any(|selector| selector.chooses(&labels)) {
                let cell = self.cell(&labels)?;
                if !names.insert(cell.name.clone()) {
                    return Err(grid(format!("two combinations have the name `{}`", cell.name)));
                }
                if let Some(other) = ids.insert(cell.id.clone(), cell.name.clone()) {
                    return Err(grid(format!("`{other}` and `{}` are the same run: exclude one", cell.name)));
                }
                cells.push(cell);
            }
            for (label, size) in labels.iter_mut().zip(sizes.clone()).rev() {
                *label += 1;
                if *label < size {
                    break;
                }
                *label = 0;
            }
        }
        if cells.is_empty() { Err(grid("every combination is excluded".to_owned())) } else { Ok(cells) }
    }

    fn value(&self, labels: &[usize], axis: &str) -> Option<&str> {
        let index = self.values.iter().position(|(name, _)| *name == axis)?;
        self.values[index].1.get(labels[index]).map(|(_, value)| value.as_str())
    }

    fn cell(&self, labels: &[usize]) -> Result<Cell, Violation> {
        let broken = |axis: &str, rule: String| Violation { field: format!("grid.{axis}"), rule };
        let setting = |axis: &'static str| self.value(labels, axis);
        let words: Vec<&str> = self
            .values
            .iter()
            .zip(labels)
            .map(|((_, values), label)| values.get(*label).map_or("", |(label, _)| label.as_str()))
            .collect();
        let command = self.command(labels)?;
        let environment = self.environment(labels)?;
        let place = match setting("machine") {
            None | Some(HERE) => Place::Here,
            Some(machine) => Place::Lab(LabMachine(machine.to_owned())),
        };
        let pinning = setting("pinning").map(str::parse::<Pinning>).transpose();
        let balancing = match setting("balancing") {
            None => None,
            Some("on") => Some(true),
            Some("off") => Some(false),
            Some(other) => return Err(broken("balancing", format!("values are `on` and `off`, not `{other}`"))),
        };
        let huge_pages = match setting("huge_pages") {
            None => None,
            Some("always") => Some(Thp::Always),
            Some("madvise") => Some(Thp::Madvise),
            Some("never") => Some(Thp::Never),
            Some(other) => {
                return Err(broken("huge_pages", format!("values are `always`, `madvise`, `never`, not `{other}`")));
            }
        };
        let kernel_module = setting("kernel_module").filter(|module| !module.is_empty()).map(str::to_owned);
        if kernel_module.is_some() && place == Place::Here {
            return Err(broken("kernel_module", "is loaded only in the lab: `machine` has to name one".to_owned()));
        }
        let mut cell = Cell {
            name: words.join("-"),
            id: String::new(),
            labels: labels.to_vec(),
            command,
            environment,
            place,
            pinning: pinning.map_err(|rule| broken("pinning", rule))?,
            balancing,
            huge_pages,
            kernel_module,
        };
        let module = cell.kernel_module.as_deref().map(module_hash).transpose();
        let module = module.map_err(|rule| broken("kernel_module", rule))?;
        cell.id = self.id(&cell, module).map_err(|rule| broken("machine", rule))?;
        Ok(cell)
    }

    /// The command template of a combination.
    fn template(&self, labels: &[usize]) -> Option<(String, &str)> {
        let axis = self.value(labels, "app").map(|text| ("grid.app".to_owned(), text));
        axis.or_else(|| Some(("command".to_owned(), self.file.command.as_deref()?)))
    }

    fn command(&self, labels: &[usize]) -> Result<Vec<String>, Violation> {
        let missing =
            || Violation { field: "command".to_owned(), rule: "is needed, or an axis `app` with commands".to_owned() };
        let (field, template) = self.template(labels).ok_or_else(missing)?;
        let broken = |rule: String| Violation { field: field.clone(), rule };
        let text = self.filled(labels, template).map_err(broken)?;
        let words = shlex::split(&text).filter(|words| !words.is_empty());
        words.ok_or_else(|| broken(format!("`{text}` has no words, or a quote without its end")))
    }

    fn environment(&self, labels: &[usize]) -> Result<BTreeMap<String, String>, Violation> {
        let variable = |(name, value): (&String, &String)| {
            let broken = |rule: String| Violation { field: format!("environment.{name}"), rule };
            Ok((name.clone(), self.filled(labels, value).map_err(broken)?))
        };
        self.file.environment.iter().map(variable).collect()
    }

    /// A text with the values of axes in the place of their names.
    fn filled(&self, labels: &[usize], template: &str) -> Result<String, String> {
        crate::file::replaced(template, |word| {
            let value = self.value(labels, word).filter(|_| !SETTINGS.contains(&word));
            value.map(str::to_owned).ok_or_else(|| format!("{{{word}}} is no axis: {{{{ and }}}} stand for braces"))
        })
    }

    /// Every axis must have an effect on some command.
    fn check_words(&self) -> Result<(), Violation> {
        if self.file.command.is_some() && self.values.iter().any(|(name, _)| *name == "app") {
            let rule = "cannot be combined with an axis `app`, whose values are commands".to_owned();
            return Err(Violation { field: "command".to_owned(), rule });
        }
        let apps = self.values.iter().filter(|(name, _)| *name == "app").flat_map(|(_, values)| values);
        let templates: Vec<&str> = apps
            .map(|(_, value)| value)
            .chain(&self.file.command)
            .chain(self.file.environment.values())
            .map(String::as_str)
            .collect();
        // Of doubled braces, none begins a word.
        let is_used = |name: &str| templates.iter().any(|text| text.replace("{{", "").contains(&format!("{{{name}}}")));
        if let Some((name, _)) = self.values.iter().find(|(name, _)| RESERVED.contains(name)) {
            let rule = "has the name of a column that every result has".to_owned();
            return Err(Violation { field: format!("grid.{name}"), rule });
        }
        let unused = self.values.iter().find(|(name, _)| !SETTINGS.contains(name) && !is_used(name));
        unused.map_or(Ok(()), |(name, _)| {
            let rule =
                format!("no command or variable has {{{name}}}; the axes with a meaning are {}", SETTINGS.join(", "));
            Err(Violation { field: format!("grid.{name}"), rule })
        })
    }

    /// A hash of all that decides a result.
    fn id(&self, cell: &Cell, module: Option<String>) -> Result<String, String> {
        let mut parts: Vec<String> = cell.command.clone();
        parts.push(format!("{:?}", cell.environment));
        parts.push(format!("{:?} {:?} {:?}", cell.pinning, cell.balancing, cell.huge_pages));
        parts.push(format!(
            "{:?} {:?} {:?} {:?}",
            self.file.warmups,
            self.file.seconds,
            self.file.metrics.iter().collect::<Vec<_>>(),
            self.file.timeout_s
        ));
        parts.extend(cell.kernel_module.clone().into_iter().chain(module));
        if let Place::Lab(LabMachine(name)) = &cell.place {
            let machine = self.machines.get(name).cloned().unwrap_or_else(|| Err(format!("`{name}` was not read")))?;
            parts.extend([machine, self.file.lab.identity(), self.model_version.to_owned()]);
        }
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Ok(hex(&hash.finalize()))
    }
}

/// The first 64 bits of a hash: enough to tell 100,000 cells apart.
pub(super) fn hex(hash: &[u8]) -> String {
    let first = hash.iter().take(8).fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
