//! What is to be compared, and on which machine.

use crate::candidate::Candidate;
use crate::page_cache::PageCache;
use crate::run_once::Runner;
use crate::runs::Runs;
use explore::Seconds;
use linux::{NodeError, NodeState};
use machine::Machine;
use observe::LabCounters;
use placement::{Policy, PolicyError, PolicyName, Settings};
use report::{Comparison, Simulation};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The policies.
    pub candidates: &'a [Candidate],
    /// Runs under each.
    pub repeat: usize,
    /// Where the program prints its run time; without it, the time is from its start to its end.
    pub seconds: Option<&'a Seconds>,
    /// Static bindings that [`Candidate::Oracle`] tries.
    pub oracle_tries: usize,
    /// Leave the page cache as each run leaves it.
    pub keep_caches: bool,
}

/// The machine that this program runs on.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its description.
    pub machine: Machine,
    /// Whether it is the lab's, where no other program runs.
    pub simulated: bool,
    /// Path of nearside itself, which starts programs under memory policies.
    pub nearside: PathBuf,
}

/// Why nothing can be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A policy needs what the machine lacks.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The machine's nodes cannot be read.
    #[error(transparent)]
    Nodes(#[from] NodeError),
}

/// Checks that a machine has the nodes that policies name.
pub fn check(candidates: &[Candidate], machine: &Machine) -> Result<(), PolicyError> {
    for candidate in candidates {
        // Policies of the same name have the same requirements.
        if let Ok(name) = candidate.to_string().parse::<PolicyName>() {
            Policy::new(name, machine, Settings::default())?;
        }
    }
    Ok(())
}

impl Request<'_> {
    /// The policy that is named twice, if there is one.
    pub fn repeated_candidate(&self) -> Option<&Candidate> {
        let mut rest = self.candidates.iter();
        std::iter::from_fn(|| rest.next().map(|candidate| (candidate, rest.clone())))
            .find_map(|(candidate, mut rest)| rest.any(|other| other == candidate).then_some(candidate))
    }

    /// Compares on this machine. Passes a sentence to `say` as each run ends, and the results so far to `tell`. Ends
    /// early once `interrupted` is set.
    pub fn run(
        &self,
        host: &Host,
        interrupted: Arc<AtomicBool>,
        say: &dyn Fn(&str),
        tell: impl FnMut(&Comparison),
    ) -> Result<Comparison, CompareError> {
        check(self.candidates, &host.machine)?;
        let mut remarks = Vec::new();
        let counters = LabCounters::find().unwrap_or_else(|error| {
            remarks.push(error.to_string());
            None
        });
        let nodes = NodeState::read(Path::new("/sys"))?;
        if nodes.online.len() == 1 {
            let text = "This machine has one node: there is nothing to place, and all policies are equivalent.";
            remarks.push(text.to_owned());
        }
        let mut comparison = self.comparison(host, nodes.online.len(), remarks);
        let mut runs = Runs {
            request: *self,
            page_cache: (!self.keep_caches).then(|| PageCache::new(self.command, &host.nearside)),
            host,
            nodes,
            say,
        };
        runs.run(&mut comparison, &mut Runner::new(counters, interrupted), tell);
        Ok(comparison)
    }

    /// A comparison without results.
    fn comparison(&self, host: &Host, nodes: usize, remarks: Vec<String>) -> Comparison {
        let time_scale = std::env::var(lab::TIME_SCALE).ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
        let simulation = || Simulation {
            model_version: model::VERSION.to_owned(),
            model_without: Vec::new(),
            time_scale,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        };
        Comparison {
            command: self.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
            machine: host.machine.name.clone(),
            nodes,
            cpus: host.machine.cpus().len(),
            simulation: host.simulated.then(simulation),
            repeat: self.repeat,
            seconds_are: self.seconds.map_or_else(
                || "from the start of the command to its end".to_owned(),
                |pattern| format!("what the command prints ({pattern})"),
            ),
            policies: Vec::new(),
            notes: remarks,
            interrupted: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_one_row() {
        let candidates = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Candidate>>();
        let request = |candidates| Request {
            command: &[],
            candidates,
            repeat: 1,
            seconds: None,
            oracle_tries: 0,
            keep_caches: true,
        };
        let (all, repeated) =
            (candidates(&["kernel", "bind:0", "bind:1"]), candidates(&["kernel", "bind:0", "kernel"]));
        assert_eq!(request(&all).repeated_candidate(), None);
        assert_eq!(request(&repeated).repeated_candidate(), Some(&Candidate::Kernel));
    }
}
