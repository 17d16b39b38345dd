//! The status of a running agent in the text form of `OpenMetrics` 1.0, and in the older one of Prometheus.

use super::status::MOST_PROCESSES;
use crate::Family;
use agent::broker::LiveGrant;
use agent::{ManagedProcess, NodeMoves, Status, WorkShares};
use machine::Pid;
use reserve::Course;
use std::fmt::{self, Write};
use strum::IntoEnumIterator;

/// A status as `OpenMetrics`.
#[derive(Clone, Copy, Debug)]
pub struct StatusMetrics<'a> {
    /// The status.
    pub status: &'a Status,
    /// The grants that the agent carries out.
    pub grants: &'a [LiveGrant],
    /// The time, seconds since 1970.
    pub now_s: u64,
}

impl fmt::Display for StatusMetrics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status;
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
        let mut family = Family::begin("nearside_agent_work_ratio", "gauge", "Share of the agent's working time.");
        let WorkShares { observing, deciding, moving } = status.cpu_time_of;
        for (what, share) in [("observing", observing), ("deciding", deciding), ("moving", moving)] {
            family.sample(&[("work", what)], share);
        }
        family.end(f)?;
        let mut family = Family::begin(
            "nearside_agent_node_moved_bytes",
            "counter",
            "Bytes that were moved from a node to another.",
        );
        for NodeMoves { from, to, bytes, .. } in &status.moves {
            family.sample(&[("from", from.to_string().as_str()), ("to", to.to_string().as_str())], *bytes);
        }
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
        grants(self.grants, self.now_s, f)?;
        f.write_str("# EOF\n")
    }
}

/// A number of a grant at a time.
type GrantValue = fn(&LiveGrant, u64) -> Option<f64>;

/// What grants have, and what others may do to them.
fn grants(grants: &[LiveGrant], now_s: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut family = Family::begin("nearside_grant", "info", "What a grant has: lists of CPUs and nodes.");
    for LiveGrant { grant, .. } in grants {
        let [id, owner, cpus, idle, nodes] = [
            grant.id.to_string(),
            grant.owner.to_string(),
            grant.cpus.to_string(),
            grant.idle_siblings.to_string(),
            grant.memory.to_string(),
        ];
        let name = grant.request.name.as_deref().unwrap_or_default();
        let guarded = if grant.request.isolate.controller { "yes" } else { "no" };
        let labels =
            [("grant", id.as_str()), ("name", name), ("owner", &owner), ("cpus", &cpus), ("idle_siblings", &idle)];
        family.sample(&[&labels[..], &[("nodes", nodes.as_str()), ("guarded", guarded)]].concat(), 1);
    }
    family.end(f)?;
    let gauges: [(&str, &str, GrantValue); 12] = [
        ("cpus", "CPUs of a grant, without those that idle for it.", |live, _| Some(live.grant.cpus.len() as f64)),
        ("memory_limit_bytes", "The limit of a grant's memory.", |live, _| {
            live.grant.request.bytes.map(|bytes| bytes as f64)
        }),
        (
            "forecast_slowdown_ratio",
            "By how much others slow a grant at worst, by forecast, as a part of its time.",
            |live, _| live.forecast_slowdown,
        ),
        ("most_slowdown_ratio", "The bound of a guarded grant's slow-down.", |live, _| {
            live.grant.request.isolate.controller.then_some(live.grant.request.most_slowdown)
        }),
        ("drawn_read_bytes_per_second", "What a grant has read from memory in the last period.", |live, _| {
            Some(live.drawn?.read)
        }),
        ("drawn_written_bytes_per_second", "What a grant has written back in the last period.", |live, _| {
            Some(live.drawn?.write)
        }),
        (
            "lost",
            "Whether other programs run on a grant's CPUs at present, because its partition is invalid.",
            |live, _| Some(f64::from(u8::from(live.is_lost))),
        ),
        ("service_latency_seconds", "What a grant's holder said last of how its program does.", |live, _| {
            live.service.map(|level| level.said().latency_ms / 1e3)
        }),
        ("service_target_seconds", "What the holder wants at most.", |live, _| {
            live.service.map(|level| level.said().target_ms / 1e3)
        }),
        ("service_age_seconds", "Time since the holder said so.", |live, now_s| {
            live.service.map(|level| now_s.saturating_sub(level.said_s()) as f64)
        }),
        (
            "rest_part_ratio",
            "Part of what the forecast leaves to the rest of the machine, that the rest has by the holder's figures.",
            |live, _| live.service.map(|level| level.part()),
        ),
        ("age_seconds", "Time since a grant was made.", |live, now_s| {
            Some(now_s.saturating_sub(live.grant.since_s) as f64)
        }),
    ];
    for (name, help, value) in gauges {
        let mut family = Family::begin(&format!("nearside_grant_{name}"), "gauge", help);
        for live in grants {
            if let Some(value) = value(live, now_s) {
                family.sample(&[("grant", &live.grant.id.to_string())], value);
            }
        }
        family.end(f)?;
    }
    let help = "How often the forecast slow-down of a grant has risen above its bound.";
    let mut family = Family::begin("nearside_grant_times_above_bound", "counter", help);
    for LiveGrant { grant, times_above_bound, .. } in grants {
        family.sample(&[("grant", &grant.id.to_string())], times_above_bound);
    }
    family.end(f)?;
    services(grants, f)
}

/// What follows from how holders do.
fn services(grants: &[LiveGrant], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let help = "What the loop of a grant's service level did in its last period: 1 for that.";
    let mut family = Family::begin("nearside_grant_service_course", "gauge", help);
    for LiveGrant { grant, service, .. } in grants {
        for (level, course) in service.iter().flat_map(|level| Course::iter().map(move |course| (level, course))) {
            let labels = [("grant", grant.id.to_string()), ("course", course.to_string())];
            let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
            family.sample(&labels, u8::from(level.course() == course));
        }
    }
    family.end(f)?;
    let help = "The most that the rest of the machine may draw from a guarded controller, bytes per second.";
    let mut family = Family::begin("nearside_grant_rest_limit_bytes_per_second", "gauge", help);
    for LiveGrant { grant, rest_limit, .. } in grants {
        for (node, limit) in rest_limit {
            family.sample(&[("grant", &grant.id.to_string()), ("node", &node.to_string())], limit);
        }
    }
    family.end(f)
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
    use machine::presets;
    use reserve::{Asker, Control, Facts, Isolation, Ledger, ReadWrite, Request, Rules, Service, ServiceLevel};
    use std::sync::Arc;
    use std::time::Instant;

    const MISSED: Service = Service { latency_ms: 3.5, target_ms: 2.0 };

    fn metrics(status: &Status, grants: &[LiveGrant]) -> String {
        StatusMetrics { status, grants, now_s: 1090 }.to_string()
    }

    #[test]
    fn each_grant_has_a_row() {
        let facts = Facts::new(presets::find("magny-cours-4p").unwrap(), Control::default());
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        let isolate = Isolation { core: true, controller: true, ..Isolation::default() };
        let guarded = Request { name: Some("db".to_owned()), isolate, bytes: Some(1 << 20), ..Request::default() };
        let asker = Asker { uid: 7, now_s: 1000, quota: None };
        let admitted = ledger.admit(&[guarded, Request::default()], &asker).unwrap();
        let slowdown = &admitted.forecast.slowdown;
        let live = |grant: &reserve::Grant| LiveGrant {
            grant: grant.clone(),
            forecast_slowdown: slowdown.get(&grant.id).copied(),
            is_lost: grant.id.0 == 2,
            service: (grant.id.0 == 1).then(|| ServiceLevel::after(None, MISSED, Instant::now(), 1087)),
            rest_limit: admitted.forecast.rest_limit_of(grant),
            drawn: (grant.id.0 == 1).then_some(ReadWrite { read: 3e9, write: 5e8 }),
            times_above_bound: 2,
        };
        let told = metrics(&Status::default(), &admitted.grants.iter().map(live).collect::<Vec<_>>());
        for line in [
            "nearside_grant_info{grant=\"1\",name=\"db\",owner=\"7\",cpus=\"0\",idle_siblings=\"\",nodes=\"0\",guarded=\"yes\"} 1\n",
            "nearside_grant_cpus{grant=\"2\"} 1\n",
            "nearside_grant_memory_limit_bytes{grant=\"1\"} 1048576\n",
            "# UNIT nearside_grant_forecast_slowdown_ratio ratio\n",
            "nearside_grant_forecast_slowdown_ratio{grant=\"1\"} 0.0",
            "nearside_grant_most_slowdown_ratio{grant=\"1\"} 0.05\n",
            "nearside_grant_lost{grant=\"1\"} 0\n",
            "nearside_grant_lost{grant=\"2\"} 1\n",
            "nearside_grant_drawn_read_bytes_per_second{grant=\"1\"} 3000000000\n",
            "nearside_grant_drawn_written_bytes_per_second{grant=\"1\"} 500000000\n",
            "nearside_grant_times_above_bound_total{grant=\"1\"} 2\n",
            "nearside_grant_age_seconds{grant=\"2\"} 90\n",
            "nearside_grant_service_latency_seconds{grant=\"1\"} 0.0035\n",
            "nearside_grant_service_target_seconds{grant=\"1\"} 0.002\n",
            "nearside_grant_service_age_seconds{grant=\"1\"} 3\n",
            "nearside_grant_rest_part_ratio{grant=\"1\"} 0.7\n",
            "nearside_grant_service_course{grant=\"1\",course=\"holding\"} 0\n",
            "nearside_grant_service_course{grant=\"1\",course=\"tightening\"} 1\n",
            "nearside_grant_rest_limit_bytes_per_second{grant=\"1\",node=\"0\"} ",
        ] {
            assert!(told.contains(line), "no {line} in {told}");
        }
        for none in [
            "most_slowdown_ratio{grant=\"2\"}",
            "memory_limit_bytes{grant=\"2\"}",
            "drawn_read_bytes_per_second{grant=\"2\"}",
            "rest_part_ratio{grant=\"2\"}",
            "service_course{grant=\"2\"",
            "rest_limit_bytes_per_second{grant=\"2\"",
        ] {
            assert!(!told.contains(none), "{told}");
        }
        assert!(told.ends_with("# EOF\n"));
    }

    #[test]
    fn an_agent_has_metrics() {
        let told = metrics(&crate::agent::status::tests::status(), &[]);
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
        let idle = metrics(&Status::default(), &[]);
        assert!(idle.contains("nearside_agent_paused 0\n") && !idle.contains("access_ratio"), "{idle}");
        assert!(idle.ends_with("# EOF\n"));
    }

    #[test]
    fn prometheus_has_headings_by_the_names_of_samples() {
        let open_metrics = metrics(&crate::agent::status::tests::status(), &[]);
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
