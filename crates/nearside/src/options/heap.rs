//! The node-aware allocator for unmodified programs: `--heap` of `nearside run`.

use crate::options::loaded_first;
use crate::options::places::{Nodes, Places};
use crate::options::usage_error::UsageError;
use std::error::Error;
use std::ffi::OsString;
use std::str::FromStr;

/// File name of the library that is the allocator.
const LIBRARY: &str = "libnearside_heap.so";
/// Environment variable with the library's path, if it is not beside nearside.
const LIBRARY_VARIABLE: &str = "NEARSIDE_HEAP_LIBRARY";
/// Environment variable from which the library reads where objects lie: crates/heap-preload.
const PLACE_VARIABLE: &str = "NEARSIDE_HEAP";

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
    pub fn environment(&self, places: &mut Places) -> Result<[(&'static str, OsString); 3], Box<dyn Error>> {
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
        let [preload, sanitizer] = loaded_first::environment(LIBRARY, LIBRARY_VARIABLE)?;
        Ok([preload, sanitizer, (PLACE_VARIABLE, place.into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
