//! The node-aware allocator for unmodified programs: `--heap` of `nearside run`.

use crate::options::places::{Nodes, Places};
use crate::options::usage_error::UsageError;
use observe::objects;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;

/// File name of the library that is the allocator.
const LIBRARY: &str = "libnearside_heap.so";
/// Environment variable with the library's path, if it is not beside nearside.
const LIBRARY_VARIABLE: &str = "NEARSIDE_HEAP_LIBRARY";
/// Environment variable from which the library reads where objects lie: crates/heap-preload.
const PLACE_VARIABLE: &str = "NEARSIDE_HEAP";
/// Environment variable with the libraries that the dynamic linker loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// Where the allocator's objects lie.
#[derive(Clone, Debug)]
pub enum Heap {
    /// On the node of the thread that allocates.
    Local,
    /// Page by page on each allowed node.
    Interleave,
    /// On one node.
    Node(Nodes),
}

impl FromStr for Heap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Self::Local),
            "interleave" => Ok(Self::Interleave),
            _ => match text.strip_prefix("node:").filter(|node| !node.is_empty()) {
                Some(node) => node.parse().map(Self::Node).map_err(|error| format!("{error}")),
                None => Err("a heap is `local`, `interleave` or `node:N`; write `--` before the command".to_owned()),
            },
        }
    }
}

impl Heap {
    /// The environment variables of a program that uses it.
    pub fn environment(&self, places: &mut Places) -> Result<[(&'static str, OsString); 2], Box<dyn Error>> {
        let place = match self {
            Self::Local => "local".to_owned(),
            Self::Interleave => "interleave".to_owned(),
            Self::Node(nodes) => {
                let set = places.memory(nodes)?;
                match (set.first(), set.len()) {
                    (Some(node), 1) => format!("node:{node}"),
                    _ => {
                        return Err(UsageError::boxed(format!(
                            "a heap is on one node, not on {set}: use --heap interleave"
                        )));
                    }
                }
            }
        };
        let library = objects::installed(LIBRARY, LIBRARY_VARIABLE)?;
        if !objects::is_one_path(&library) {
            let path = library.display();
            return Err(format!(
                "cannot load {path}: LD_PRELOAD cannot have a path with a space, colon or dollar sign"
            )
            .into());
        }
        let before = env::var_os(PRELOAD).unwrap_or_default();
        Ok([(PRELOAD, preloaded(&before, &library)?), (PLACE_VARIABLE, place.into())])
    }
}

/// Puts the allocator in front of other libraries, and behind the one that reports objects: that one calls the next
/// `malloc` behind it.
fn preloaded(before: &std::ffi::OsStr, library: &Path) -> Result<OsString, Box<dyn Error>> {
    let before = before.to_str().ok_or("LD_PRELOAD has a path that is not UTF-8: unset it")?;
    let own = library.to_str().ok_or("the path of the heap's library is not UTF-8: install nearside elsewhere")?;
    let others = before.split([':', ' ']).filter(|path| !path.is_empty());
    let reports = |path: &&str| Path::new(path).ends_with(objects::LIBRARY);
    let (first, last): (Vec<&str>, Vec<&str>) = others.partition(reports);
    Ok([&first[..], &[own], &last[..]].concat().join(":").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_that_reports_objects_stays_first() {
        let order = |before: &str| preloaded(before.as_ref(), Path::new("/lib/heap.so")).unwrap();
        assert_eq!(order(""), "/lib/heap.so");
        assert_eq!(order("/lib/jemalloc.so"), "/lib/heap.so:/lib/jemalloc.so");
        assert_eq!(
            order("/a/libnearside_preload.so /lib/other.so"),
            "/a/libnearside_preload.so:/lib/heap.so:/lib/other.so"
        );
    }

    #[test]
    fn a_place_is_local_interleaved_or_a_node() {
        assert!(matches!("local".parse(), Ok(Heap::Local)));
        assert!(matches!("interleave".parse(), Ok(Heap::Interleave)));
        assert!(matches!("node:3".parse(), Ok(Heap::Node(_))));
        for wrong in ["", "3", "node:", "nodes:1", "./program"] {
            assert!(wrong.parse::<Heap>().is_err(), "{wrong}");
        }
    }
}
