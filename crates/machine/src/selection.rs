//! Nodes and CPUs in numactl's syntax: `0-3`, `all`, `!0`, `+0-1`, `same`, `netdev:eth0`; and in hwloc's: `l3:0`.

use crate::description::Machine;
use crate::ids::{CpuId, NodeId};
use crate::objects::{ObjectError, Objects, Part};
use crate::set::{CpuSet, IdSet, NodeSet, SetError};
use std::fmt;
use std::str::FromStr;

/// A selection of nodes or CPUs by the user. Its meaning depends on the machine, the cpuset, and the previous option:
/// see [`Selection::resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection<T> {
    text: String,
    /// All but these (`!`).
    inverted: bool,
    what: What<T>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What<T> {
    /// All allowed ones.
    All,
    /// Those of the previous option.
    Same,
    Ids(IdSet<T>),
    /// Positions within the allowed ones (`+`).
    Places(IdSet<T>),
    /// What a name stands for on one machine.
    Named(Named),
}

/// What only a look at the machine can resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// The node of a device.
    Device(Device),
    /// Parts of the machine.
    Objects(Objects),
}

/// A device that has a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The kind of name.
    pub kind: DeviceKind,
    /// The name.
    pub name: String,
}

/// How a device is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A network device: `netdev:eth0`.
    Network,
    /// The network device on the route to a host: `ip:192.0.2.1`.
    Host,
    /// The block device that holds a file, or the device of a device file: `file:/data`.
    File,
    /// A block device: `block:sda`.
    Block,
    /// A PCI device, `[segment:]bus:device[.function]`: `pci:0000:3b:00.0`.
    Pci,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Objects(objects) => objects.fmt(f),
        }
    }
}

const DEVICES: [(&str, DeviceKind); 5] = [
    ("netdev", DeviceKind::Network),
    ("ip", DeviceKind::Host),
    ("file", DeviceKind::File),
    ("block", DeviceKind::Block),
    ("pci", DeviceKind::Pci),
];

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = DEVICES.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        write!(f, "{name}:{}", self.name)
    }
}

/// Why a text is no selection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionTextError {
    /// It names objects, but not in hwloc's grammar.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// It lists numbers, but not as a set.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// Why a selection has no set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// `same` without a previous option.
    #[error("`same` means what the option before named, and there is none")]
    NothingBefore,
    /// `+` with a position beyond the allowed ones.
    #[error("`{text}` counts beyond what is allowed: there are {count}, from +0 on")]
    BeyondAllowed {
        /// The selection.
        text: String,
        /// The number of allowed ones.
        count: usize,
    },
    /// A device is unknown, or has no node.
    #[error("the node of `{device}` cannot be found: {why}")]
    Device {
        /// The device.
        device: String,
        /// What was examined, and the result.
        why: String,
    },
    /// The machine lacks the objects, or they have nothing of what is selected.
    #[error("{0}")]
    Objects(String),
    /// The set is empty.
    #[error("`{0}` selects nothing")]
    Empty(String),
}

impl<T> FromStr for Selection<T> {
    type Err = SelectionTextError;

    fn from_str(text: &str) -> Result<Self, SelectionTextError> {
        let trimmed = text.trim();
        let (inverted, rest) = trimmed.strip_prefix('!').map_or((false, trimmed), |rest| (true, rest.trim_start()));
        let (relative, rest) = rest.strip_prefix('+').map_or((false, rest), |rest| (true, rest));
        let device = || {
            let (prefix, name) = rest.split_once(':')?;
            let (_, kind) = DEVICES.iter().find(|(known, _)| *known == prefix)?;
            (!name.is_empty() && !relative).then(|| Device { kind: *kind, name: name.to_owned() })
        };
        let what = match rest {
            // As numactl: all but nothing is a mistake in a script, not the wish for all.
            "" if inverted || relative => {
                return Err(SetError::NotANumber { text: trimmed.to_owned(), part: trimmed.to_owned() }.into());
            }
            "all" if !relative => What::All,
            "same" if !relative => What::Same,
            _ => match device() {
                Some(device) => What::Named(Named::Device(device)),
                None if rest.contains(':') && !relative => What::Named(Named::Objects(rest.parse()?)),
                None if relative => What::Places(rest.parse().map_err(SelectionTextError::Set)?),
                None => What::Ids(rest.parse().map_err(SelectionTextError::Set)?),
            },
        };
        Ok(Self { text: trimmed.to_owned(), inverted, what })
    }
}

impl<T> From<IdSet<T>> for Selection<T>
where
    IdSet<T>: fmt::Display,
{
    fn from(ids: IdSet<T>) -> Self {
        Self { text: ids.to_string(), inverted: false, what: What::Ids(ids) }
    }
}

impl<T> fmt::Display for Selection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T> Selection<T> {
    /// Whether it names parts of the machine, of which some may be out of reach.
    pub fn names_objects(&self) -> bool {
        matches!(self.what, What::Named(Named::Objects(_)))
    }

    /// Whether it means the same as the previous option.
    pub fn is_same(&self) -> bool {
        matches!(self.what, What::Same)
    }
}

impl<T: From<u32> + Into<u32> + Copy> Selection<T> {
    /// The set, where `allowed` is the set that `all`, `!` and `+` refer to, and `before` is that of the previous
    /// option. Listed IDs are used as they are, whether they are allowed or not; `find` finds what has a name.
    pub fn resolve(
        &self,
        allowed: &IdSet<T>,
        before: Option<&IdSet<T>>,
        find: impl FnOnce(&Named) -> Result<IdSet<T>, String>,
    ) -> Result<IdSet<T>, SelectionError> {
        let beyond = || SelectionError::BeyondAllowed { text: self.text.clone(), count: allowed.len() };
        let named: IdSet<T> = match &self.what {
            What::All => allowed.clone(),
            What::Same => before.cloned().ok_or(SelectionError::NothingBefore)?,
            What::Ids(ids) => ids.clone(),
            What::Places(places) => {
                let all: Vec<T> = allowed.iter().collect();
                let at = |index: T| all.get(index.into() as usize).copied().ok_or_else(beyond);
                places.iter().map(at).collect::<Result<Vec<T>, _>>()?.into_iter().collect()
            }
            What::Named(named) => find(named).map_err(|why| match named {
                Named::Device(device) => SelectionError::Device { device: device.to_string(), why },
                Named::Objects(_) => SelectionError::Objects(why),
            })?,
        };
        let set = if self.inverted { allowed.iter().filter(|id| !named.contains(*id)).collect() } else { named };
        if set.is_empty() { Err(SelectionError::Empty(self.text.clone())) } else { Ok(set) }
    }
}

impl Selection<CpuId> {
    /// The CPUs of a machine that is described, not this one: `all`, `!` and `+` refer to all of its CPUs.
    pub fn of_machine(&self, machine: &Machine) -> Result<CpuSet, SelectionError> {
        self.resolve(&machine.cpus(), None, |named| match part_of(named, machine)?.cpus {
            none if none.is_empty() => Err(format!("{named} has no CPUs")),
            cpus => Ok(cpus),
        })
    }
}

impl Selection<NodeId> {
    /// The nodes of a machine that is described, not this one: `all`, `!` and `+` refer to all of its nodes.
    pub fn of_machine(&self, machine: &Machine) -> Result<NodeSet, SelectionError> {
        let all = machine.nodes.iter().map(|node| node.id).collect();
        self.resolve(&all, None, |named| Ok(part_of(named, machine)?.nodes))
    }
}

fn part_of(named: &Named, machine: &Machine) -> Result<Part, String> {
    match named {
        Named::Device(_) => Err("a description of a machine has no devices".to_owned()),
        Named::Objects(objects) => objects.part(machine).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeSet;
    use proptest::prelude::*;

    fn resolve(text: &str, allowed: &str, before: Option<&str>) -> Result<String, SelectionError> {
        let set = |text: &str| text.parse::<NodeSet>().unwrap();
        let before = before.map(set);
        let find = |named: &Named| match named.to_string().as_str() {
            "netdev:eth0" | "l3:2" => Ok([NodeId(2)].into_iter().collect()),
            _ => Err("nothing is called so".to_owned()),
        };
        let selection: Selection<NodeId> = text.parse().unwrap();
        selection.resolve(&set(allowed), before.as_ref(), find).map(|set| set.to_string())
    }

    #[test]
    fn parts_of_a_described_machine() {
        let machine = crate::presets::load("small-4x2").unwrap();
        let cpus = |text: &str| {
            let set = text.parse::<Selection<CpuId>>().unwrap().of_machine(&machine);
            set.map(|set| set.to_string()).map_err(|error| error.to_string())
        };
        let nodes = |text: &str| {
            let set = text.parse::<Selection<NodeId>>().unwrap().of_machine(&machine);
            set.map(|set| set.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(
            ["0,5", "node:1", "!0-5", "all", "+7"].map(cpus),
            ["0,5", "2-3", "6-7", "0-7", "7"].map(|set| Ok(set.to_owned()))
        );
        assert_eq!(["2", "node:1", "!0", "pu:6"].map(nodes), ["2", "1", "1-3", "3"].map(|set| Ok(set.to_owned())));
        // Numbers are taken as they are: whether they exist is another question.
        assert_eq!(cpus("99"), Ok("99".to_owned()));
        assert!(cpus("package:9").unwrap_err().contains("no package:9"), "{:?}", cpus("package:9"));
        assert!(cpus("netdev:eth0").unwrap_err().contains("has no devices"), "{:?}", cpus("netdev:eth0"));
    }

    /// Claim 22 of the specification.
    #[test]
    fn the_grammar_of_numactl() {
        for (text, set) in
            [("0,2,5", "0,2,5"), ("1-4", "1-4"), ("!0-1", "2-3"), ("0,4-5,8", "0,4-5,8"), (" all ", "0-3")]
        {
            assert_eq!(resolve(text, "0-3", None), Ok(set.to_owned()), "{text}");
        }
        assert_eq!(resolve("+0-1", "4,6,9", None), Ok("4,6".to_owned()));
        assert_eq!(resolve("!+0", "4,6,9", None), Ok("6,9".to_owned()));
        assert_eq!(resolve("same", "0-3", Some("1,3")), Ok("1,3".to_owned()));
        assert_eq!(resolve("netdev:eth0", "0-3", None), Ok("2".to_owned()));
        assert_eq!(resolve("!netdev:eth0", "0-3", None), Ok("0-1,3".to_owned()));
        assert_eq!(resolve("!L3cache:2", "0-3", None), Ok("0-1,3".to_owned()));
    }

    #[test]
    fn an_empty_selection_is_an_error() {
        assert_eq!(resolve("same", "0-3", None), Err(SelectionError::NothingBefore));
        assert!(matches!(resolve("+3", "0-2", None), Err(SelectionError::BeyondAllowed { count: 3, .. })));
        assert!(matches!(resolve("pci:x", "0-2", None), Err(SelectionError::Device { .. })));
        assert!(matches!(resolve("!all", "0-2", None), Err(SelectionError::Empty(_))));
        assert!(matches!(resolve("", "0-2", None), Err(SelectionError::Empty(_))));
        for text in [
            "+all",
            "!!0",
            "0,all",
            "disk:sda",
            "netdev:",
            "+netdev:eth0",
            "+l3:0",
            "l3:",
            "0,l3:0",
            "l3:0,",
            "0x3",
            "!",
            "+",
            "! ",
        ] {
            assert!(text.parse::<Selection<NodeId>>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = text.parse::<Selection<NodeId>>();
        }

        #[test]
        fn what_is_inverted_is_the_rest(allowed in "[0-9]{1,2}-[0-9]{3}", text in "[0-9]{1,2}(,[0-9]{1,3}){0,3}") {
            let set = |text: &str| text.parse::<NodeSet>();
            if let (Ok(allowed), Ok(named)) = (set(&allowed), set(&text)) {
                let no_device = |_: &Named| Err(String::new());
                let inverted: Selection<NodeId> = format!("!{text}").parse().unwrap();
                if let Ok(rest) = inverted.resolve(&allowed, None, no_device) {
                    prop_assert!(rest.is_subset(&allowed) && rest.intersection(&named).is_empty());
                    prop_assert_eq!(rest.len() + allowed.intersection(&named).len(), allowed.len());
                }
            }
        }
    }
}
