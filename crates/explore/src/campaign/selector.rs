//! Choices of cells by the labels of axes.

use super::read::Axis;
use machine::Violation;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Chooses cells: each named axis must have one of the labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<(usize, Vec<usize>)>);

/// A label, or several, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a label or a list of labels")]
pub enum Labels {
    /// One.
    One(String),
    /// Any of these.
    Any(Vec<String>),
}

/// Labels by the names of their axes, as written.
pub type WrittenSelector = BTreeMap<String, Labels>;

impl Selector {
    /// Translates what is written in a field of the file.
    pub(super) fn new(written: &WrittenSelector, axes: &[Axis], field: &str) -> Result<Self, Violation> {
        let choose = |(name, labels): (&String, &Labels)| {
            let labels = match labels {
                Labels::One(label) => std::slice::from_ref(label),
                Labels::Any(labels) => labels,
            };
            choice(axes, name, labels).map_err(|rule| Violation { field: format!("{field}.{name}"), rule })
        };
        Ok(Self(written.iter().map(choose).collect::<Result<_, _>>()?))
    }

    /// Reads `app=cg,pinning=sequential|none`.
    pub fn parse(text: &str, axes: &[Axis]) -> Result<Self, String> {
        let choose = |part: &str| {
            let (name, labels) = part.split_once('=').ok_or_else(|| format!("`{part}` is not AXIS=LABEL"))?;
            let labels: Vec<String> = labels.split('|').map(|label| label.trim().to_owned()).collect();
            choice(axes, name.trim(), &labels)
        };
        Ok(Self(text.split(',').map(choose).collect::<Result<_, _>>()?))
    }

    /// Whether these labels, one for each axis, are chosen.
    pub fn chooses(&self, labels: &[usize]) -> bool {
        self.0.iter().all(|(axis, allowed)| labels.get(*axis).is_some_and(|label| allowed.contains(label)))
    }

    /// These labels, with those of the selector in their place; `None` where it allows several of an axis.
    pub fn substitute(&self, labels: &[usize]) -> Option<Vec<usize>> {
        let mut other = labels.to_vec();
        for (axis, allowed) in &self.0 {
            let [label] = allowed[..] else { return None };
            *other.get_mut(*axis)? = label;
        }
        Some(other)
    }

    /// The same for each combination of the labels that the selector allows.
    pub fn substitutions(&self, labels: &[usize]) -> Vec<Vec<usize>> {
        let mut all = vec![labels.to_vec()];
        for (axis, allowed) in &self.0 {
            let with = |label: &usize| {
                all.iter()
                    .map(|labels| {
                        let mut labels = labels.clone();
                        labels[*axis] = *label;
                        labels
                    })
                    .collect::<Vec<_>>()
            };
            all = allowed.iter().flat_map(with).collect();
        }
        all
    }

    /// In words: `app=cg, pinning=sequential|none`, or `all cells`.
    pub fn describe(&self, axes: &[Axis]) -> String {
        let part = |(axis, labels): &(usize, Vec<usize>)| {
            let Axis { name, labels: known } = &axes[*axis];
            let labels: Vec<&str> = labels.iter().map(|label| known[*label].as_str()).collect();
            format!("{name}={}", labels.join("|"))
        };
        if self.0.is_empty() { "all cells".to_owned() } else { self.0.iter().map(part).collect::<Vec<_>>().join(", ") }
    }

    /// The indices of the axes that it names.
    pub fn axes(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(axis, _)| *axis)
    }

    /// Whether it allows one label of each axis that it names.
    pub(super) fn is_one(&self) -> bool {
        self.0.iter().all(|(_, allowed)| allowed.len() == 1)
    }

    /// Whether it names no axis.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn choice(axes: &[Axis], name: &str, labels: &[String]) -> Result<(usize, Vec<usize>), String> {
    let names = || axes.iter().map(|axis| axis.name.as_str()).collect::<Vec<_>>().join(", ");
    let place = axes.iter().position(|known| known.name == name);
    let place = place.ok_or_else(|| format!("there is no axis `{name}`: these are {}", names()))?;
    let known = &axes[place].labels;
    let index = |label: &String| {
        known
            .iter()
            .position(|known| known == label)
            .ok_or_else(|| format!("{name} has no `{label}`: its labels are {}", known.join(", ")))
    };
    let labels: Vec<usize> = labels.iter().map(index).collect::<Result<_, _>>()?;
    if labels.is_empty() { Err("needs at least one label".to_owned()) } else { Ok((place, labels)) }
}
