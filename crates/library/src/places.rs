//! Sets of nodes and CPUs from text, and where the calling thread is.

use crate::error::Error;
use linux::{NodeState, SystemState, Tid, current_cpu, device_nodes};
use machine::{CpuId, CpuSet, Machine, Named, NodeId, NodeSet, Objects, Part, Selection, SelectionTextError};
use std::path::Path;

pub(crate) const SYS: &str = "/sys";

/// Nodes in numactl's grammar: `0-3,5`, `all`, `!0`, `+0`, `netdev:eth0`; or by hwloc's objects: `package:1`. `all`, `!` and `+` refer to the nodes with
/// memory that the caller's cpuset allows. Listed nodes are taken as they are: the call that uses the set checks them.
/// Needs no privileges.
pub fn nodes(text: &str) -> Result<NodeSet, Error> {
    let system = SystemState::read(None);
    let allowed = system.status().nodes.intersection(&system.nodes.with_memory);
    selected(text, &allowed, |named| match named {
        Named::Device(device) => device_nodes(Path::new(SYS), device),
        Named::Objects(objects) => part(objects).map(|part| part.nodes),
    })
}

/// CPUs in numactl's grammar, or by hwloc's objects: `l3:0`, `package:1.core:2`. `all`, `!` and `+` refer to the CPUs that the calling thread may run on. Listed CPUs are
/// taken as they are. Needs no privileges.
pub fn cpus(text: &str) -> Result<CpuSet, Error> {
    let allowed = linux::affinity(Tid::CALLER).map_err(|answer| {
        let attempt = format!("find the CPUs that `{text}` refers to");
        Error::plain(attempt, "sched_getaffinity", &answer)
    })?;
    selected(text, &allowed, |named| match named {
        Named::Device(_) => Err("a device has a node, and no CPU of its own".to_owned()),
        Named::Objects(objects) => part(objects).map(|part| part.cpus),
    })
}

/// The part of this machine that objects name.
fn part(objects: &Objects) -> Result<Part, String> {
    let machine = Machine::from_sysfs(Path::new(SYS)).map_err(|error| machine::chain(&error))?;
    objects.part(&machine).map_err(|error| error.to_string())
}

fn selected<T: From<u32> + Into<u32> + Copy>(
    text: &str,
    allowed: &machine::IdSet<T>,
    named: impl FnOnce(&Named) -> Result<machine::IdSet<T>, String>,
) -> Result<machine::IdSet<T>, Error> {
    let attempt = || format!("use `{}` as a set", text.chars().take(60).collect::<String>());
    let refused = |why: SelectionTextError| Error::argument(attempt(), why.to_string());
    let selection: Selection<T> = text.parse().map_err(refused)?;
    selection.resolve(allowed, None, named).map_err(|why| Error::argument(attempt(), why.to_string()))
}

/// The CPUs of these nodes; none for nodes without CPUs. Needs no privileges. A node that does not exist is an error.
pub fn cpus_of(nodes: &NodeSet) -> Result<CpuSet, Error> {
    let attempt = || format!("find the CPUs of node {nodes}");
    let state = node_state(attempt)?;
    let missing: NodeSet = nodes.iter().filter(|node| !state.online.contains(*node)).collect();
    if missing.is_empty() { Ok(state.cpus_of(nodes)) } else { Err(no_such_node(attempt(), missing, &state)) }
}

pub(crate) fn node_state(attempt: impl Fn() -> String) -> Result<NodeState, Error> {
    let unknown = |why: linux::NodeError| Error::Unknown { attempt: attempt(), why: machine::chain(&why) };
    NodeState::read(Path::new(SYS)).map_err(unknown)
}

pub(crate) fn no_such_node(attempt: String, missing: NodeSet, state: &NodeState) -> Error {
    let cause = linux::Cause::NoSuchNode { missing, online: state.online.clone() };
    Error::refused(attempt, "read /sys/devices/system/node", crate::error::EINVAL, cause)
}

/// The CPU that the calling thread runs on, and its node. Both may be outdated when they are returned, unless the thread
/// may only run there. Needs no privileges.
pub fn here() -> Result<(CpuId, NodeId), Error> {
    current_cpu().map_err(|answer| Error::plain("find the CPU of the calling thread", "getcpu", &answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_have_numactls_grammar_and_errors_say_what_is_wrong() {
        let all = cpus("all").unwrap();
        assert_eq!(all, linux::affinity(Tid::CALLER).unwrap());
        assert_eq!(cpus("+0").unwrap().first(), all.first());
        assert_eq!(cpus("0-2,1000000").unwrap().to_string(), "0-2,1000000");
        let error = cpus("0-,1").unwrap_err();
        assert!(error.to_string().starts_with("cannot use `0-,1` as a set: "), "{error}");
        for text in ["", "!all", "0-99999999", "3-1", "netdev:lo", "same", "+1000000"] {
            assert_eq!(cpus(text).unwrap_err().errno(), crate::error::EINVAL, "{text}");
        }
        let (cpu, node) = here().unwrap();
        assert!(all.contains(cpu));
        let own: NodeSet = [node].into_iter().collect();
        if let Ok(cpus) = cpus_of(&own) {
            assert!(!cpus.is_empty());
            let error = cpus_of(&"0-1000".parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains("there is no node"), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_is_a_set_or_refused(text in ".*") {
            let refused = |errno: Result<(), Error>| errno.map_or_else(|error| error.errno(), |()| crate::error::EINVAL);
            prop_assert_eq!(refused(nodes(&text).map(drop)), crate::error::EINVAL);
            prop_assert_eq!(refused(cpus(&text).map(drop)), crate::error::EINVAL);
        }
    }
}
