//! Call chains, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

/// The ID of a call chain in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

/// Maximum number of chains. With 32 frames each they take about 350 MB. Recursive code has a chain for each depth.
const MOST: usize = 1 << 20;
/// Maximum number of frames of all chains.
const MOST_FRAMES: usize = MOST * 32;

/// Call chains: return addresses, innermost first. The empty chain always exists.
#[derive(Clone, Debug)]
pub struct Stacks {
    chains: Vec<Arc<[u64]>>,
    ids: HashMap<Arc<[u64]>, StackId>,
    frames: usize,
    most: usize,
    unkept: u64,
}

impl Stacks {
    /// The empty chain, for unknown code.
    pub const UNKNOWN: StackId = StackId(0);

    /// Creates a set with only the empty chain.
    pub fn new() -> Self {
        let empty: Arc<[u64]> = Arc::new([]);
        Self { chains: vec![empty.clone()], ids: [(empty, Self::UNKNOWN)].into(), frames: 0, most: MOST, unkept: 0 }
    }

    /// Stores a chain and returns its ID. Beyond a million chains, or 32 million frames, new ones are [`Stacks::UNKNOWN`].
    pub fn id(&mut self, chain: &[u64]) -> StackId {
        if let Some(&id) = self.ids.get(chain) {
            return id;
        }
        let frames = self.frames.saturating_add(chain.len());
        if self.chains.len() >= self.most || frames > MOST_FRAMES {
            self.unkept += 1;
            return Self::UNKNOWN;
        }
        let (chain, id) = (Arc::<[u64]>::from(chain), StackId(self.chains.len() as u32));
        self.frames = frames;
        self.chains.push(chain.clone());
        self.ids.insert(chain, id);
        id
    }

    /// The chain with this ID; empty if it was not stored.
    pub fn chain(&self, id: StackId) -> &[u64] {
        self.chains.get(id.0 as usize).map_or(&[], |chain| chain)
    }

    /// How often a chain could not be stored because the set was full.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    /// All chains, by ID.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (StackId, &[u64])> {
        self.chains.iter().enumerate().map(|(number, chain)| (StackId(number as u32), &**chain))
    }
}

impl Default for Stacks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_chain_is_kept_once() {
        let mut stacks = Stacks::new();
        let chains: [&[u64]; 4] = [&[1, 2, 3], &[1, 2], &[], &[1, 2, 3]];
        let ids = chains.map(|chain| stacks.id(chain));
        assert_eq!(ids.map(|id| stacks.chain(id).to_vec()), chains.map(<[u64]>::to_vec));
        assert_eq!((ids[0], ids[2]), (ids[3], Stacks::UNKNOWN));
        assert_eq!(stacks.iter().map(|(id, _)| id).collect::<HashSet<_>>(), ids.into());
        assert!(stacks.chain(StackId(77)).is_empty());
    }

    #[test]
    fn of_too_many_chains_the_last_are_unknown_and_counted() {
        let mut stacks = Stacks { most: 3, ..Stacks::new() };
        let ids = [1, 2, 3, 3, 1].map(|address| stacks.id(&[address]));
        assert_eq!(ids, [StackId(1), StackId(2), Stacks::UNKNOWN, Stacks::UNKNOWN, StackId(1)]);
        assert_eq!((stacks.iter().len(), stacks.unkept()), (3, 2));
        let mut long = Stacks { frames: MOST_FRAMES - 3, ..Stacks::new() };
        assert_eq!([[1, 2], [3, 4]].map(|chain| long.id(&chain)), [StackId(1), Stacks::UNKNOWN]);
    }
}
