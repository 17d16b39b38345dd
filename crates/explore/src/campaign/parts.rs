//! Parts of a campaign, for several hosts.

use super::Cell;
use super::file::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A part of a campaign, which one process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its index among the parts.
    pub index: usize,
    /// The number of parts.
    pub count: usize,
    /// What is divided: see [`Part::new`].
    pub(super) of: String,
}

impl Part {
    /// A part of these cells. Other cells divided into as many parts are another division: parts of both could have the same
    /// cell.
    pub fn new(cells: &[&Cell], index: usize, count: usize) -> Self {
        let mut hash = Sha256::new();
        for cell in cells {
            hash.update(&cell.id);
        }
        Self { index, count, of: hex(&hash.finalize()) }
    }
}

/// The index of each cell's part, of this number of parts: that with the fewest cells of its labels and of its pairs of
/// labels so far. A difference between hosts is then none between settings, not even between combinations of two, as
/// baselines often are.
pub fn parts(cells: &[&Cell], count: usize) -> Vec<usize> {
    // Parts beyond the number of cells stay empty.
    let count = count.min(cells.len()).max(1);
    // Of each pair of labels, the cells of each part.
    let mut numbers: BTreeMap<[(usize, usize); 2], Vec<usize>> = BTreeMap::new();
    let mut sizes = vec![0_usize; count];
    let part_of = |cell: &&Cell| {
        let labels: Vec<(usize, usize)> = cell.labels.iter().copied().enumerate().collect();
        // Each label alone is its pair with itself.
        let pairs = || labels.iter().enumerate().flat_map(|(at, a)| labels[at..].iter().map(move |b| [*a, *b]));
        let mut alike = vec![0_usize; count];
        for of_pair in pairs().filter_map(|pair| numbers.get(&pair)) {
            alike.iter_mut().zip(of_pair).for_each(|(sum, number)| *sum += number);
        }
        let part = (0..count).min_by_key(|part| (alike[*part], sizes[*part])).unwrap_or_default();
        pairs().for_each(|pair| numbers.entry(pair).or_insert_with(|| vec![0; count])[part] += 1);
        sizes[part] += 1;
        part
    };
    cells.iter().map(part_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Place;

    /// All cells of a grid with these numbers of labels.
    fn grid(lengths: &[usize]) -> Vec<Cell> {
        let labels = lengths.iter().fold(vec![Vec::new()], |cells: Vec<Vec<usize>>, length| {
            cells.iter().flat_map(|cell| (0..*length).map(|label| [&cell[..], &[label]].concat())).collect()
        });
        let cell = |labels| Cell {
            name: String::new(),
            id: String::new(),
            labels,
            command: Vec::new(),
            environment: BTreeMap::new(),
            place: Place::Here,
            pinning: None,
            balancing: None,
            huge_pages: None,
            kernel_module: None,
        };
        labels.into_iter().map(cell).collect()
    }

    /// Grids of two to five axes, with labels of two, three and more, which dealing in turn or by digits confounds.
    #[test]
    fn parts_have_as_many_cells_of_each_label_and_pair_of_labels() {
        for lengths in [&[2, 3][..], &[4, 3], &[8, 2], &[6, 4], &[7, 4, 3], &[7, 2, 2, 3], &[7, 2, 2, 2, 2]] {
            let cells = grid(lengths);
            let cells: Vec<&Cell> = cells.iter().collect();
            for count in [1, 2, 3, 4, 16] {
                let parts = parts(&cells, count);
                for (first, second) in (0..lengths.len()).flat_map(|a| (a..lengths.len()).map(move |b| (a, b))) {
                    let mut numbers: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
                    for (cell, part) in cells.iter().zip(&parts) {
                        let labels = (cell.labels[first], cell.labels[second]);
                        numbers.entry(labels).or_insert_with(|| vec![0; count])[*part] += 1;
                    }
                    for (labels, numbers) in numbers {
                        let (least, most) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
                        assert!(
                            most - least <= 2,
                            "{lengths:?} of {count}: {first}, {second}: {labels:?}: {numbers:?}"
                        );
                    }
                }
            }
        }
    }
}
