//! Nearside's libraries that a program runs with, through `LD_PRELOAD`.

use machine::{Machine, NodeSet};
use observe::objects;
use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Environment variable with the libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";
/// File name of the library that spreads what a program touches before it makes threads: crates/start-preload.
const START_LIBRARY: &str = "libnearside_start.so";
/// Environment variable with the library's path, if it is not beside nearside.
const START_LIBRARY_VARIABLE: &str = "NEARSIDE_START_LIBRARY";
/// Environment variable from which the library reads the nodes and their CPUs.
const START_NODES_VARIABLE: &str = "NEARSIDE_SPREAD_START";

/// The environment variables of a program that runs with this library, whose path `variable` may have if it is not beside
/// nearside.
pub fn environment(
    library: &'static str,
    variable: &'static str,
) -> Result<[(&'static str, OsString); 2], Box<dyn Error>> {
    let library = objects::installed(library, variable)?;
    if !objects::is_one_path(&library) {
        let path = library.display();
        return Err(format!(
            "cannot load {path}: LD_PRELOAD cannot have a path with a space, colon or dollar sign; install nearside elsewhere"
        )
        .into());
    }
    let before = env::var_os(PRELOAD).unwrap_or_default();
    Ok([(PRELOAD, with(&before, &library)?), objects::sanitizer_options()])
}

/// Those of a program that is to spread what it touches before it makes threads over those of these nodes whose CPUs it
/// may use then.
pub fn spread_start(nodes: &NodeSet, machine: &Machine) -> Result<[(&'static str, OsString); 3], Box<dyn Error>> {
    let [preload, sanitizer] = environment(START_LIBRARY, START_LIBRARY_VARIABLE)?;
    Ok([preload, sanitizer, (START_NODES_VARIABLE, with_cpus(nodes, machine).into())])
}

/// Nodes with their CPUs, as the library reads them: `0:0-3;1:4-7`.
fn with_cpus(nodes: &NodeSet, machine: &Machine) -> String {
    let of_machine = machine.nodes.iter().filter(|node| nodes.contains(node.id) && !node.cpus.is_empty());
    of_machine.map(|node| format!("{}:{}", node.id, node.cpus)).collect::<Vec<_>>().join(";")
}

/// Those of a program that keeps its memory on small pages where this socket asks it to.
pub fn keep_small((name, socket): (&'static str, &Path)) -> Result<[(&'static str, OsString); 3], Box<dyn Error>> {
    let [preload, sanitizer] = environment(objects::LIBRARY, objects::LIBRARY_VARIABLE)?;
    Ok([preload, sanitizer, (name, socket.into())])
}

/// Puts the library in front of others, and behind the one that reports objects: that one calls the next `malloc` behind
/// it.
fn with(before: &OsStr, library: &Path) -> Result<OsString, Box<dyn Error>> {
    let before = before.to_str().ok_or("LD_PRELOAD has a path that is not UTF-8: unset it")?;
    let own = library.to_str().ok_or("the path of nearside's libraries is not UTF-8: install nearside elsewhere")?;
    let others = before.split([':', ' ']).filter(|path| !path.is_empty());
    let reports = |path: &&str| Path::new(path).ends_with(objects::LIBRARY);
    let (first, last): (Vec<&str>, Vec<&str>) = others.partition(reports);
    Ok([&first[..], &[own], &last[..]].concat().join(":").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_passed_with_their_cpus() {
        let machine = machine::presets::find("odd-memoryless").unwrap();
        assert_eq!(with_cpus(&"0-3".parse().unwrap(), &machine), "0:0-1;1:2-3;2:4-5");
        assert_eq!(with_cpus(&"1".parse().unwrap(), &machine), "1:2-3");
    }

    #[test]
    fn the_library_that_reports_objects_stays_first() {
        let order = |before: &str| with(before.as_ref(), Path::new("/lib/heap.so")).unwrap();
        assert_eq!(order(""), "/lib/heap.so");
        assert_eq!(order("/lib/jemalloc.so"), "/lib/heap.so:/lib/jemalloc.so");
        assert_eq!(
            order("/a/libnearside_preload.so /lib/other.so"),
            "/a/libnearside_preload.so:/lib/heap.so:/lib/other.so"
        );
    }
}
