//! Compares on this machine: what is found out before the first run, then the runs.

use crate::page_cache::PageCache;
use crate::request::{Host, Request, check};
use crate::run_once::Runner;
use crate::runs::Runs;
use linux::{NodeError, NodeState, Pid, Process};
use observe::LabCounters;
use placement::PolicyError;
use report::{Comparison, Simulation};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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

impl Request<'_> {
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
        let mut nodes = NodeState::read(Path::new("/sys"))?;
        if nodes.online.len() == 1 {
            let text = "This machine has one node: there is nothing to place, and all policies are equivalent.";
            remarks.push(text.to_owned());
        }
        let mut comparison = self.comparison(host, nodes.online.len(), remarks);
        // Bindings to what a cpuset does not allow would fail.
        if let Ok(own) = Process::open(Pid(std::process::id())).and_then(|own| own.status()) {
            nodes.restrict(&own.nodes, &own.cpus);
        }
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
            warm_ups: self.warm_ups.unwrap_or(usize::from(!host.simulated || self.keep_caches)),
            seconds_are: self.seconds.map_or_else(
                || "from the program's start to its end".to_owned(),
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
    use crate::candidate::Candidate;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Like nearside's verbs, but it tells times of the program that no clock of the comparison could give: no time at all.
    const VERB: &str = r#"#!/bin/sh
while [ "$1" != --times ]; do shift; done
echo '{"began_ns":0,"ended_ns":0}' > "$2"
shift 3
exec "$@"
"#;

    #[test]
    fn the_time_is_what_the_verb_that_starts_the_program_tells_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let nearside = folder.path().join("nearside");
        fs::write(&nearside, VERB).unwrap();
        fs::set_permissions(&nearside, fs::Permissions::from_mode(0o700)).unwrap();
        let host = Host { machine: machine::presets::find("small-2x2").unwrap(), simulated: false, nearside };
        let candidates: Vec<Candidate> =
            ["first-touch", "interleave", "predict"].map(|name| name.parse().unwrap()).into();
        let request = Request {
            command: &["true".into()],
            candidates: &candidates,
            repeat: 1,
            warm_ups: Some(0),
            seconds: None,
            oracle_tries: 0,
            keep_caches: true,
            place_options: &[],
        };
        let compared = request.run(&host, Arc::default(), &|_| (), |_| ()).unwrap();
        let seconds: Vec<f64> =
            compared.policies.iter().flat_map(|policy| &policy.runs).map(|run| run.seconds).collect();
        let [plain, interleaved, placed] = seconds[..] else { panic!("{compared:?}") };
        // Where the kernel's balancing cannot be switched off, a verb starts this one as well, and a note says so.
        assert!(plain > 0.0 || !compared.policies[0].notes.is_empty(), "{compared:?}");
        assert_eq!((interleaved, placed), (0.0, 0.0), "{compared:?}");
    }
}
