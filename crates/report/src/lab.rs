//! The measurements of a run in the lab.

use crate::Table;
use crate::escape::escape_name;
use machine::number::{count, percent};
use machine::size;
use model::{Measured, Mechanism};
use serde::Serialize;
use std::fmt;

/// Most links in the table: the busiest.
const LINKS_SHOWN: usize = 8;

/// A run of one command on a virtual machine. Its JSON form is complete.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabReport {
    /// Always true, so that these numbers are not mistaken for a real machine's.
    pub simulated: bool,
    /// The machine's name.
    pub machine: String,
    /// The version of the model.
    pub model_version: String,
    /// The parts of the model that were switched off.
    pub model_without: Vec<Mechanism>,
    /// Factor by which the periods of kernel services were divided.
    pub time_scale: u32,
    /// CPUs of the virtual machine.
    pub cpus: usize,
    /// Memory of each node, ordered by node ID, bytes.
    pub memory_bytes: Vec<u64>,
    /// The guest's kernel.
    pub kernel: String,
    /// Kernel modules that were loaded for the command, with their parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_modules: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The command's exit status; 128 + n for signal n.
    pub exit_status: i32,
    /// Host time from the start of the machine to the start of the command, s.
    pub boot_s: f64,
    /// Whether the machine continued a saved boot in that time, instead of booting.
    pub saved_boot: bool,
    /// Host time that the command took, s.
    pub host_s: f64,
    /// The samples, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// What was moved, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shake: Option<Shake>,
    /// What the model measured from the command's start to its end.
    #[serde(flatten)]
    pub measured: Measured,
}

/// Samples of misses in the first-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Samples {
    /// Sampling period, in misses.
    pub period: u64,
    /// Samples taken.
    pub taken: usize,
    /// Samples that were dropped because the buffer was full.
    pub dropped: u64,
}

/// Threads and pages that were moved, by decisions of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shake {
    /// The seed.
    pub seed: u64,
    /// Rounds, one each 10 ms of simulated time.
    pub rounds: u64,
    /// Threads that were confined to another node for a round.
    pub thread_moves: u64,
    /// Pages moved to another node, of any size.
    pub pages_moved: u64,
}

impl fmt::Display for LabReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.measured.counters;
        writeln!(f, "simulated on {}", self.heading())?;
        let mut facts = Table::default();
        let mut fact = |name: &str, value: String| facts.row([format!("  {name:<20}{value}")]);
        let began = if self.saved_boot { "continue its saved boot" } else { "boot" };
        let host = format!("{:.1} s on this host, {:.1} s to {began}", self.host_s, self.boot_s);
        fact("time", format!("{:.6} s simulated ({host})", counters.time_s));
        fact("instructions", count(self.measured.instructions));
        let Measured { cpu_time_s, memory_wait_s, .. } = self.measured;
        let waiting = if cpu_time_s > 0.0 { percent(memory_wait_s / cpu_time_s) } else { "-".into() };
        fact("waiting for memory", format!("{waiting} of {cpu_time_s:.6} s of the CPUs' time"));
        let accesses = counters.loads + counters.stores;
        fact("accesses", format!("{}{}", count(accesses), self.levels(accesses)));
        let latency = counters.dram_latency_mean_ns.map_or(String::new(), |ns| format!(", {ns:.1} ns on average"));
        fact("DRAM accesses", format!("{}{latency}", count(counters.dram_accesses)));
        fact("from other caches", count(counters.peer_hits));
        fact("lines written back", count(counters.write_backs));
        fact("page walks", count(counters.page_walks));
        fact("local access ratio", counters.local_access_ratio.map_or("-".into(), percent));
        fact("imbalance", counters.imbalance.map_or("-".into(), |imbalance| format!("{imbalance:.2}")));
        if self.measured.clock_releases > 0 {
            let times = self.measured.clock_releases;
            fact(
                "clock",
                format!("simulated time was released {times} times: see \"How far to believe it\" in docs/lab.md"),
            );
        }
        if let Some(samples) = &self.samples {
            let Samples { period, taken, dropped } = samples;
            fact("samples", format!("{taken} (one miss in {period}), {dropped} dropped"));
        }
        if let Some(Shake { seed, rounds, thread_moves, pages_moved }) = self.shake {
            let (threads, pages) = (count(thread_moves), count(pages_moved));
            fact("shaken by seed", format!("{seed}: {threads} moves of threads, {pages} of pages, in {rounds} rounds"));
        }
        write!(f, "{facts}\n{}\n{}", self.matrix(), self.controllers())?;
        if !counters.links.is_empty() {
            write!(f, "\n{}", self.links())?;
        }
        Ok(())
    }
}

impl LabReport {
    fn heading(&self) -> String {
        let nodes = self.memory_bytes.len();
        let memory = self.memory_bytes.iter().copied().max().unwrap_or(0);
        let names: Vec<_> = self.model_without.iter().map(ToString::to_string).collect();
        let without = if names.is_empty() { String::new() } else { format!(" without {}", names.join(", ")) };
        let scale = if self.time_scale > 1 { format!(", time scale {}", self.time_scale) } else { String::new() };
        let modules: Vec<&str> = self.kernel_modules.iter().flat_map(|module| [" with ", module]).collect();
        let modules = modules.concat();
        format!(
            "{} ({nodes} nodes with {} each, {} CPUs), Linux {}{modules}, model {}{without}{scale}",
            escape_name(&self.machine),
            size::format(memory),
            self.cpus,
            self.kernel,
            self.model_version
        )
    }

    fn levels(&self, accesses: u64) -> String {
        if accesses == 0 {
            return String::new();
        }
        let c = &self.measured.counters;
        let share = |name: &str, hits: u64| format!("{name} {}", percent(hits as f64 / accesses as f64));
        let levels = [("L1", c.l1_hits), ("L2", c.l2_hits), ("L3", c.l3_hits), ("DRAM", c.dram_accesses)];
        format!(" ({})", levels.map(|(name, hits)| share(name, hits)).join(", "))
    }

    fn matrix(&self) -> Table {
        let c = &self.measured.counters;
        let heading = c.nodes.iter().map(|node| format!("node {node}"));
        let mut table = Table::new(std::iter::once("DRAM accesses from \\ to".to_owned()).chain(heading));
        for (node, row) in c.nodes.iter().zip(&c.dram_accesses_by_node) {
            table.row(std::iter::once(format!("  node {node}")).chain(row.iter().map(|&lines| count(lines))));
        }
        table
    }

    fn controllers(&self) -> Table {
        let mut table = Table::new(["controller", "load", "queue", "data"]);
        for controller in &self.measured.counters.controllers {
            table.row(load(format!("  node {}", controller.node), controller.load));
        }
        table
    }

    fn links(&self) -> Table {
        let mut links: Vec<_> = self.measured.counters.links.iter().collect();
        links.sort_by(|a, b| b.load.utilisation.total_cmp(&a.load.utilisation));
        let mut table = Table::new(["link, by CPUs of one", "load", "queue", "data"]);
        for link in links.iter().take(LINKS_SHOWN) {
            table.row(load(format!("  node {} to memory of {}", link.from, link.to), link.load));
        }
        if links.len() > LINKS_SHOWN {
            table.row([format!("  and {} less busy ones", links.len() - LINKS_SHOWN)]);
        }
        table
    }
}

fn load(name: String, load: model::Load) -> [String; 4] {
    [name, percent(load.utilisation), format!("{:.1} ns", load.queue_delay_mean_ns), size::rounded(load.bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeId;
    use model::{ControllerCounters, Counters, LinkCounters, Load};

    #[test]
    fn a_report_is_a_page_of_tables() {
        let load = |bytes| Load { bytes, utilisation: bytes as f64 / 1e9, queue_delay_mean_ns: 1.5 };
        let nodes = [NodeId(0), NodeId(2)];
        let link = |from, to, bytes| LinkCounters { from: NodeId(from), to: NodeId(to), load: load(bytes) };
        let counters = Counters {
            time_s: 0.228,
            loads: 11_879_576,
            stores: 81_235_156,
            instruction_fetches: 0,
            l1_hits: 88_712_341,
            l2_hits: 527_012,
            l3_hits: 1_054_385,
            stream_misses: 0,
            dram_accesses: 2_820_994,
            peer_hits: 12_345,
            page_walks: 6_789,
            write_backs: 1_530_000,
            dram_latency_mean_ns: Some(104.64),
            local_access_ratio: Some(0.9936),
            imbalance: None,
            nodes: nodes.to_vec(),
            dram_accesses_by_node: vec![vec![2_745_924, 1535], vec![490, 2410]],
            controllers: nodes.map(|node| ControllerCounters { node, load: load(175_957_120) }).to_vec(),
            links: (0..10).map(|n| link(n, n + 1, u64::from(n) * 1000)).collect(),
            cpus: Vec::new(),
        };
        let report = LabReport {
            simulated: true,
            machine: "small".into(),
            model_version: "1".into(),
            model_without: vec![Mechanism::Translation, Mechanism::Overlap],
            time_scale: 10,
            cpus: 8,
            memory_bytes: vec![1 << 30, 1 << 30],
            kernel: "6.12".into(),
            kernel_modules: vec!["own.ko a=1".into()],
            command: vec!["true".into()],
            exit_status: 0,
            boot_s: 5.04,
            saved_boot: false,
            host_s: 4.2,
            samples: Some(Samples { period: 100, taken: 7, dropped: 0 }),
            shake: Some(Shake { seed: 7, rounds: 60, thread_moves: 31, pages_moved: 4096 }),
            measured: Measured {
                instructions: 48_735_003,
                clock_releases: 0,
                cpu_time_s: 0.032,
                memory_wait_s: 0.02,
                counters,
                per_cpu: Vec::new(),
                tasks: Vec::new(),
                tasks_uncounted: Default::default(),
            },
        };
        insta::assert_snapshot!(report);
    }
}
