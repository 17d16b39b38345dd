//! Every target on its seeds, and on changed ones: bytes flipped, inserted, removed, repeated, taken from another seed.
//! libFuzzer (`make fuzz`) finds more, as it looks which code an input reaches, and how numbers overflow.

use fuzz_targets::target;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;

/// Changed seeds of each target.
const CASES: u32 = 3000;
/// Changes of one seed, at most.
const CHANGES: usize = 6;
/// Bytes that a change inserts, removes or repeats, at most.
const LENGTH: usize = 48;

/// A change of a seed. Places and lengths are cut to what is there.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    /// From here on it goes on as another seed, from there on.
    Splice(Index, Vec<u8>, Index),
    Cut(Index),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |index: &Index| index.index(length + 1);
        let range = |index: &Index, count: usize| place(index)..(place(index) + count).min(length);
        match self {
            Self::Set(index, value) => {
                if let Some(byte) = bytes.get_mut(index.index(length.max(1))) {
                    *byte = *value;
                }
            }
            Self::Flip(index, bit) => {
                if let Some(byte) = bytes.get_mut(index.index(length.max(1))) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Insert(index, more) => drop(bytes.splice(place(index)..place(index), more.iter().copied())),
            Self::Remove(index, count) => drop(bytes.drain(range(index, *count))),
            Self::Repeat(index, count) => {
                let part = bytes[range(index, *count)].to_vec();
                bytes.splice(place(index)..place(index), part);
            }
            Self::Splice(index, other, from) => {
                bytes.truncate(place(index));
                bytes.extend(&other[from.index(other.len() + 1)..]);
            }
            Self::Cut(index) => bytes.truncate(place(index)),
        }
    }
}

/// Values at which sizes and counts go wrong, as often as any others.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), select(vec![0, 1, 0x7f, 0x80, 0xff, b'0', b'9', b'-', b' ', b'\n', b'"', b'<'])]
}

fn change(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    prop_oneof![
        (place(), byte()).prop_map(|(index, value)| Change::Set(index, value)),
        (place(), 0..8_u8).prop_map(|(index, bit)| Change::Flip(index, bit)),
        (place(), proptest::collection::vec(byte(), 1..LENGTH)).prop_map(|(index, more)| Change::Insert(index, more)),
        (place(), 1..LENGTH).prop_map(|(index, length)| Change::Remove(index, length)),
        (place(), 1..LENGTH).prop_map(|(index, length)| Change::Repeat(index, length)),
        (place(), select(seeds), place()).prop_map(|(index, seed, from)| Change::Splice(index, seed, from)),
        place().prop_map(Change::Cut),
    ]
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn run(name: &str) {
    let (target, seeds) = (target(name).unwrap(), seeds(name));
    for seed in &seeds {
        (target.run)(seed);
    }
    let input = (select(seeds.clone()), proptest::collection::vec(change(seeds), 1..=CHANGES));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let tried = TestRunner::new(config).run(&input, |(mut bytes, changes)| {
        for change in &changes {
            change.apply(&mut bytes);
        }
        (target.run)(&bytes);
        Ok(())
    });
    tried.unwrap_or_else(|why| panic!("{name}: {why}"));
}

macro_rules! tests {
    ($($name:ident)+) => {
        $(#[test] fn $name() { run(stringify!($name)); })+

        #[test]
        fn every_target_is_run() {
            let names: Vec<&str> = fuzz_targets::TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }

        #[test]
        fn every_target_is_in_the_readme() {
            let readme = include_str!("../../../fuzz/README.md");
            let mut rows: Vec<&str> =
                readme.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
            let mut names = vec![$(stringify!($name)),+];
            rows.sort_unstable();
            names.sort_unstable();
            assert_eq!(rows, names);
        }
    };
}

tests! { srat slit hmat hwloc_xml machine_toml synthetic agent_toml campaign_toml plan_toml calls broker_call regions set selection numa_maps smaps node_files cgroup process schemata trace perf_data spe journal allocator }
