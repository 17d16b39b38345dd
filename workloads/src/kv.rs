//! A hash table that threads serve, with some keys requested much more often: a key-value store.
//!
//! One thread fills the table first, as `KeyDB`'s main thread loads the saved database while its server threads wait:
//! so all items are on that thread's node. Then every thread answers requests for any key, as connections are
//! distributed over threads regardless of keys. Most requests read an item; the others change it.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::memory::filled;
use crate::skew::skewed;
use crate::team::{Span, Team};
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a value: with the rest of the item, two cache lines.
const WORDS: usize = 13;
/// Marks the absence of an item.
const NONE: u32 = u32::MAX;

/// An item and its successor in the bucket.
#[repr(C, align(128))]
struct Item {
    key: u64,
    next: u32,
    /// Number of changes.
    changes: AtomicU64,
    value: [u64; WORDS],
}

/// Buckets, each of which starts a list of items.
struct Table {
    bits: u32,
    buckets: Vec<u32>,
    items: Vec<Item>,
}

/// Requests and answers of a thread.
#[derive(Default)]
struct Part {
    requests: u64,
    answers: u64,
    missing: usize,
}

/// A client's request.
struct Request {
    /// Index of the key, below the number of items.
    number: usize,
    changes: bool,
}

/// Duration and result of the answers.
#[derive(Debug, Serialize)]
pub struct Answers {
    items: usize,
    /// Requests of all threads.
    requests: usize,
    /// Requests that change their item, percent.
    updates_percent: u8,
    /// Time of the rounds, without filling the table.
    #[serde(flatten)]
    span: Span,
    /// Sixteen hexadecimal digits computed from all answers and items, which depend only on size, threads, repeats and
    /// updates.
    checksum: String,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, requests, span: Span { seconds, .. }, checksum, .. } = self;
        write!(f, "{seconds:.4} s for {requests} requests to {items} items, checksum {checksum}")
    }
}

/// Threads together answer as many requests as there are items, `repeat` times, from items of `size` bytes.
pub fn run(team: &Team, size: usize, repeat: usize, updates_percent: u8) -> Result<Answers, Error> {
    error::check_count(size, size_of::<Item>())?;
    let table = team.touch(|| Table::load((size / size_of::<Item>()).ilog2()))?;
    let requests = table.items.len().div_ceil(team.threads);
    let mut parts: Vec<Part> = (0..team.threads).map(|_| Part::default()).collect();
    let numbered = parts.iter_mut().enumerate().collect();
    let rounds = team.rounds(numbered, repeat, |(thread, part), _| {
        table.serve(part, *thread, requests, updates_percent);
    })?;
    let sum = check(&table, &parts, updates_percent)?;
    let requests = requests * repeat * team.threads;
    let checksum = format!("{sum:016x}");
    Ok(Answers { items: table.items.len(), requests, updates_percent, span: Span::from_rounds(&rounds), checksum })
}

/// The key of an item.
fn key(number: usize) -> u64 {
    mix(number as u64 + 1, 2)
}

/// The answer to a request for a key: a digest of its value.
fn answer(value: &[u64; WORDS]) -> u64 {
    value.iter().fold(0, |answer, word| mix(answer ^ word, 1))
}

fn value(key: u64) -> [u64; WORDS] {
    std::array::from_fn(|word| key.wrapping_add(word as u64))
}

impl Request {
    /// The request with this number to this thread.
    fn new(thread: usize, number: u64, bits: u32, updates_percent: u8) -> Self {
        let mut random = Random((thread as u64) << 40 | number);
        Self { number: skewed(&mut random, bits), changes: random.below(100) < usize::from(updates_percent) }
    }
}

impl Table {
    /// Not inlined, so that the call chain of the items names it.
    #[inline(never)]
    fn load(bits: u32) -> Result<Self, Error> {
        let mut buckets = filled(2 << bits, |_| NONE)?;
        let items = filled(1 << bits, |number| {
            let key = key(number);
            let bucket = &mut buckets[key as usize & ((2 << bits) - 1)];
            let next = std::mem::replace(bucket, number as u32);
            Item { key, next, changes: AtomicU64::new(0), value: value(key) }
        })?;
        Ok(Self { bits, buckets, items })
    }

    fn find(&self, key: u64) -> Option<&Item> {
        let mut place = self.buckets[key as usize & (self.buckets.len() - 1)];
        loop {
            let item = self.items.get(place as usize)?;
            if item.key == key {
                return Some(item);
            }
            place = item.next;
        }
    }

    #[inline(never)]
    fn serve(&self, part: &mut Part, thread: usize, requests: usize, updates_percent: u8) {
        // Parts of several threads share cache lines: data that changes with each request is kept apart.
        let (mut answers, first) = (part.answers, part.requests);
        part.requests += requests as u64;
        for number in first..part.requests {
            let request = Request::new(thread, number, self.bits, updates_percent);
            match self.find(key(request.number)) {
                Some(item) if request.changes => _ = item.changes.fetch_add(1, Relaxed),
                Some(item) => answers = answers.wrapping_add(answer(&item.value)),
                None => part.missing += 1,
            }
        }
        part.answers = answers;
    }
}

/// The sequential check: all requests once more, without the table; each change is weighted by its key, to find lost or
/// misplaced changes. Returns a hash of answers and changes.
fn check(table: &Table, parts: &[Part], updates_percent: u8) -> Result<u64, Error> {
    let (mut expected, mut changes) = (0_u64, 0_u64);
    for (thread, part) in parts.iter().enumerate() {
        for number in 0..part.requests {
            let request = Request::new(thread, number, table.bits, updates_percent);
            let key = key(request.number);
            if request.changes {
                changes = changes.wrapping_add(key);
            } else {
                expected = expected.wrapping_add(answer(&value(key)));
            }
        }
    }
    let found = parts.iter().fold(0_u64, |sum, part| sum.wrapping_add(part.answers));
    let made = table.items.iter().map(|item| item.changes.load(Relaxed).wrapping_mul(item.key));
    error::check("the number of keys that were not found", 0, parts.iter().map(|part| part.missing).sum())?;
    error::check("the sum of all answers", expected, found)?;
    error::check("the sum of all changes", changes, made.fold(0, u64::wrapping_add))?;
    Ok(mix(found, 1) ^ changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_two_lines() {
        assert_eq!(size_of::<Item>(), 128);
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        let table = Table::load(10).unwrap();
        assert!((0..1024).all(|number| table.find(key(number)).is_some_and(|item| item.key == key(number))));
        assert!((1024..5000).all(|number| table.find(key(number)).is_none()));
    }

    #[test]
    fn a_part_of_the_requests_changes_items() {
        let changes = |percent| (0..1000).filter(|number| Request::new(1, *number, 10, percent).changes).count();
        assert_eq!((changes(0), changes(100)), (0, 1000));
        assert!((30..70).contains(&changes(5)), "{}", changes(5));
    }

    #[test]
    fn the_check_finds_what_was_lost() {
        let mut table = Table::load(10).unwrap();
        let mut parts = [Part::default(), Part::default()];
        for (thread, part) in parts.iter_mut().enumerate() {
            table.serve(part, thread, 300, 10);
            table.serve(part, thread, 300, 10);
        }
        check(&table, &parts, 10).unwrap();
        parts[1].answers ^= 1;
        assert!(check(&table, &parts, 10).unwrap_err().to_string().contains("the sum of all answers"));
        parts[1].answers ^= 1;
        let changed = table.items.iter().position(|item| item.changes.load(Relaxed) > 0).unwrap();
        table.items[changed].changes.fetch_sub(1, Relaxed);
        assert!(check(&table, &parts, 10).is_err());
        // A change of another item.
        table.items[changed ^ 1].changes.fetch_add(1, Relaxed);
        assert!(check(&table, &parts, 10).unwrap_err().to_string().contains("the sum of all changes"));
        // A value that was overwritten.
        let item = table.items.iter_mut().find(|item| item.key == key(Request::new(0, 0, 10, 0).number)).unwrap();
        item.value[3] += 1;
        let mut part = Part::default();
        table.serve(&mut part, 0, 1, 0);
        assert!(check(&table, &[part], 0).is_err());
    }
}
