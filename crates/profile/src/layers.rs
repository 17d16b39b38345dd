//! Ranges inside of others: an object in a pool, the pool in a block, the block in a mapping.

use crate::ranges::{Piece, Ranges};

/// Layers of ranges, the outermost first. Ranges of one layer do not overlap. A range is in a deeper layer than all that
/// it overlapped when it was put there.
#[derive(Clone, Debug)]
pub(crate) struct Layers<T>(Vec<Ranges<T>>);

impl<T> Default for Layers<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Layers<T> {
    /// The innermost range that contains an address, cut to a part around the address in which no range is inside of it.
    pub fn get(&self, address: u64) -> Option<Piece<T>> {
        let (depth, mut piece) = self.around(address).next()?;
        for inner in &self.0[depth + 1..] {
            let (first, last) = inner.gap(address);
            (piece.first, piece.last) = (piece.first.max(first), piece.last.min(last));
        }
        Some(piece)
    }

    /// The ranges that contain an address, the innermost first, each with its depth.
    pub fn around(&self, address: u64) -> impl Iterator<Item = (usize, Piece<T>)> {
        let layers = self.0.iter().enumerate().rev();
        layers.filter_map(move |(depth, layer)| Some((depth, layer.get(address)?)))
    }

    /// The ranges that overlap these addresses, layer by layer, each with its depth.
    pub fn overlapping(&self, first: u64, last: u64) -> impl Iterator<Item = (usize, Piece<T>)> {
        let layers = self.0.iter().enumerate();
        layers
            .flat_map(move |(depth, layer)| layer.overlapping(first, last).into_iter().map(move |piece| (depth, piece)))
    }

    /// Puts a range on top of all that it overlaps. Returns whether there are any.
    pub fn put(&mut self, first: u64, last: u64, value: T) -> bool {
        let below = self.overlapping(first, last).map(|(depth, _)| depth + 1).max();
        self.put_at(below.unwrap_or(0), first, last, value);
        below.is_some()
    }

    /// Puts a range in a layer.
    pub fn put_at(&mut self, depth: usize, first: u64, last: u64, value: T) {
        if self.0.len() <= depth {
            self.0.resize_with(depth + 1, Ranges::default);
        }
        self.0[depth].insert(first, last, value);
    }

    /// Removes these addresses from the ranges that `which` selects by depth and range. Returns the values of the ranges
    /// that lost addresses.
    pub fn cut(&mut self, first: u64, last: u64, which: impl Fn(usize, &Piece<T>) -> bool) -> Vec<T> {
        let cut = |(depth, layer): (usize, &mut Ranges<T>)| layer.cut(first, last, |piece| which(depth, piece));
        self.0.iter_mut().enumerate().flat_map(cut).collect()
    }
}
