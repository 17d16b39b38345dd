//! Objects that only their own thread uses, but that share pages with those of other threads: the tables of Mosbench's
//! psearchy.
//!
//! In psearchy, each thread indexes words in its own table. All tables take their blocks from one heap, so that the
//! blocks of several threads are on one page, whose node is that of the thread that touched it first: in half of the
//! cases, a neighbour's. The `MemProf` study finds 17 % of accesses remote, each object used only by the thread that
//! allocated it, and no node saturated; interleaving makes it slower, and the cure is to allocate on the thread's own
//! node, in the thread's own pages, which `--cure` does.

use crate::arithmetic::mix;
use crate::error::Error;
use crate::memory::{self, filled};
use crate::team::{Span, Team};
use linux::share_one_heap;
use machine::Random;
use serde::Serialize;
use std::fmt;

/// Lines of a block: two pages. It starts anywhere in a page, as the heap has its own words between blocks: on average
/// a quarter of it is on a page that also has a part of the preceding block.
const BLOCK_LINES: usize = 128;
const PAGE_LINES: usize = 64;
/// Arithmetic for each word that is looked up, in steps of four instructions: enough that a core has one line in flight
/// at a time.
const STEPS: usize = 14;

/// The same for each word that is put into a block: enough that a block takes longer than the lab's CPUs may be apart.
const INDEX_STEPS: usize = 36;

/// A bucket of the table: a cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

#[repr(align(4096))]
struct Page([Line; PAGE_LINES]);

/// A block of a table.
enum Block {
    /// Anywhere in the heap.
    Packed(Vec<Line>),
    /// In pages of its own.
    Paged(Vec<Page>),
}

/// One thread's table.
struct Table {
    blocks: Vec<Block>,
    built: Result<(), Error>,
    random: Random,
    sum: u64,
}

/// Duration and result of the index.
#[derive(Debug, Serialize)]
pub struct Index {
    cure: bool,
    /// Words that all threads looked up.
    words: usize,
    /// Time of the rounds.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all results, which depend only on size, threads and rounds.
    checksum: String,
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} words, checksum {}", self.span.seconds, self.words, self.checksum)
    }
}

/// Each thread looks words up in its share of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize, cure: bool) -> Result<Index, Error> {
    memory::check(size)?;
    share_one_heap().map_err(Error::System)?;
    let blocks = (size / team.threads / size_of::<Line>() / BLOCK_LINES).max(1);
    let words = blocks * BLOCK_LINES;
    let mut tables: Vec<Table> = (0..team.threads).map(|thread| Table::new(thread, blocks)).collect();
    let rounds = team.parallel_rounds(tables.iter_mut().collect(), repeat + 1, |table, round| {
        if round == 0 {
            table.built = table.build(blocks, cure);
        } else if table.built.is_ok() {
            table.look_up(words);
        }
    })?;
    let span = Span::from_rounds(rounds.get(1..).unwrap_or_default());
    let mut sum = 0_u64;
    for table in tables {
        table.built?;
        sum = sum.wrapping_add(table.sum);
    }
    Ok(Index { cure, words: words * team.threads * repeat, span, checksum: format!("{sum:016x}") })
}

impl Block {
    /// A new table of arbitrary words. Not inlined, so that the blocks' call chains name it.
    #[inline(never)]
    fn take(own_pages: bool, random: &mut Random) -> Result<Self, Error> {
        let mut line = || Line(std::array::from_fn(|_| mix(random.bits(), INDEX_STEPS)));
        if own_pages {
            let page = |_| Page(std::array::from_fn(|_| line()));
            return Ok(Self::Paged(filled(BLOCK_LINES.div_ceil(PAGE_LINES), page)?));
        }
        Ok(Self::Packed(filled(BLOCK_LINES, |_| line())?))
    }

    fn line(&mut self, place: usize) -> &mut Line {
        match self {
            Self::Packed(lines) => &mut lines[place],
            Self::Paged(pages) => &mut pages[place / PAGE_LINES].0[place % PAGE_LINES],
        }
    }
}

impl Table {
    fn new(thread: usize, blocks: usize) -> Self {
        Self { blocks: Vec::with_capacity(blocks), built: Ok(()), random: Random(thread as u64 + 1), sum: 0 }
    }

    /// Takes block after block, like threads that index at the same time: the work with a block takes longer than
    /// taking one, so that blocks of different threads alternate.
    fn build(&mut self, blocks: usize, own_pages: bool) -> Result<(), Error> {
        for _ in 0..blocks {
            // The same words, whatever follows the block's lines on its last page.
            let mut words = Random(self.random.bits());
            self.blocks.push(Block::take(own_pages, &mut words)?);
        }
        Ok(())
    }

    /// Looks words up, and counts each in its bucket.
    #[inline(never)]
    fn look_up(&mut self, words: usize) {
        // Tables of several threads share cache lines: data that changes with each word is kept apart.
        let (mut random, mut sum) = (Random(self.random.0), self.sum);
        for _ in 0..words {
            let word = mix(random.bits(), STEPS);
            let place = Random(word).below(self.blocks.len() * BLOCK_LINES);
            let bucket = self.blocks[place / BLOCK_LINES].line(place % BLOCK_LINES);
            sum = sum.wrapping_add(bucket.0[0] ^ bucket.0[1]);
            bucket.0[1] = bucket.0[1].wrapping_add(1);
        }
        (self.random, self.sum) = (random, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_the_same_words_in_pages_of_their_own() {
        let found = |own_pages| {
            let mut table = Table::new(3, 20);
            table.build(20, own_pages).unwrap();
            table.look_up(5000);
            table.sum
        };
        assert_eq!(found(false), found(true));
    }

    #[test]
    fn a_block_of_its_own_pages_begins_with_one() {
        let mut block = Block::take(true, &mut Random(1)).unwrap();
        assert!((&raw const *block.line(0)).addr().is_multiple_of(4096));
        assert_eq!(size_of::<Page>(), 4096);
    }
}
