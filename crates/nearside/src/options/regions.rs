//! Names of ranges of memory, from a file, and their places.

use crate::options::places::{Nodes, Places};
use crate::options::usage_error::UsageError;
use agent::{RegionOrders, RegionPlace};
use clap::Args;
use linux::SystemState;
use machine::chain;
use observe::{RegionRules, Regions};
use std::error::Error;
use std::path::PathBuf;

/// The option that names the file.
#[derive(Clone, Debug, Default, Args)]
pub struct RegionsFile {
    /// Names of ranges of the program, besides those that it gives itself: a file in which each `[[region]]` has a name
    /// and a mapping or variable (docs/objects.md)
    #[arg(long, value_name = "FILE")]
    pub regions: Option<PathBuf>,
}

impl RegionsFile {
    /// The file's rules; none without a file.
    pub fn rules(&self) -> Result<RegionRules, Box<dyn Error>> {
        let read = self.regions.as_deref().map(RegionRules::load).transpose();
        Ok(read.map_err(|error| UsageError::boxed(chain(&error)))?.unwrap_or_default())
    }

    /// What finds the ranges.
    pub fn load(&self) -> Result<Regions, Box<dyn Error>> {
        self.rules().map(Regions::new)
    }
}

/// Places of named ranges.
#[derive(Clone, Debug, Args)]
pub struct RegionPlaces {
    /// Keep a named range on these nodes, whatever the policy decides: NAME=NODES, all of it on one node, or its pages
    /// dealt to several; NAME=here leaves it where it is. May be repeated
    #[arg(long, value_name = "NAME=NODES", value_parser = place, conflicts_with = "overrides")]
    region: Vec<(String, Option<Nodes>)>,

    #[command(flatten)]
    names: RegionsFile,
}

/// `weights=0-3`; without nodes, where it is.
fn place(text: &str) -> Result<(String, Option<Nodes>), String> {
    let parts = text.split_once('=').filter(|(name, nodes)| !name.is_empty() && !nodes.is_empty());
    let (name, nodes) = parts.ok_or("NAME=NODES, or NAME=here")?;
    let nodes = (nodes != "here").then(|| nodes.parse::<Nodes>().map_err(|error| chain(&error))).transpose()?;
    Ok((name.to_owned(), nodes))
}

impl RegionPlaces {
    /// The ranges, with nodes that this process may use.
    pub fn orders(&self) -> Result<RegionOrders, Box<dyn Error>> {
        let mut orders = RegionOrders::new(self.names.load()?);
        if self.region.is_empty() {
            return Ok(orders);
        }
        let mut places = Places::new(SystemState::read(None), false);
        for (name, nodes) in &self.region {
            let on = nodes.as_ref().map(|nodes| places.memory(nodes)).transpose()?;
            if !orders.add(name, on.map_or(RegionPlace::Here, RegionPlace::On)) {
                return Err(UsageError::boxed(format!("--region {name} is given twice")));
            }
        }
        Ok(orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_nodes_or_here() {
        assert_eq!(place("weights=here"), Ok(("weights".to_owned(), None)));
        assert_eq!(place("a b=0-1").unwrap().1, Some("0-1".parse().unwrap()));
        for text in ["", "weights", "=1", "weights=", "weights=x"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
