//! The distance of two strings, column by column in threads that follow each other (Horký: Support for NUMA hardware in
//! `HelenOS`, 2011, section 7.7): a workload with nothing to gain.
//!
//! Each thread has a range of columns, whose latest row it keeps in memory that it touches first. The column at its
//! right end, which its neighbour reads, is in memory that the first thread fills, as is the text. A thread is at least a
//! row behind its left neighbour. Rows are as long as caches are large, and each cell takes some instructions: it is bound
//! by the processor, not memory. The study's three variants differ in where this memory comes from.

use crate::error::{self, Error};
use crate::memory::{filled, share, untouched};
use crate::team::{Span, Team};
use clap::ValueEnum;
use linux::{Misplaced, Zeroed, allowed_memory_nodes, bind_range};
use machine::{MemoryMode, MemoryPolicy, NodeSet, Random};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

/// The alphabet of the strings.
const LETTERS: usize = 64;
/// A cell that has not been computed yet.
const EMPTY: u32 = u32::MAX;
/// Number of checks for the neighbour's cell before a thread yields.
const LOOKS: usize = 100;

/// Both strings: one along the columns, and one along the rows.
struct Strings {
    columns: Vec<u8>,
    rows: Vec<u8>,
}

/// Where rows and the columns between threads come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The C library's allocator
    Malloc,
    /// Mappings of their own
    Mmap,
    /// Mappings with a policy: rows local, and the columns between threads interleaved
    Numa,
}

/// One thread's columns.
struct Part {
    thread: usize,
    columns: Range<usize>,
    /// The latest row; empty until the first one, if the thread is to allocate it.
    row: &'static mut [u32],
}

/// Duration and result of the comparison.
#[derive(Debug, Serialize)]
pub struct Comparison {
    columns: usize,
    rows: usize,
    memory: Memory,
    /// Number of letters to change, insert or remove: the same for all threads.
    distance: u32,
    /// Time of the rounds.
    #[serde(flatten)]
    span: Span,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, rows, distance, span: Span { seconds, .. }, .. } = self;
        write!(f, "{seconds:.4} s for {columns} by {rows} letters, distance {distance}")
    }
}

/// Compares a string whose row takes `size` bytes with one of `rows` letters, `repeat` times.
pub fn run(team: &Team, size: usize, repeat: usize, rows: usize, memory: Memory) -> Result<Comparison, Error> {
    error::check_count(size, size_of::<u32>())?;
    let columns = size / size_of::<u32>();
    let (strings, ends) = team.touch(|| {
        let ends = || memory.between_threads(team.threads * rows);
        Ok((Strings::new(columns, rows)?, (0..repeat).map(|_| ends()).collect::<Result<Vec<_>, _>>()?))
    })?;
    let part = |thread| {
        let columns = share(columns, team.threads, thread);
        Ok(Part { thread, row: memory.row(columns.len())?, columns })
    };
    let mut parts: Vec<Part> = (0..team.threads).map(part).collect::<Result<_, Error>>()?;
    let rounds = team.rounds(parts.iter_mut().collect(), 1 + repeat, |part, round| match round.checked_sub(1) {
        None => part.start(),
        Some(round) => part.compare(&strings, ends[round]),
    })?;
    let distance = check(&strings, &parts)?;
    Ok(Comparison { columns, rows, memory, distance, span: Span::from_rounds(&rounds[1..]) })
}

/// A repeatable comparison by one thread.
pub struct Alone {
    strings: Strings,
    part: Part,
    ends: &'static [AtomicU32],
}

impl Alone {
    /// Makes strings of these lengths.
    pub fn new(columns: usize, rows: usize) -> Result<Self, Error> {
        let part = Part { thread: 0, columns: 0..columns, row: &mut [] };
        Ok(Self { strings: Strings::new(columns, rows)?, part, ends: Memory::Malloc.between_threads(rows)? })
    }

    /// Runs the comparison.
    pub fn compare(&mut self) {
        self.part.compare(&self.strings, self.ends);
    }

    /// Checks the latest row against the sequential algorithm.
    pub fn check(&self) -> Result<(), Error> {
        check(&self.strings, std::slice::from_ref(&self.part)).map(drop)
    }
}

/// Checks all cells of the last row against the sequential algorithm. Returns the last one: the distance.
fn check(strings: &Strings, parts: &[Part]) -> Result<u32, Error> {
    let mut found = parts.iter().flat_map(|part| part.row.iter());
    let mut distance = 0;
    for cell in last_row(strings) {
        error::check("a cell of the last row", Some(cell), found.next().copied())?;
        distance = cell;
    }
    Ok(distance)
}

impl Memory {
    /// A thread's row, to be filled by it. Memory lives as long as the process.
    fn row(self, count: usize) -> Result<&'static mut [u32], Error> {
        match self {
            Self::Malloc => Ok(&mut []),
            Self::Mmap => mapped(count, None),
            Self::Numa => mapped(count, Some(&MemoryPolicy::plain(MemoryMode::Local))),
        }
    }

    /// Cells that are not computed yet, filled by the calling thread.
    fn between_threads(self, count: usize) -> Result<&'static [AtomicU32], Error> {
        let cells = match self {
            Self::Malloc => return filled(count, |_| AtomicU32::new(EMPTY)).map(|cells| &*cells.leak()),
            Self::Mmap => mapped(count, None)?,
            Self::Numa => {
                let nodes: NodeSet = allowed_memory_nodes().map_err(Error::System)?;
                mapped(count, Some(&MemoryPolicy::new(MemoryMode::Interleave, nodes)))?
            }
        };
        for cell in cells.iter_mut() {
            *AtomicU32::get_mut(cell) = EMPTY;
        }
        Ok(cells)
    }
}

/// Untouched memory with a policy.
fn mapped<T: Zeroed>(count: usize, policy: Option<&MemoryPolicy>) -> Result<&'static mut [T], Error> {
    let array = untouched::<T>(count.max(1))?;
    if let Some(policy) = policy {
        bind_range(array.as_ptr().addr(), size_of_val(array), policy, Misplaced::default()).map_err(Error::System)?;
    }
    Ok(&mut array[..count])
}

impl Strings {
    /// The string along the rows resembles a part of the other, with one letter in eight replaced.
    fn new(columns: usize, rows: usize) -> Result<Self, Error> {
        let mut random = Random(1);
        let columns: Vec<u8> = filled(columns, |_| random.below(LETTERS) as u8)?;
        let letter = |row: usize| match random.below(8) {
            0 => random.below(LETTERS) as u8,
            _ => columns[row % columns.len()],
        };
        Ok(Self { rows: filled(rows, letter)?, columns })
    }
}

impl Part {
    /// The row of the empty string.
    fn start(&mut self) {
        let cells = self.columns.start as u32 + 1..=self.columns.end as u32;
        if self.row.len() != self.columns.len() {
            self.row = cells.collect::<Vec<_>>().leak();
            return;
        }
        self.row.iter_mut().zip(cells).for_each(|(cell, value)| *cell = value);
    }

    /// All rows of this thread's columns. `ends` are the cells at the right end of each thread's columns, thread by
    /// thread.
    #[inline(never)]
    fn compare(&mut self, strings: &Strings, ends: &[AtomicU32]) {
        let rows = strings.rows.len();
        let own = &ends[self.thread * rows..][..rows];
        let neighbour = self.thread.checked_sub(1).map(|left| &ends[left * rows..][..rows]);
        let first = self.columns.start as u32;
        self.start();
        let letters = &strings.columns[self.columns.clone()];
        let mut above = first;
        for (row, letter) in strings.rows.iter().enumerate() {
            let left = neighbour.map_or(row as u32 + 1, |cells| wait_for(&cells[row]));
            let last = next_row(self.row, letters, *letter, above, left);
            own[row].store(last, Relaxed);
            above = left;
        }
    }
}

/// Replaces the last row by the next one; returns its last cell. `above` and `left` are the cells on the left of both.
fn next_row(cells: &mut [u32], letters: &[u8], letter: u8, above: u32, left: u32) -> u32 {
    let (mut diagonal, mut left) = (above, left);
    for (cell, other) in cells.iter_mut().zip(letters) {
        let up = *cell;
        left = if *other == letter { diagonal } else { diagonal.min(up).min(left) + 1 };
        (*cell, diagonal) = (left, up);
    }
    left
}

/// Waits for another thread's cell.
fn wait_for(cell: &AtomicU32) -> u32 {
    let mut looks = 0;
    loop {
        match cell.load(Relaxed) {
            EMPTY if looks < LOOKS => std::hint::spin_loop(),
            EMPTY => thread::yield_now(),
            value => return value,
        }
        looks += 1;
    }
}

/// For the sequential check: the last row by another algorithm, which computes 64 rows at once (Myers: A fast
/// bit-vector algorithm for approximate string matching, 1999; Hyyrö: Explaining and extending the bit-parallel
/// approximate string matching algorithm of Myers, 2001). A column is represented by its increments and decrements.
fn last_row(strings: &Strings) -> impl Iterator<Item = u32> {
    let (rows, blocks) = (strings.rows.len(), strings.rows.len().div_ceil(64));
    let mut equal = vec![[0_u64; LETTERS]; blocks];
    for (row, letter) in strings.rows.iter().enumerate() {
        equal[row / 64][usize::from(*letter)] |= 1 << (row % 64);
    }
    let mut columns = vec![(u64::MAX, 0_u64); blocks];
    let (mut cell, last) = (rows as u32, 1_u64 << ((rows + 63) % 64));
    strings.columns.iter().map(move |letter| {
        // Whether the row above increases or decreases with this column: that of the empty string increases.
        let (mut up, mut down, mut of_last) = (1, 0, (false, false));
        for ((vertical_up, vertical_down), equal) in columns.iter_mut().zip(&equal) {
            let same = equal[usize::from(*letter)];
            let vertical = same | *vertical_down;
            let same = same | down;
            let diagonal = (((same & *vertical_up).wrapping_add(*vertical_up)) ^ *vertical_up) | same;
            let ups = *vertical_down | !(diagonal | *vertical_up);
            let downs = *vertical_up & diagonal;
            let (in_up, in_down) = (ups << 1 | up, downs << 1 | down);
            *vertical_up = in_down | !(vertical | in_up);
            *vertical_down = in_up & vertical;
            (up, down) = (ups >> 63, downs >> 63);
            of_last = (ups & last != 0, downs & last != 0);
        }
        cell = cell + u32::from(of_last.0) - u32::from(of_last.1);
        cell
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(columns: &str, rows: &str) -> Strings {
        let letters = |text: &str| text.bytes().map(|letter| letter % LETTERS as u8).collect();
        Strings { columns: letters(columns), rows: letters(rows) }
    }

    /// By threads that run one after the other, each for all rows.
    fn compared(strings: &Strings, threads: usize) -> Vec<Part> {
        let ends: Vec<_> = (0..threads * strings.rows.len()).map(|_| AtomicU32::new(EMPTY)).collect();
        let compare = |thread| {
            let mut part = Part { thread, columns: share(strings.columns.len(), threads, thread), row: &mut [] };
            part.compare(strings, &ends);
            part
        };
        (0..threads).map(compare).collect()
    }

    #[test]
    fn known_distances() {
        for (columns, rows, known) in [
            ("abcd", "abcd", 0),
            ("aaaa", "bbb", 4),
            ("abcdabcd", "bcda", 4),
            ("ab", "ba", 2),
            ("kitten", "sitting", 3),
        ] {
            let strings = strings(columns, rows);
            assert_eq!(check(&strings, &compared(&strings, 1)).unwrap(), known, "{columns} {rows}");
        }
    }

    #[test]
    fn both_algorithms_agree_for_any_threads() {
        for (columns, rows) in [(300, 1), (300, 63), (300, 64), (200, 65), (500, 200), (130, 300)] {
            let strings = Strings::new(columns, rows).unwrap();
            for threads in [1, 2, 7, 100] {
                check(&strings, &compared(&strings, threads)).unwrap();
            }
        }
    }

    #[test]
    fn the_variants_have_the_same_result() {
        let strings = Strings::new(5000, 70).unwrap();
        for memory in [Memory::Malloc, Memory::Mmap, Memory::Numa] {
            let ends = memory.between_threads(70).unwrap();
            let mut part = Part { thread: 0, columns: 0..5000, row: memory.row(5000).unwrap() };
            part.start();
            part.compare(&strings, ends);
            check(&strings, &[part]).unwrap();
        }
    }

    #[test]
    fn the_check_refuses_any_wrong_cell() {
        let strings = Strings::new(300, 100).unwrap();
        let mut parts = compared(&strings, 3);
        for (thread, column) in [(0, 0), (1, 50), (2, 99)] {
            parts[thread].row[column] -= 1;
            assert!(matches!(check(&strings, &parts), Err(Error::Wrong { .. })));
            parts[thread].row[column] += 1;
        }
        assert!(check(&strings, &parts[..2]).is_err());
        // A wrong cell of a neighbour shows in the rows after it.
        parts[1].row = (101..=200).collect::<Vec<_>>().leak();
        for (row, letter) in (0..).zip(&strings.rows) {
            next_row(parts[1].row, &strings.columns[100..200], *letter, row, row);
        }
        assert!(check(&strings, &parts).is_err());
    }
}
