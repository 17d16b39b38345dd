//! Several programs at once, each with one thread: by default three of libquantum, three of omnetpp and six of STREAM's
//! triad, the memory-bound mix by which a manager of programs was evaluated (Müller: Memory and thread management on
//! NUMA systems, 2013, figure 4.7).
//!
//! Each program is a process that fills its own memory, as the originals do, and so has it on the node where it
//! started. The gain depends on which programs share a node's caches and controller, and on memory that follows its
//! thread. The programs of SPEC are not free: `members.rs` reproduces their memory behaviour.

use crate::error::Error;
use crate::members::{OwnTime, Program};
use crate::processes::Process;
use crate::team::{Span, Team};
use linux::{Tid, set_affinity};
use machine::{CpuId, CpuSet};
use serde::Serialize;
use std::fmt;
use std::io;
use std::str::FromStr;
use strum::VariantNames;

/// Some processes of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    program: Program,
    count: usize,
}

impl FromStr for Members {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let program = <Program as clap::ValueEnum>::from_str(name, false)
            .map_err(|_| format!("`{name}` is none of {}", Program::VARIANTS.join(", ")))?;
        match count.parse() {
            Ok(count @ 1..=1000) => Ok(Self { program, count }),
            _ => Err(format!("`{count}` is not a number from 1 to 1000")),
        }
    }
}

/// Duration of the mix.
#[derive(Debug, Serialize)]
pub struct Times {
    /// From the common start to the end of the last.
    #[serde(flatten)]
    span: Span,
    members: Vec<Time>,
}

/// Duration of one process.
#[derive(Debug, Serialize)]
struct Time {
    program: Program,
    seconds: f64,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} s for {} programs:", self.span.seconds, self.members.len())?;
        for (place, member) in self.members.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma} {} {:.4}", member.program.name(), member.seconds)?;
        }
        Ok(())
    }
}

/// Total number of processes.
pub fn count(members: &[Members]) -> usize {
    members.iter().map(|members| members.count).sum()
}

/// Starts a process for each thread of the team, lets all work at the same time, `repeat` times each, and returns the
/// duration of each.
pub fn run(team: &Team, size: usize, repeat: usize, members: &[Members]) -> Result<Times, Error> {
    let programs: Vec<Program> = programs(members).take(team.threads).collect();
    let pins: Vec<CpuId> = team.pins().collect();
    let start = |(member, program): (usize, &Program)| {
        let own: Option<CpuSet> = pins.get(member).map(|cpu| [*cpu].into_iter().collect());
        set_affinity(Tid::CALLER, own.as_ref().unwrap_or(team.allowed()))?;
        let name = program.name();
        Process::start("mix-member", &format!("--size {size} --threads 1 --repeat {repeat} --json --program {name}"))
    };
    let together = || -> io::Result<Times> {
        let mut processes = programs.iter().enumerate().map(start).collect::<io::Result<Vec<_>>>()?;
        set_affinity(Tid::CALLER, team.allowed())?;
        processes.iter_mut().try_for_each(Process::wait_until_ready)?;
        processes.iter_mut().try_for_each(Process::go)?;
        let spans = processes.iter_mut().map(|process| process.answer::<OwnTime>().map(|time| time.span));
        let spans = spans.collect::<io::Result<Vec<Span>>>()?;
        let member = |(span, program): (&Span, &Program)| Time { program: *program, seconds: span.seconds };
        let members = spans.iter().zip(&programs).map(member).collect();
        Ok(Times { span: spans.into_iter().reduce(Span::join).unwrap_or_default(), members })
    };
    together().map_err(Error::System)
}

/// The programs in turn, endlessly.
fn programs(members: &[Members]) -> impl Iterator<Item = Program> {
    let each = |members: &Members| std::iter::repeat_n(members.program, members.count);
    members.iter().flat_map(each).cycle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_programs_and_numbers() {
        let members = |text: &str| text.split(',').map(str::parse).collect::<Result<Vec<Members>, _>>();
        let mix = members("libquantum:2,triad,omnetpp:1").unwrap();
        assert_eq!(count(&mix), 4);
        let names: Vec<_> = programs(&mix).take(6).map(Program::name).collect();
        assert_eq!(names, ["libquantum", "libquantum", "triad", "omnetpp", "libquantum", "libquantum"]);
        for (text, word) in [("gcc", "none of libquantum"), ("triad:0", "`0`"), ("triad:x", "`x`"), ("", "none of")] {
            assert!(members(text).unwrap_err().contains(word), "{text}");
        }
    }
}
