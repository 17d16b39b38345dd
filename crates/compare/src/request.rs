//! What is to be compared, and on which machine.

use crate::candidate::Candidate;
use explore::Seconds;
use machine::Machine;
use placement::{Policy, PolicyError, PolicyName, Settings};
use std::ffi::OsString;
use std::path::PathBuf;

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The policies.
    pub candidates: &'a [Candidate],
    /// Runs under each.
    pub repeat: usize,
    /// Unmeasured runs under each before these; by default one, and none in the lab where the page cache is the same before
    /// each.
    pub warm_ups: Option<usize>,
    /// Where the program prints its run time; without it, the time is from its `exec` to its end.
    pub seconds: Option<&'a Seconds>,
    /// Static bindings that [`Candidate::Oracle`] tries.
    pub oracle_tries: usize,
    /// Leave the page cache as each run leaves it.
    pub keep_caches: bool,
    /// More options of `nearside place`, for nearside's own policies.
    pub place_options: &'a [String],
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
            warm_ups: None,
            seconds: None,
            oracle_tries: 0,
            keep_caches: true,
            place_options: &[],
        };
        let (all, repeated) =
            (candidates(&["kernel", "bind:0", "bind:1"]), candidates(&["kernel", "bind:0", "kernel"]));
        assert_eq!(request(&all).repeated_candidate(), None);
        assert_eq!(request(&repeated).repeated_candidate(), Some(&Candidate::Kernel));
    }
}
