//! The status of a running agent in the text form of `OpenMetrics` 1.0, and in the older one of Prometheus.

use super::status::MOST_PROCESSES;
use crate::Family;
use agent::{ManagedProcess, Status};
use machine::Pid;
use std::fmt::{self, Write};

/// A status as `OpenMetrics`.
#[derive(Clone, Copy, Debug)]
pub struct StatusMetrics<'a>(pub &'a Status);

impl fmt::Display for StatusMetrics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        let labels = [("policy", status.policy.as_str()), ("source", status.source.as_deref().unwrap_or("none"))];
        let mut family = Family::begin("nearside_agent", "info", "Policy and source of the agent.");
        family.sample(&labels, 1);
        family.end(f)?;
        let counters = [
            ("rounds", status.rounds, "Rounds of the agent."),
            ("samples", status.samples, "Samples of accesses by managed processes."),
            ("samples_lost", status.samples_lost, "Samples that were lost, or whose page was not kept."),
            ("pages_moved", status.pages_moved, "Pages that were moved."),
            (
                "pages_copied",
                status.pages_copied,
                "Pages of files that processes got private copies of, in units of 4 KiB.",
            ),
            ("moved_bytes", status.bytes_moved, "Bytes of the pages that were moved."),
            ("pages_refused", status.pages_refused, "Pages that could not be moved."),
            ("threads_moved", status.threads_moved, "Threads whose CPUs were changed."),
        ];
        for (name, value, help) in counters {
            let mut family = Family::begin(&format!("nearside_agent_{name}"), "counter", help);
            family.sample(&[], value);
            family.end(f)?;
        }
        let mut family = Family::begin("nearside_agent_cpu_seconds", "counter", "CPU time of the agent itself.");
        family.sample(&[], status.cpu_time_s);
        family.end(f)?;
        let metrics = &status.metrics;
        let threads: u64 = status.processes.values().map(|process| process.threads).sum();
        let gauges = [
            ("paused", Some(f64::from(u8::from(status.paused))), "Whether the agent is paused."),
            ("processes", Some(status.processes.len() as f64), "Processes that are managed."),
            ("threads", Some(threads as f64), "Threads of managed processes."),
            (
                "accesses_per_us",
                metrics.accesses_per_us,
                "Accesses that memory served in the last round, per microsecond.",
            ),
            ("local_access_ratio", metrics.local_access_ratio, "Share of local accesses in the last round."),
            ("imbalance", metrics.imbalance, "Standard deviation of the controllers' loads over their mean."),
            ("access_seconds", metrics.access_ns.map(|ns| ns / 1e9), "Mean latency of these accesses."),
        ];
        for (name, value, help) in gauges {
            let mut family = Family::begin(&format!("nearside_agent_{name}"), "gauge", help);
            if let Some(value) = value {
                family.sample(&[], value);
            }
            family.end(f)?;
        }
        processes(status, f)?;
        f.write_str("# EOF\n")
    }
}

/// A number of a process.
type Value = fn(&ManagedProcess) -> Option<f64>;

/// How the busiest processes use memory: a series each would be too many for all of them.
fn processes(status: &Status, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut busiest: Vec<(&Pid, &ManagedProcess)> = status.processes.iter().collect();
    busiest.sort_by(|a, b| b.1.cpu_share.total_cmp(&a.1.cpu_share).then(a.0.cmp(b.0)));
    busiest.truncate(MOST_PROCESSES);
    let gauges: [(&str, &str, Value); 2] = [
        (
            "nearside_agent_process_mpki",
            "Misses of the last-level cache per thousand instructions in the last round, of the busiest processes.",
            |process| process.misses_per_thousand_instructions,
        ),
        (
            "nearside_agent_process_remote_ratio",
            "Share of remote accesses in the last round, of the busiest processes.",
            |process| process.remote_ratio,
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = Family::begin(name, "gauge", help);
        for (pid, process) in &busiest {
            if let Some(value) = value(process) {
                family.sample(&[("pid", &pid.to_string()), ("name", &process.name)], value);
            }
        }
        family.end(f)?;
    }
    Ok(())
}

/// The same in the text form of Prometheus (0.0.4), which its own tools read: `node_exporter`, the Pushgateway. There,
/// headings use the names of samples, and there is neither an `info` type nor a unit.
pub fn prometheus(open_metrics: &str) -> String {
    let (mut text, mut suffix) = (String::new(), "");
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        // Writing to a String cannot fail.
        let _ = match words[..] {
            ["#", "TYPE", name, kind] => {
                let (ending, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                suffix = ending;
                writeln!(text, "# TYPE {name}{suffix} {kind}")
            }
            ["#", "HELP", name, help] => writeln!(text, "# HELP {name}{suffix} {help}"),
            ["#", ..] => Ok(()),
            _ => writeln!(text, "{line}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_metrics() {
        let told = StatusMetrics(&crate::agent::status::tests::status()).to_string();
        for lines in [
            "# TYPE nearside_agent info\n# HELP nearside_agent Policy and source of the agent.\n\
             nearside_agent_info{policy=\"carrefour\",source=\"AMD IBS\"} 1\n",
            "# TYPE nearside_agent_moved_bytes counter\n# UNIT nearside_agent_moved_bytes bytes\n\
             # HELP nearside_agent_moved_bytes Bytes of the pages that were moved.\n\
             nearside_agent_moved_bytes_total 6144000\n",
            "nearside_agent_cpu_seconds_total 12.5\n",
            "nearside_agent_processes 2\n",
            "# UNIT nearside_agent_local_access_ratio ratio\n",
            "nearside_agent_local_access_ratio 0.625\n",
            "nearside_agent_process_mpki{pid=\"7\",name=\"a \\\"b\\\\\"} 12.345\n",
        ] {
            assert!(told.contains(lines), "no {lines} in {told}");
        }
        assert!(!told.contains("imbalance"), "{told}");
        let idle = StatusMetrics(&Status::default()).to_string();
        assert!(idle.contains("nearside_agent_paused 0\n") && !idle.contains("access_ratio"), "{idle}");
        assert!(idle.ends_with("# EOF\n"));
    }

    #[test]
    fn prometheus_has_headings_by_the_names_of_samples() {
        let open_metrics = StatusMetrics(&crate::agent::status::tests::status()).to_string();
        let told = prometheus(&open_metrics);
        for lines in [
            "# TYPE nearside_agent_info gauge\n# HELP nearside_agent_info Policy and source of the agent.\n\
             nearside_agent_info{policy=\"carrefour\",source=\"AMD IBS\"} 1\n",
            "# TYPE nearside_agent_moved_bytes_total counter\n\
             # HELP nearside_agent_moved_bytes_total Bytes of the pages that were moved.\n\
             nearside_agent_moved_bytes_total 6144000\n",
            "# TYPE nearside_agent_processes gauge\n# HELP nearside_agent_processes Processes that are managed.\n\
             nearside_agent_processes 2\n",
        ] {
            assert!(told.contains(lines), "no {lines} in {told}");
        }
        let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_eq!(samples(&told), samples(&open_metrics));
        assert!(!told.contains("# UNIT") && !told.contains("# EOF"), "{told}");
    }
}
