//! Objects that only their own thread uses, but that share pages with those of other threads: the tables of Mosbench's
//! psearchy.
//!
//! There, threads index words, each in a table of its own. All take its blocks from one heap, so that the blocks of
//! several threads lie on one page, which is on the node of whoever touched it first: the neighbour's table, as often
//! as not. The `MemProf` study finds 17 % of accesses remote, each object used by the thread that allocated it alone,
//! and no node saturated; interleaving makes it slower, and the cure is to allocate on the thread's own node, in pages
//! of the thread's own, which `--cure` does.

use crate::arithmetic::mix;
use crate::error::Error;
use crate::memory::{self, filled};
use crate::team::{Span, Team};
use linux::share_one_heap;
use measure::Random;
use serde::Serialize;
use std::fmt;

/// Lines of a block: two pages. It begins anywhere in a page, as the heap has words of its own between blocks: on
/// average a quarter of it lies on a page that the block before it begins on or goes through.
const BLOCK_LINES: usize = 128;
const PAGE_LINES: usize = 64;
/// Arithmetic for each word that is looked up, of four instructions a step: so much that a core has one line under way
/// at a time.
const STEPS: usize = 14;

/// Likewise for each word that is put into a block: so much that a block takes longer than the lab's CPUs may be apart.
const INDEX_STEPS: usize = 36;

/// A bucket of the table: a cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

#[repr(align(4096))]
struct Page([Line; PAGE_LINES]);

/// A block of a table.
enum Block {
    /// Wherever the heap has room.
    Packed(Vec<Line>),
    /// In pages that nothing else is in.
    Paged(Vec<Page>),
}

/// One thread's table.
struct Table {
    blocks: Vec<Block>,
    built: Result<(), Error>,
    random: Random,
    sum: u64,
}

/// What the index took and what it came to.
#[derive(Debug, Serialize)]
pub struct Index {
    cure: bool,
    /// Words that all threads looked up.
    words: usize,
    /// Of the rounds.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits over all that was found, which depend on size, threads and rounds only.
    checksum: String,
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} words, checksum {}", self.span.seconds, self.words, self.checksum)
    }
}

/// Has every thread look words up in its share of `size` bytes.
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
    let span = Span::of(rounds.get(1..).unwrap_or_default());
    let mut sum = 0_u64;
    for table in tables {
        table.built?;
        sum = sum.wrapping_add(table.sum);
    }
    Ok(Index { cure, words: words * team.threads * repeat, span, checksum: format!("{sum:016x}") })
}

impl Block {
    /// A new one, of any words. Not inlined, so that the blocks' call chains name it.
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

    /// Takes block after block, as threads that index at the same time do: what each does with a block takes longer
    /// than to take one, so that those of different threads follow each other.
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
        // Tables of several threads share cache lines: what changes with each word is kept apart.
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
