//! The programs of a mix, by their memory behaviour.

use crate::arithmetic::mix;
use crate::error::{self, Error};
use crate::levenshtein;
use crate::memory::filled;
use crate::processes::wait_for_start;
use crate::team::{Round, Span, Team};
use clap::ValueEnum;
use machine::Random;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum, strum::IntoStaticStr, strum::VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Program {
    /// 462.libquantum: gates go through all states of a quantum register in order, and change some. Bound by memory's
    /// bandwidth and latency.
    Libquantum,
    /// 471.omnetpp: events in order of time, each for some module of a network. Bound by memory's latency.
    Omnetpp,
    /// STREAM's triad. Bound by memory's bandwidth.
    Triad,
    /// 456.hmmer: dynamic programming along rows that fit into caches, here the distance of two strings. Bound by the
    /// processor.
    Hmmer,
}

/// Gates per round.
const GATES: u64 = 8;
/// Passes per round of the triad.
const TRIADS: usize = 8;
/// Maximum length of a row of `hmmer`, in letters of four bytes each, and number of letters that a round compares them
/// to.
const MOST_LETTERS: usize = 32 << 10;
const LETTERS: usize = 128;

impl Program {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The time that a process reports.
#[derive(Debug, Serialize, Deserialize)]
pub struct OwnTime {
    #[serde(flatten)]
    pub span: Span,
}

impl fmt::Display for OwnTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s", self.span.seconds)
    }
}

/// One process: fills `size` bytes, reports that, and works `repeat` rounds when it gets the start signal.
pub fn run(team: &Team, size: usize, repeat: usize, program: Program) -> Result<OwnTime, Error> {
    let rounds = match program {
        Program::Libquantum => {
            let mut register = Register::new(size)?;
            let rounds = start(team, repeat, |round| register.compute(round as u64))?;
            register.check(repeat as u64)?;
            rounds
        }
        Program::Omnetpp => {
            let mut network = Network::new(size)?;
            let rounds = start(team, repeat, |_| network.simulate())?;
            network.check(repeat)?;
            rounds
        }
        Program::Triad => {
            let mut arrays = Arrays::new(size)?;
            let rounds = start(team, repeat, |_| arrays.triads())?;
            arrays.check(repeat)?;
            rounds
        }
        Program::Hmmer => {
            let columns = (size / size_of::<u32>()).min(MOST_LETTERS);
            let mut rows = levenshtein::Alone::new(columns, LETTERS)?;
            let rounds = start(team, repeat, |_| rows.compare())?;
            rows.check()?;
            rounds
        }
    };
    Ok(OwnTime { span: Span::from_rounds(&rounds) })
}

/// Works after the start signal, on its own thread, as all workloads do.
fn start(team: &Team, repeat: usize, work: impl FnMut(usize) + Send) -> Result<Vec<Round>, Error> {
    wait_for_start()?;
    team.rounds(vec![work], repeat, |work, round| work(round))
}

/// One basis state of a register with its amplitude, as in libquantum.
#[derive(Clone, Copy)]
struct Node {
    amplitude: [f32; 2],
    state: u64,
}

/// A quantum register; gates change its states one after the other.
struct Register(Vec<Node>);

impl Register {
    fn new(size: usize) -> Result<Self, Error> {
        let node = |state| Node { amplitude: [1.0, 0.0], state: state as u64 };
        Ok(Self(filled((size / size_of::<Node>()).max(1), node)?))
    }

    /// Not inlined, as the others, so that profilers can distinguish them.
    #[inline(never)]
    fn compute(&mut self, round: u64) {
        for gate in round * GATES..(round + 1) * GATES {
            let (control, target) = bits(gate);
            for node in &mut self.0 {
                if node.state >> control & 1 == 1 {
                    node.state ^= 1 << target;
                }
            }
        }
    }

    /// The sequential check: gates are linear, so each state is the sum of the results of its bits.
    fn check(&self, rounds: u64) -> Result<(), Error> {
        let apply = |state: u64, gate| {
            let (control, target) = bits(gate);
            state ^ (state >> control & 1) << target
        };
        let image = |bit: u64| (0..rounds * GATES).fold(1 << bit, apply);
        let images: Vec<u64> = (0..64).map(image).collect();
        let mut expected = 0;
        for (state, node) in self.0.iter().enumerate() {
            // The bits that differ from the preceding state are the lowest ones.
            let changed = (state ^ state.wrapping_sub(1)).trailing_ones() as usize;
            let images = if state == 0 { &[] } else { &images[..changed] };
            expected = images.iter().fold(expected, |sum, image| sum ^ image);
            error::check("a state of the register", expected, node.state)?;
            error::check("the amplitude of a state", [1.0, 0.0], node.amplitude)?;
        }
        Ok(())
    }
}

/// The controlling and the changed bit of a gate, which always differ.
fn bits(gate: u64) -> (u64, u64) {
    let mut random = Random(gate);
    let control = random.below(16) as u64;
    (control, (control + 1 + random.below(15) as u64) % 16)
}

/// The state of a module of a simulated network: a cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Module {
    events: u64,
    last: u64,
}

/// A network, its pending events, and statistics of past ones.
struct Network {
    modules: Vec<Module>,
    /// Time and module of each.
    events: BinaryHeap<Reverse<(u64, u32)>>,
    random: Random,
    /// Sum over the modules of all events.
    sum: u64,
    /// Number of events earlier than their predecessors.
    late: usize,
    now: u64,
}

impl Network {
    /// Three quarters of the memory are modules, a quarter events.
    fn new(size: usize) -> Result<Self, Error> {
        let modules = filled((size * 3 / 4 / size_of::<Module>()).max(1), |_| Module { events: 0, last: 0 })?;
        let mut random = Random(1);
        let count = (size / 4 / size_of::<(u64, u32)>()).max(1);
        let events = filled(count, |_| Reverse((random.bits() >> 32, random.below(modules.len()) as u32)))?.into();
        Ok(Self { modules, events, random, sum: 0, late: 0, now: 0 })
    }

    /// As many events as modules: each creates one for another module, some time later.
    #[inline(never)]
    fn simulate(&mut self) {
        for _ in 0..self.modules.len() {
            let Some(mut next) = self.events.peek_mut() else { return };
            let Reverse((time, module)) = *next;
            self.late += usize::from(time < self.now);
            self.now = time;
            self.sum = self.sum.wrapping_add(weight(module as usize));
            let own = &mut self.modules[module as usize];
            (own.events, own.last) = (own.events + 1, time);
            *next = Reverse((time + (self.random.bits() >> 32), self.random.below(self.modules.len()) as u32));
        }
    }

    /// The sequential check: events came in order of time, and modules have all of theirs.
    fn check(&self, rounds: usize) -> Result<(), Error> {
        error::check("the number of late events", 0, self.late)?;
        let events = self.modules.iter().map(|module| module.events).sum();
        error::check("the number of events", (rounds * self.modules.len()) as u64, events)?;
        let weights = self.modules.iter().enumerate().map(|(place, own)| own.events.wrapping_mul(weight(place)));
        error::check("the sum of all events' modules", self.sum, weights.fold(0, u64::wrapping_add))?;
        error::check("the latest event", Some(self.now), self.modules.iter().map(|module| module.last).max())
    }
}

fn weight(module: usize) -> u64 {
    mix(module as u64 + 1, 2)
}

/// STREAM's arrays. Integers are exact while they stay this small.
struct Arrays {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Arrays {
    fn new(size: usize) -> Result<Self, Error> {
        let count = (size / 3 / size_of::<f64>()).max(1);
        Ok(Self { a: filled(count, |_| 0.0)?, b: filled(count, |i| i as f64)?, c: filled(count, |_| 2.0)? })
    }

    #[inline(never)]
    fn triads(&mut self) {
        for pass in 0..TRIADS {
            let scalar = pass as f64;
            for ((a, b), c) in self.a.iter_mut().zip(&self.b).zip(&self.c) {
                *a = b + scalar * *c;
            }
            std::mem::swap(&mut self.a, &mut self.b);
        }
    }

    /// The sequential check, as STREAM's own: the same steps on single numbers, with those of each position.
    fn check(&self, rounds: usize) -> Result<(), Error> {
        let passes = rounds * TRIADS;
        // Each pass adds twice its scalar to the number at a position.
        let added: usize = (0..passes).map(|pass| 2 * (pass % TRIADS)).sum();
        for (place, b) in self.b.iter().enumerate() {
            error::check("a number of the triad", (place + added) as f64, *b)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_is_checked_state_by_state() {
        let mut register = Register::new(16 << 12).unwrap();
        (0..3).for_each(|round| register.compute(round));
        register.check(3).unwrap();
        assert!(register.check(2).is_err());
        assert!((0..1000).map(bits).all(|(control, target)| control != target && control < 16 && target < 16));
        register.0[4095].state ^= 1;
        assert!(matches!(register.check(3), Err(Error::Wrong { .. })));
        register.0[4095].state ^= 1;
        register.0[7].amplitude[1] = 0.5;
        assert!(register.check(3).is_err());
    }

    #[test]
    fn the_network_is_checked_for_what_was_lost() {
        let run = || {
            let mut network = Network::new(64 << 10).unwrap();
            (0..3).for_each(|_| network.simulate());
            network
        };
        run().check(3).unwrap();
        assert!(run().check(4).is_err());
        let wrong: [fn(&mut Network); 4] = [
            |network| network.late = 1,
            |network| network.modules[0].events += 1,
            |network| (network.modules[0].events, network.modules[1].events) = (3000, 3000),
            |network| network.modules[5].last = u64::MAX,
        ];
        for wrong in wrong {
            let mut network = run();
            wrong(&mut network);
            assert!(matches!(network.check(3), Err(Error::Wrong { .. })));
        }
        let mut network = run();
        let total: u64 = network.modules.iter().map(|module| module.events).sum();
        // The same number of events, of other modules.
        network.modules.iter_mut().for_each(|module| module.events = 0);
        network.modules[0].events = total;
        assert!(network.check(3).unwrap_err().to_string().contains("modules"));
    }

    #[test]
    fn events_out_of_order_are_seen() {
        let mut network = Network::new(64 << 10).unwrap();
        network.simulate();
        network.events.push(Reverse((0, 0)));
        network.simulate();
        assert_eq!(network.late, 1);
    }

    #[test]
    fn the_triad_is_checked_number_by_number() {
        let mut arrays = Arrays::new(24 << 10).unwrap();
        (0..2).for_each(|_| arrays.triads());
        arrays.check(2).unwrap();
        assert!(arrays.check(1).is_err());
        arrays.b[1023] += 1.0;
        assert!(matches!(arrays.check(2), Err(Error::Wrong { .. })));
    }
}
