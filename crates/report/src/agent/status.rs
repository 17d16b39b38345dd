//! The status of a running agent, as text.

use crate::Table;
use agent::control::Explanation;
use agent::{NodeMoves, Status, WorkShares};
use machine::number::{count, percent};
use machine::{NodeId, SMALL_PAGE, size};
use std::collections::BTreeSet;
use std::fmt;

/// Most processes to list, busiest first.
pub(crate) const MOST_PROCESSES: usize = 30;

/// A status as text.
#[derive(Clone, Copy, Debug)]
pub struct StatusText<'a>(pub &'a Status);

/// The decisions about a process, as text.
#[derive(Clone, Copy, Debug)]
pub struct ExplanationText<'a>(pub &'a Explanation);

impl fmt::Display for StatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        let rests = match (status.sleeps, status.paused) {
            (true, _) => "; asleep: there is nothing to place on this machine",
            (false, true) => "; paused: it decides and moves nothing",
            (false, false) => "",
        };
        writeln!(f, "policy {}, for {}{rests}", status.policy, duration(status.time_s))?;
        if status.sleeps {
            return writeln!(f, "own CPU time {:.3} s", status.cpu_time_s);
        }
        let mut table = Table::default();
        let mut row = |what: &str, value: String| table.row([what.to_owned(), value]);
        row("rounds", format!("{} of {} s", count(status.rounds), status.round_s));
        row("observed by", status.source.clone().unwrap_or_else(|| "none".to_owned()));
        row("samples, lost", format!("{}, {}", count(status.samples), count(status.samples_lost)));
        let share = if status.time_s > 0.0 { status.cpu_time_s / status.time_s } else { 0.0 };
        row("own CPU time", format!("{:.3} s, {:.2} % of one CPU", status.cpu_time_s, 100.0 * share));
        let WorkShares { observing, deciding, moving } = status.cpu_time_of;
        let [observing, deciding, moving] = [observing, deciding, moving].map(percent);
        row("  observing, deciding, moving", format!("{observing}, {deciding}, {moving}"));
        row("pages moved", format!("{}, {}", count(status.pages_moved), size::rounded(status.bytes_moved)));
        if status.pages_copied > 0 {
            let copied = format!("{}, {}", count(status.pages_copied), size::rounded(status.pages_copied * SMALL_PAGE));
            row("pages copied for single processes", copied);
        }
        for (rule, pages) in &status.pages_moved_by_rule {
            row(&format!("  as {rule}"), count(*pages));
        }
        row("pages not moved", count(status.pages_refused));
        row("threads moved", count(status.threads_moved));
        if let Some(known) = &status.huge_pages {
            let found = format!("{} of {}", count(known.falsely_shared), count(known.huge_pages));
            row("huge pages shared falsely", format!("{found}, {} not known", count(known.unknown)));
            if known.cures {
                row("  split, kept small", format!("{}, {}", count(known.split), count(known.kept_small)));
                row("  small pages moved", count(known.pages_moved));
                let joined = format!("{}, {}", count(known.joined), count(known.taken_back));
                row("  joined again, as slower", joined);
            }
        }
        let metrics = &status.metrics;
        let told =
            |value: Option<f64>, as_text: fn(f64) -> String| value.map_or_else(|| "not known".to_owned(), as_text);
        row("in the last round: accesses", told(metrics.accesses_per_us, |rate| format!("{rate:.1} per microsecond")));
        row("  local", told(metrics.local_access_ratio, percent));
        row("  imbalance", told(metrics.imbalance, |imbalance| format!("{imbalance:.2}")));
        row("  mean latency", told(metrics.access_ns, |ns| format!("{ns:.0} ns")));
        write!(f, "{table}")?;
        if !status.moves.is_empty() {
            write!(f, "\n{}", moves_table(&status.moves))?;
        }
        self.processes(f)?;
        status.notes.iter().try_for_each(|note| writeln!(f, "\n{note}"))
    }
}

impl StatusText<'_> {
    fn processes(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut processes: Vec<_> = self.0.processes.iter().collect();
        if processes.is_empty() {
            return writeln!(f, "\nno process is managed");
        }
        processes.sort_by(|a, b| b.1.cpu_share.total_cmp(&a.1.cpu_share).then(a.0.cmp(b.0)));
        let mut table = Table::new(["process", "name", "threads", "CPU", "MPKI", "remote", "pages moved", ""]);
        for (pid, process) in processes.iter().take(MOST_PROCESSES) {
            let cpu = percent(process.cpu_share);
            let (threads, pages) = (count(process.threads), count(process.pages_moved));
            let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let mpki = known(process.misses_per_thousand_instructions.map(|mpki| format!("{mpki:.1}")));
            let remote = known(process.remote_ratio.map(percent));
            let (name, moved) = (process.name.clone(), size::rounded(process.bytes_moved));
            table.row([pid.to_string(), name, threads, cpu, mpki, remote, pages, moved]);
        }
        write!(f, "\n{table}")?;
        match processes.len().saturating_sub(MOST_PROCESSES) {
            0 => Ok(()),
            more => writeln!(f, "and {more} that use less CPU time"),
        }
    }
}

impl fmt::Display for ExplanationText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { pid, managed, not_managed, policy, rounds } = self.0;
        let Some(process) = managed else {
            return writeln!(f, "process {pid} is not managed: {}", not_managed.as_deref().unwrap_or("it is new"));
        };
        let (threads, share) = (count(process.threads), percent(process.cpu_share));
        writeln!(f, "process {pid} ({}) is managed by {policy}: {threads} threads, {share} of a CPU", process.name)?;
        writeln!(f, "{} pages of it were moved, {}", count(process.pages_moved), size::rounded(process.bytes_moved))?;
        if process.decisions.is_empty() {
            return writeln!(f, "nothing has been decided about it in {} rounds", count(*rounds));
        }
        process.decisions.iter().try_for_each(|(round, step)| writeln!(f, "round {round}: {step}"))
    }
}

/// What was moved between nodes, in bytes: a row for each node that it was on.
fn moves_table(moves: &[NodeMoves]) -> Table {
    let sorted = |node: fn(&NodeMoves) -> NodeId| moves.iter().map(node).collect::<BTreeSet<NodeId>>();
    let (sources, targets) = (sorted(|moves| moves.from), sorted(|moves| moves.to));
    let heading = targets.iter().map(|to| format!("node {to}"));
    let mut table = Table::new(std::iter::once("moved from \\ to".to_owned()).chain(heading));
    for from in sources {
        let bytes =
            |to: &NodeId| moves.iter().find(|moves| (moves.from, moves.to) == (from, *to)).map(|moves| moves.bytes);
        let cells = targets.iter().map(|to| bytes(to).map_or_else(|| "-".to_owned(), size::rounded));
        table.row(std::iter::once(format!("  node {from}")).chain(cells));
    }
    table
}

/// In the two largest units that are not zero.
fn duration(seconds: f64) -> String {
    let all = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (all / 86400, all / 3600 % 24, all / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds:.1} s"),
        (0, 0, _) => format!("{minutes} min {} s", all % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use agent::ManagedProcess;
    use machine::Pid;
    use placement::Rule;

    /// The status of a busy agent.
    pub(crate) fn status() -> Status {
        let mut process =
            ManagedProcess { name: "a \"b\\".into(), threads: 8, cpu_share: 7.5, ..ManagedProcess::default() };
        (process.pages_moved, process.bytes_moved) = (1500, 1500 * 4096);
        (process.misses_per_thousand_instructions, process.remote_ratio) = (Some(12.345), Some(0.25));
        process.decisions.push_back((41, "move 1500 pages to node 2: only that node uses them".into()));
        let mut status = Status {
            policy: "carrefour".into(),
            source: Some("AMD IBS".into()),
            notes: vec!["kernel.numa_balancing is off until the end".into()],
            round_s: 1.0,
            time_s: 3725.0,
            cpu_time_s: 12.5,
            rounds: 3721,
            samples: 120_000,
            samples_lost: 3,
            pages_moved: 1500,
            bytes_moved: 1500 * 4096,
            pages_refused: 2,
            cpu_time_of: WorkShares { observing: 0.75, deciding: 0.05, moving: 0.2 },
            moves: vec![
                NodeMoves { from: NodeId(0), to: NodeId(2), pages: 1400, bytes: 1400 * 4096 },
                NodeMoves { from: NodeId(1), to: NodeId(0), pages: 100, bytes: 100 * 4096 },
            ],
            threads_moved: 4,
            ..Status::default()
        };
        status.metrics.accesses_per_us = Some(61.5);
        status.metrics.local_access_ratio = Some(0.625);
        status.pages_moved_by_rule.insert(Rule::OneNodeUses, 1500);
        status.processes.insert(Pid(7), process);
        status.processes.insert(Pid(8), ManagedProcess { name: "sh".into(), ..ManagedProcess::default() });
        status
    }

    /// The value in a line, after the padding.
    fn value(line: &str) -> String {
        line.rsplit("  ").next().unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn a_status_is_formatted() {
        let told = StatusText(&status()).to_string();
        assert!(told.starts_with("policy carrefour, for 1 h 2 min\n"), "{told}");
        let lines = |what: &str| told.lines().find(|line| line.trim_start().starts_with(what)).map(value);
        for (what, told) in [
            ("observed by", "AMD IBS"),
            ("samples, lost", "120 k, 3"),
            ("own CPU time", "12.500 s, 0.34 % of one CPU"),
            ("observing, deciding, moving", "75.0 %, 5.0 %, 20.0 %"),
            ("moved from \\ to", "node 2"),
            ("node 0", "5.47 MiB"),
            ("node 1", "-"),
            ("pages moved  ", "1.50 k, 5.86 MiB"),
            ("as only that node uses them", "1.50 k"),
            ("in the last round: accesses", "61.5 per microsecond"),
            ("local  ", "62.5 %"),
            ("imbalance", "not known"),
        ] {
            assert_eq!(lines(what).as_deref(), Some(told), "{what}");
        }
        assert!(told.contains("  12.3  25.0 %"), "{told}");
        assert!(
            told.find("a \"b\\") < told.find("sh ") && told.ends_with("\nkernel.numa_balancing is off until the end\n")
        );
        let paused = Status { paused: true, policy: "auto".into(), ..Status::default() };
        let asleep = Status { sleeps: true, policy: "auto".into(), ..Status::default() };
        let told = StatusText(&asleep).to_string();
        assert_eq!(
            told,
            "policy auto, for 0.0 s; asleep: there is nothing to place on this machine\nown CPU time 0.000 s\n"
        );
        let told = StatusText(&paused).to_string();
        assert!(told.starts_with("policy auto, for 0.0 s; paused: it decides and moves nothing\n"), "{told}");
        assert!(told.ends_with("\nno process is managed\n"), "{told}");
    }

    #[test]
    fn a_process_is_explained() {
        let explanation = |pid: u32| {
            let managed = status().processes.get(&Pid(pid)).cloned();
            let not_managed = managed.is_none().then(|| "it is a kernel thread".to_owned());
            let explained =
                Explanation { pid: Pid(pid), managed, not_managed, policy: "carrefour".into(), rounds: 3721 };
            ExplanationText(&explained).to_string()
        };
        assert_eq!(
            [7, 8, 9].map(explanation),
            [
                "process 7 (a \"b\\) is managed by carrefour: 8 threads, 750.0 % of a CPU\n\
                 1.50 k pages of it were moved, 5.86 MiB\n\
                 round 41: move 1500 pages to node 2: only that node uses them\n",
                "process 8 (sh) is managed by carrefour: 0 threads, 0.0 % of a CPU\n\
                 0 pages of it were moved, 0 B\n\
                 nothing has been decided about it in 3.72 k rounds\n",
                "process 9 is not managed: it is a kernel thread\n",
            ]
        );
    }

    #[test]
    fn durations_have_two_units() {
        let told = [0.25, 61.0, 3725.0, 180_000.0].map(duration);
        assert_eq!(told, ["0.2 s", "1 min 1 s", "1 h 2 min", "2 d 2 h"]);
    }
}
