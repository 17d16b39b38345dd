//! Changed inputs for every parser of outside data. Each batch runs in a process of its own, with 1 GiB of memory and 10 s
//! for each input; the input that was being read when it ended badly is kept.

use crate::Part;
use crate::random::Random;
use fuzz_targets::{TARGETS, Target, target};
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Memory of a batch, as resident set: addresses of a process that only reserves them cost nothing.
const MOST_BYTES: u64 = 1 << 30;
/// Time for one input.
const MOST_TIME: Duration = Duration::from_secs(10);
/// Inputs of a batch.
const BATCH: u64 = 5000;
/// Changes of one input, at most, and bytes of a change.
const CHANGES: usize = 6;
const LENGTH: usize = 48;
/// Longest input: some fixtures are recordings of megabytes, of which few would be tried in a second.
const MOST_SEED_BYTES: u64 = 256 << 10;
/// Batches between two looks at the batch that runs.
const LOOK: Duration = Duration::from_millis(20);
/// Where the seeds are, from the root of the sources.
const SEEDS: &str = "fuzz/corpus";
/// Fixtures that are further seeds, by target.
const FIXTURES: [(&str, &str); 3] = [
    ("hwloc_xml", "crates/machine/tests/fixtures"),
    ("machine_toml", "machines"),
    ("perf_data", "crates/trace/tests/perf_data"),
];

/// Tries this number of inputs, the same number for each parser.
pub fn run(count: u64, seed: u64, keep: &Path) -> Part {
    fs::create_dir_all(keep)?;
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let current = folder.path().join("input");
    let (mut tried, mut broken, mut peak) = (0, Vec::new(), 0);
    let of_each = count.div_ceil(TARGETS.len() as u64);
    for target in TARGETS {
        let mut left = of_each;
        while left > 0 && broken.len() < 20 {
            let now = left.min(BATCH);
            let seed = seed.wrapping_add(tried);
            match one_batch(*target, seed, now, &current)? {
                Ended::Well(bytes) => peak = peak.max(bytes),
                Ended::Badly(why) => {
                    let kept = keep.join(format!("{}-{seed}", target.name));
                    fs::copy(&current, &kept)?;
                    broken.push(format!("{} {why}: {}", target.name, kept.display()));
                }
            }
            tried += now;
            left -= now;
        }
    }
    Ok((format!("{tried} inputs of {} parsers, peak {} MiB", TARGETS.len(), peak >> 20), broken))
}

enum Ended {
    /// With this peak of memory, as seen.
    Well(u64),
    Badly(String),
}

fn one_batch(target: Target, seed: u64, count: u64, current: &Path) -> io::Result<Ended> {
    fs::write(current, b"")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--batch", target.name, &seed.to_string(), &count.to_string()]);
    let child = command.env("TORTURE_INPUT", current).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut child = Killed(child);
    let mut peak = 0;
    loop {
        if let Some(status) = child.0.try_wait()? {
            return Ok(match (status.success(), status.signal()) {
                (true, _) => Ended::Well(peak),
                (_, Some(signal)) => Ended::Badly(format!("ended by signal {signal}")),
                _ => Ended::Badly("panicked".to_owned()),
            });
        }
        peak = peak.max(peak_bytes(child.0.id()));
        if peak > MOST_BYTES {
            return Ok(Ended::Badly(format!("took {} MiB", peak >> 20)));
        }
        // It is written before each input.
        let since = fs::metadata(current)?.modified()?;
        if SystemTime::now().duration_since(since).is_ok_and(|since| since > MOST_TIME) {
            return Ok(Ended::Badly("took more than 10 s".to_owned()));
        }
        sleep(LOOK);
    }
}

/// Ends a batch that is no longer waited for.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Peak of a process's resident memory; 0 if it has ended.
fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Runs a batch in this process.
pub fn batch(name: &str, seed: &str, count: &str) -> io::Result<()> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let target = target(name).ok_or_else(|| wrong("no such parser"))?;
    let (seed, count) = (seed.parse::<u64>(), count.parse::<u64>());
    let (Ok(seed), Ok(count)) = (seed, count) else { return Err(wrong("no number")) };
    let current = PathBuf::from(std::env::var_os("TORTURE_INPUT").ok_or_else(|| wrong("TORTURE_INPUT is not set"))?);
    let (seeds, mut random) = (seeds(name)?, Random(seed));
    let mut file = fs::File::create(current)?;
    for _ in 0..count {
        let input = changed(&seeds, &mut random);
        io::Seek::rewind(&mut file)?;
        file.write_all(&input)?;
        file.set_len(input.len() as u64)?;
        let began = Instant::now();
        (target.run)(&input);
        assert!(began.elapsed() < MOST_TIME, "took too long");
    }
    Ok(())
}

/// The seeds of a parser, in the order of their paths.
fn seeds(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let of_name = FIXTURES.iter().filter(|(target, _)| *target == name).map(|(_, folder)| root.join(folder));
    let mut files = Vec::new();
    for folder in std::iter::once(root.join(SEEDS).join(name)).chain(of_name) {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = fs::metadata(entry.path())?;
            if metadata.is_file() && metadata.len() <= MOST_SEED_BYTES {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    files.into_iter().map(fs::read).collect()
}

/// A seed with some changes.
fn changed(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds.get(random.below(seeds.len())).cloned().unwrap_or_default();
    for _ in 0..=random.below(CHANGES) {
        change(&mut bytes, seeds, random);
    }
    bytes
}

/// Values at which sizes and counts go wrong, as often as any others.
fn value(random: &mut Random) -> u8 {
    const SPECIAL: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'9', b'-', b' ', b'\n', b'"', b'<'];
    if random.below(2) == 0 { random.next() as u8 } else { SPECIAL[random.below(SPECIAL.len())] }
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + 1 + random.below(LENGTH)).min(bytes.len());
    match random.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value(random);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => {
            let more: Vec<u8> = (0..=random.below(LENGTH)).map(|_| value(random)).collect();
            bytes.splice(at..at, more);
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let part = bytes.get(at..end).unwrap_or_default().to_vec();
            bytes.splice(at..at, part);
        }
        5 => {
            let other = seeds.get(random.below(seeds.len())).map_or(&[][..], Vec::as_slice);
            bytes.truncate(at);
            bytes.extend(other.get(random.below(other.len() + 1)..).unwrap_or_default());
        }
        6 => bytes.truncate(at),
        // A number of 4 or 8 bytes: a length or a count.
        _ => {
            let width = if random.below(2) == 0 { 4 } else { 8 };
            let number = random.next() >> random.below(64);
            if let Some(place) = bytes.get_mut(at..at + width) {
                place.copy_from_slice(&number.to_le_bytes()[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parser_has_seeds_and_the_same_inputs_for_a_seed() {
        for target in TARGETS {
            let seeds = seeds(target.name).unwrap();
            assert!(!seeds.is_empty(), "{}", target.name);
            let inputs = |seed| {
                let mut random = Random(seed);
                (0..20).map(|_| changed(&seeds, &mut random)).collect::<Vec<_>>()
            };
            assert_eq!(inputs(1), inputs(1));
            assert!(inputs(1).iter().any(|input| !seeds.contains(input)), "{}", target.name);
        }
    }
}
