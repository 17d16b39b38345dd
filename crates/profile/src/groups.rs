//! Tallies of a view's accesses for all rankings, in one pass: by object, code location, thread and nodes.

use crate::access_path::CellKey;
use crate::profile::{Access, Profile};
use crate::tally::Tally;
use machine::CpuId;
use rustc_hash::FxHashSet;
use std::thread;

/// Number of parallel parts. Fixed, so that floating-point sums are the same on every machine.
const PARTS: usize = 4;
/// Fewest accesses that are worth a thread.
const FEWEST_A_PART: usize = 1 << 18;

/// Accesses by thread and nodes, in the order of [`Profile::cell_keys`].
#[derive(Clone, Debug)]
pub(crate) struct Cells(Vec<Cell>);

/// Accesses of one thread from one node to one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub tally: Tally,
    /// Latencies of accesses that memory served, each counted once: their number, sum in ns, and sum of squares.
    pub timed: u64,
    pub ns: f64,
    pub squares: f64,
}

/// Tallies of all accesses of a view.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// By number.
    pub objects: Vec<Tally>,
    pub codes: Vec<Tally>,
    pub cells: Cells,
    /// The first and the last access of each thread, ns, by number; in reverse order if there is none.
    pub times: Vec<(u64, u64)>,
    /// The CPUs that made them.
    pub cpus: FxHashSet<CpuId>,
}

impl Cells {
    /// An empty tally.
    pub fn new(profile: &Profile) -> Self {
        Self(vec![Cell::default(); profile.cell_keys().len()])
    }

    #[inline]
    pub fn add(&mut self, access: &Access) {
        let cell = &mut self.0[access.cell as usize];
        cell.tally.add(access);
        if let (true, Some(ns)) = (access.reaches_memory(), access.latency_ns) {
            let ns = f64::from(ns);
            cell.timed += 1;
            cell.ns += ns;
            cell.squares += ns * ns;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (known, cell) in self.0.iter_mut().zip(&other.0).filter(|(_, cell)| cell.tally.samples > 0) {
            known.tally.merge(&cell.tally);
            known.timed += cell.timed;
            known.ns += cell.ns;
            known.squares += cell.squares;
        }
    }

    /// Non-empty cells ordered by thread and nodes, so that sums over them are reproducible.
    pub fn in_order<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = (CellKey, &'a Cell)> {
        let cells = profile.cell_keys().iter().copied().zip(&self.0);
        cells.filter(|(_, cell)| cell.tally.samples > 0)
    }
}

impl Groups {
    /// For the accesses at these positions, or for all.
    pub fn new(profile: &Profile, chosen: Option<&[u32]>) -> Self {
        let count = chosen.map_or(profile.len(), <[u32]>::len);
        let parts = if count / PARTS < FEWEST_A_PART { 1 } else { PARTS };
        let part = |number: usize| {
            let range = count * number / parts..count * (number + 1) / parts;
            match chosen {
                Some(chosen) => Self::count(profile, chosen.get(range).unwrap_or(&[]).iter().map(|at| *at as usize)),
                None => Self::count(profile, range),
            }
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..parts).map(|number| scope.spawn(move || part(number))).collect();
            let mut groups = part(0);
            for other in others {
                groups.merge(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            groups
        })
    }

    fn count(profile: &Profile, positions: impl Iterator<Item = usize>) -> Self {
        let mut groups = Self {
            objects: vec![Tally::default(); profile.objects().len()],
            codes: vec![Tally::default(); profile.codes().len()],
            cells: Cells::new(profile),
            times: vec![(u64::MAX, 0); profile.threads().len()],
            cpus: FxHashSet::default(),
        };
        for access in positions.map(|at| profile.at(at)) {
            groups.objects[access.object.index()].add(&access);
            groups.codes[access.code.index()].add(&access);
            groups.cells.add(&access);
            groups.cpus.insert(access.cpu);
            let (first, last) = &mut groups.times[access.thread.index()];
            *first = access.time_ns.min(*first);
            *last = access.time_ns.max(*last);
        }
        groups
    }

    fn merge(&mut self, other: Self) {
        let tallies = |known: &mut [Tally], others: &[Tally]| {
            for (known, other) in known.iter_mut().zip(others).filter(|(_, other)| other.samples > 0) {
                known.merge(other);
            }
        };
        tallies(&mut self.objects, &other.objects);
        tallies(&mut self.codes, &other.codes);
        self.cells.merge(&other.cells);
        self.cpus.extend(other.cpus);
        for ((first, last), (other_first, other_last)) in self.times.iter_mut().zip(other.times) {
            *first = other_first.min(*first);
            *last = other_last.max(*last);
        }
    }
}
