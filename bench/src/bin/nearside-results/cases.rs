//! The machines and workloads of the comparison.

use std::path::Path;

/// A virtual machine and its workloads.
pub struct Machine {
    /// Its name in tables.
    pub name: &'static str,
    pub preset: &'static str,
    /// CPUs used of each node, if not all.
    pub cpus_per_node: Option<u32>,
    /// Total number of CPUs.
    pub cpus: u32,
    pub time_scale: u32,
    pub cases: &'static [Case],
    /// Workloads per boot. A boot that the host kills loses all of its results.
    pub cases_per_boot: usize,
}

/// A workload: its verb, with a size that takes some tenths of a second of simulated time.
pub struct Case {
    pub verb: &'static str,
    pub options: &'static str,
    /// Whether its threads are bound to CPUs, as elsewhere in nearside's documents; processes are not.
    pub pinned: bool,
    /// Its policies, in the order of the tables.
    pub policies: &'static str,
}

const fn pinned(verb: &'static str, options: &'static str) -> Case {
    Case { verb, options, pinned: true, policies: POLICIES }
}

const fn free(verb: &'static str, options: &'static str) -> Case {
    Case { verb, options, pinned: false, policies: POLICIES }
}

/// Policies of every workload.
const POLICIES: &str = "first-touch,interleave,kernel,carrefour";
/// numad considers only processes of at least 300 MB, once per second at most: one workload shows that it ignores
/// smaller ones.
const OF_STREAMCLUSTER: &str = "first-touch,interleave,kernel,numad,carrefour";
/// Policies that place processes, which only these workloads have.
pub const OF_MIX: &str = "first-touch,interleave,kernel,numad,carrefour,balanced+local,auto,auto-threads";

/// A round is 20 ms. `streamcluster` has some 70 of them, because moving a page takes as long as on a real machine and
/// only a long run amortizes that; the others have at least ten. The hot node of `is` moves once per round.
pub const CASES: [Case; 13] = [
    Case { policies: OF_STREAMCLUSTER, ..pinned("streamcluster", "--repeat 100") },
    pinned("facerec", "--size 15M --repeat 6"),
    pinned("psearchy", "--size 48M --repeat 60"),
    pinned("webserver", "--size 24M --repeat 15"),
    pinned("cg", "--size 32M --repeat 10"),
    pinned("is", "--size 32M --repeat 4 --sweeps 20 --period 18ms"),
    pinned("ft", "--size 16M --repeat 20"),
    pinned("graph", "--size 32M --repeat 6"),
    pinned("kv", "--size 64M --repeat 24"),
    pinned("pipeline", "--size 32M --repeat 50"),
    pinned("levenshtein", "--repeat 24"),
    free("hmake", "--repeat 48"),
    Case { policies: OF_MIX, ..free("mix", "--repeat 6") },
];

/// Rounds of 100 ms and five times the work, for the workloads that lose most with rounds of 20 ms: a round costs the
/// same, whatever its length.
const LONGER_ON_B: [Case; 2] = [
    Case { policies: OF_LONGER, ..pinned("psearchy", "--size 48M --repeat 300") },
    Case { policies: OF_LONGER, ..pinned("facerec", "--size 15M --repeat 30") },
];
const LONGER_ON_MAGNY_COURS: [Case; 2] = [
    Case { policies: OF_LONGER, ..pinned("psearchy", "--size 48M --repeat 300") },
    Case { policies: OF_LONGER, ..pinned("ft", "--size 16M --repeat 100") },
];
const OF_LONGER: &str = "first-touch,carrefour";

/// Divisor of the periods of programs and policies. Memory is some tens of times smaller than that of real programs,
/// too.
const TIME_SCALE: u32 = 50;
const TIME_SCALE_OF_LONGER: u32 = 10;

/// All of the results.
pub const MACHINES: [Machine; 5] = [
    Machine {
        name: "A",
        preset: "opteron-8380x4",
        cpus_per_node: None,
        cpus: 16,
        time_scale: TIME_SCALE,
        cases: &CASES,
        cases_per_boot: 3,
    },
    Machine {
        name: "B",
        preset: "opteron-6164x2",
        cpus_per_node: None,
        cpus: 24,
        time_scale: TIME_SCALE,
        cases: &CASES,
        cases_per_boot: 3,
    },
    Machine {
        name: "magny-cours-4p",
        preset: "magny-cours-4p",
        cpus_per_node: Some(3),
        cpus: 24,
        time_scale: TIME_SCALE,
        cases: &CASES,
        cases_per_boot: 3,
    },
    Machine {
        name: "B, longer rounds",
        preset: "opteron-6164x2",
        cpus_per_node: None,
        cpus: 24,
        time_scale: TIME_SCALE_OF_LONGER,
        cases: &LONGER_ON_B,
        cases_per_boot: 1,
    },
    Machine {
        name: "magny-cours-4p, longer rounds",
        preset: "magny-cours-4p",
        cpus_per_node: Some(3),
        cpus: 24,
        time_scale: TIME_SCALE_OF_LONGER,
        cases: &LONGER_ON_MAGNY_COURS,
        cases_per_boot: 1,
    },
];

impl Machine {
    /// Whether rounds and programs are longer here than elsewhere.
    pub fn has_longer_rounds(&self) -> bool {
        self.time_scale < TIME_SCALE
    }

    /// Folder of its results.
    pub fn folder(&self) -> String {
        if self.has_longer_rounds() {
            format!("{}-time-scale-{}", self.preset, self.time_scale)
        } else {
            self.preset.to_owned()
        }
    }
}

impl Case {
    /// Runs under each policy. If the kernel chooses CPUs, runs differ.
    fn runs(&self) -> u32 {
        if self.pinned { 1 } else { 3 }
    }

    /// The workload's command line.
    pub fn command(&self, machine: &Machine) -> String {
        let pin = if self.pinned { format!(" --pin 0-{}", machine.cpus - 1) } else { String::new() };
        let command = format!("nearside-workloads {} {}", self.verb, self.options);
        format!("{}{pin} --json", command.trim_end())
    }

    /// Runs it under a policy, ignoring failures.
    pub fn script(&self, policy: &str, machine: &Machine, json: &Path) -> String {
        format!(
            "nearside compare --policies {policy} --repeat {} --seconds /seconds --json - -- {} >> '{}' || true\n",
            self.runs(),
            self.command(machine),
            json.display(),
        )
    }
}
