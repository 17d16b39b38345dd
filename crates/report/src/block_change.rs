//! What becomes of blocks of 2 MiB while a program runs: they are placed, split, joined, moved.

use crate::residence::Address;
use machine::NodeId;
use machine::number::counted;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What is in memory of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockState {
    /// Whether it is one huge page.
    pub huge: bool,
    /// Small pages, or parts of the huge one, by node.
    pub pages: BTreeMap<NodeId, u64>,
}

impl BlockState {
    /// Adds pages of 4 KiB, or the huge page.
    pub fn add(&mut self, node: NodeId, small_pages: u64, huge: bool) {
        self.huge |= huge;
        *self.pages.entry(node).or_default() += small_pages;
    }

    fn all(&self) -> u64 {
        self.pages.values().sum()
    }
}

/// What became of a block between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BlockEvent {
    /// It was not in memory before.
    Placed,
    /// Small pages came or went.
    Resized,
    /// It was one huge page before.
    Split,
    /// It was small pages before.
    Joined,
    /// Its pages are on other nodes.
    Moved,
    /// It is in memory no more.
    Gone,
}

impl BlockEvent {
    /// What became of it; none if nothing did. Between two readings it may have been split and moved: that counts as
    /// split.
    pub fn between(before: Option<&BlockState>, after: Option<&BlockState>) -> Option<Self> {
        Some(match (before, after) {
            (None, None) => return None,
            (None, Some(_)) => Self::Placed,
            (Some(_), None) => Self::Gone,
            (Some(before), Some(after)) => match (before.huge, after.huge) {
                (true, false) => Self::Split,
                (false, true) => Self::Joined,
                _ if before.all() != after.all() => Self::Resized,
                _ if before.pages != after.pages => Self::Moved,
                _ => return None,
            },
        })
    }
}

/// A change of a block, as one line of text or JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockChange {
    /// Since the first reading, µs.
    pub time_us: u64,
    /// First address of the block, in JSON as hexadecimal text.
    #[serde(serialize_with = "as_address")]
    pub address: u64,
    /// What became of it.
    pub change: BlockEvent,
    /// Its state now; none if it is gone.
    pub state: Option<BlockState>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn as_address<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Address(*address).serialize(serializer)
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.huge {
            let nodes: Vec<String> = self.pages.keys().map(ToString::to_string).collect();
            return write!(f, "one huge page on node {}", nodes.join(" and "));
        }
        let nodes: Vec<String> = self.pages.iter().map(|(node, pages)| format!("{pages} on node {node}")).collect();
        write!(f, "{}: {}", counted(self.all(), "small page"), nodes.join(", "))
    }
}

impl fmt::Display for BlockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, change) = (self.time_us as f64 / 1e6, self.change.to_string());
        write!(f, "{seconds:10.3} s  {:#014x}  {change:7}", self.address)?;
        self.state.as_ref().map_or(Ok(()), |state| write!(f, "  {state}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(huge: bool, pages: &[(u32, u64)]) -> BlockState {
        let mut state = BlockState::default();
        for (node, pages) in pages {
            state.add(NodeId(*node), *pages, huge);
        }
        state
    }

    #[test]
    fn changes_have_names() {
        let (huge, small) = (state(true, &[(1, 512)]), state(false, &[(0, 200), (1, 312)]));
        let between = |before: Option<&BlockState>, after: Option<&BlockState>| BlockEvent::between(before, after);
        assert_eq!(between(None, Some(&huge)), Some(BlockEvent::Placed));
        assert_eq!(between(Some(&huge), Some(&huge)), None);
        assert_eq!(between(Some(&huge), Some(&small)), Some(BlockEvent::Split));
        assert_eq!(between(Some(&small), Some(&huge)), Some(BlockEvent::Joined));
        assert_eq!(between(Some(&huge), Some(&state(true, &[(0, 512)]))), Some(BlockEvent::Moved));
        assert_eq!(between(Some(&small), Some(&state(false, &[(0, 201), (1, 311)]))), Some(BlockEvent::Moved));
        assert_eq!(between(Some(&small), Some(&state(false, &[(0, 201)]))), Some(BlockEvent::Resized));
        assert_eq!(between(Some(&small), None), Some(BlockEvent::Gone));
        assert_eq!(between(None, None), None);
    }

    #[test]
    fn a_change_is_a_line() {
        let line =
            |change, state| BlockChange { time_us: 1_250_000, address: 0x7f00_0020_0000, change, state }.to_string();
        let small = state(false, &[(0, 200), (1, 312)]);
        let split = "     1.250 s  0x7f0000200000  split    512 small pages: 200 on node 0, 312 on node 1";
        assert_eq!(line(BlockEvent::Split, Some(small)), split);
        assert_eq!(line(BlockEvent::Gone, None), "     1.250 s  0x7f0000200000  gone   ");
        assert!(line(BlockEvent::Placed, Some(state(true, &[(1, 512)]))).ends_with("placed   one huge page on node 1"));
    }
}
