//! Cuts a block where its users change: the most likely partition into segments, each with its own shares of nodes,
//! found by dynamic programming, and as long as the Bayesian information criterion says.

/// A table of `n ln n`.
pub(crate) struct Entropies(Vec<f64>);

impl Entropies {
    /// Exact for any number, and fast below this one.
    pub fn below(most: usize) -> Self {
        Self((0..most as u32).map(n_ln_n).collect())
    }

    fn of(&self, n: u32) -> f64 {
        self.0.get(n as usize).copied().unwrap_or_else(|| n_ln_n(n))
    }

    /// The log likelihood of counts by node under their own shares.
    pub fn likelihood(&self, counts: impl Iterator<Item = u32>) -> f64 {
        let (mut sum, mut all) = (0.0, 0);
        for count in counts {
            sum += self.of(count);
            all += count;
        }
        sum - self.of(all)
    }
}

fn n_ln_n(n: u32) -> f64 {
    if n == 0 { 0.0 } else { f64::from(n) * f64::from(n).ln() }
}

/// The best partition of a row of cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Partition {
    /// The first cell of each segment but the first.
    pub cuts: Vec<usize>,
    /// Twice the difference of the log likelihood to that of a single segment.
    pub statistic: f64,
}

/// The logarithm of the likelihood that a further segment must add: it has a position, and shares of its own.
fn penalty(all: u32, nodes: usize) -> f64 {
    (1.5 + (nodes.max(2) - 1) as f64 / 2.0) * f64::from(all.max(2)).ln()
}

/// The best partition of cells, given as counts by node, `nodes` of each cell.
pub(crate) fn partition(counts: &[u32], nodes: usize, entropies: &Entropies) -> Partition {
    let cells = counts.len() / nodes.max(1);
    // Sums of all cells before each.
    let mut before = vec![0; (cells + 1) * nodes];
    for (at, count) in counts.iter().enumerate() {
        before[nodes + at] = before[at] + count;
    }
    let likelihood = |from: usize, to: usize| {
        let sums = before[from * nodes..(from + 1) * nodes].iter().zip(&before[to * nodes..(to + 1) * nodes]);
        entropies.likelihood(sums.map(|(from, to)| to - from))
    };
    let penalty = penalty(before[cells * nodes..].iter().sum(), nodes);
    let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
    for to in 1..=cells {
        let value = |from: usize| (best[from].0 + likelihood(from, to) - penalty, from);
        // Among equals, the longest last segment.
        let found = (1..to).map(value).fold(value(0), |best, next| if next.0 > best.0 { next } else { best });
        best.push(found);
    }
    let mut cuts = Vec::new();
    let mut at = cells;
    while at > 0 {
        at = best[at].1;
        cuts.push(at);
    }
    // The last is the beginning.
    cuts.pop();
    cuts.reverse();
    let segments = (cuts.len() + 1) as f64;
    let statistic = 2.0 * (best[cells].0 + penalty * segments - likelihood(0, cells));
    Partition { statistic: if cuts.is_empty() { 0.0 } else { statistic.max(0.0) }, cuts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The penalised likelihood of a given partition.
    fn value(counts: &[u32], nodes: usize, cuts: &[usize]) -> f64 {
        let cells = counts.len() / nodes;
        let bounds: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).chain([cells]).collect();
        let entropies = Entropies::below(0);
        let of = |bounds: &[usize]| {
            let sum = |node: usize| (bounds[0]..bounds[1]).map(|cell| counts[cell * nodes + node]).sum();
            entropies.likelihood((0..nodes).map(sum)) - penalty(counts.iter().sum(), nodes)
        };
        bounds.windows(2).map(of).sum()
    }

    proptest! {
        #[test]
        fn no_partition_of_few_cells_is_better(counts in prop::collection::vec(0..6_u32, 24), nodes in 2..4_usize) {
            let cells = counts.len() / nodes;
            let counts = &counts[..cells * nodes];
            let found = partition(counts, nodes, &Entropies::below(64));
            let best = value(counts, nodes, &found.cuts);
            for chosen in 0..1_u32 << (cells - 1) {
                let cuts: Vec<usize> = (1..cells).filter(|cut| chosen >> (cut - 1) & 1 == 1).collect();
                prop_assert!(value(counts, nodes, &cuts) <= best + 1e-9, "{cuts:?} is better than {:?}", found.cuts);
            }
        }

        #[test]
        fn the_order_of_cells_does_not_matter(counts in prop::collection::vec(0..40_u32, 32)) {
            let pairs: Vec<[u32; 2]> = counts.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
            let turned: Vec<u32> = pairs.iter().rev().flatten().copied().collect();
            let entropies = Entropies::below(64);
            let (found, turned) = (partition(&counts, 2, &entropies), partition(&turned, 2, &entropies));
            prop_assert!((value(&counts, 2, &found.cuts)
                - value(&pairs.concat().chunks(2).rev().flatten().copied().collect::<Vec<_>>(), 2, &turned.cuts))
                .abs() < 1e-6);
        }
    }

    #[test]
    fn a_clear_border_is_found_and_nothing_is_cut_without_one() {
        let cut = |cells: &[[u32; 2]]| partition(&cells.concat(), 2, &Entropies::below(64));
        let halves: Vec<[u32; 2]> = (0..16).map(|cell| if cell < 5 { [4, 0] } else { [0, 4] }).collect();
        let found = cut(&halves);
        assert_eq!(found.cuts, [5]);
        // Twice the entropy of 20 and 44 of 64.
        let entropy = -2.0 * (20.0 * (20.0_f64 / 64.0).ln() + 44.0 * (44.0_f64 / 64.0).ln());
        assert!((found.statistic - entropy).abs() < 1e-9, "{} is not {entropy}", found.statistic);
        assert_eq!(cut(&[[3, 3]; 16]), Partition { cuts: Vec::new(), statistic: 0.0 });
        assert_eq!(cut(&[]), Partition { cuts: Vec::new(), statistic: 0.0 });
    }
}
