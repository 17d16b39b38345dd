//! The twelve calls of the study, each a line of JSON with its names and fields. A list of calls is one transaction.

use crate::grant::GrantId;
use crate::ledger::{Action, Share};
use crate::request::{CacheIsolation, Cores, Isolation, Memory, Preference, Request, WrittenRequest};
use machine::{NodeId, Violation, Violations};
use serde::{Deserialize, Serialize};

/// Longest line of calls, in bytes.
const MOST_LINE: usize = 4096;
/// Most calls in a transaction: 4,096 bytes have no room for more.
const MOST_CALLS: usize = 64;

/// A call. `with` has what the study's interface lacks: name, number of cores, bytes, bandwidth and bound, as in plan files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "call", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of the study's interface file")]
pub enum Call {
    /// 1: a core and memory anywhere.
    #[serde(rename = "rcm_cored_memd_request")]
    CoredMemd {
        exclusive_cache: bool,
        core_memory_isolated: bool,
        memory_controller_isolated: bool,
        memory_performance: Performance,
        with: Option<Box<WrittenRequest>>,
    },
    /// 2: a core anywhere, memory of a node.
    #[serde(rename = "rcm_cored_numa_request")]
    CoredNuma {
        exclusive_cache: bool,
        core_memory_isolated: bool,
        memory_controller_isolated: bool,
        memory_performance: Performance,
        numa: NodeId,
        with: Option<Box<WrittenRequest>>,
    },
    /// 3: a core anywhere, memory of its node.
    #[serde(rename = "rcm_cored_local_request")]
    CoredLocal {
        exclusive_cache: bool,
        core_memory_isolated: bool,
        memory_controller_isolated: bool,
        memory_performance: Performance,
        with: Option<Box<WrittenRequest>>,
    },
    /// 4: a further core on a cache that is held, memory anywhere.
    #[serde(rename = "rcm_coreoncache_memd_request")]
    CoreOnCacheMemd {
        memory_controller_isolated: bool,
        core_with_cache: GrantId,
        memory_performance: Performance,
        with: Option<Box<WrittenRequest>>,
    },
    /// 5: a further core on a cache that is held, memory of a node.
    #[serde(rename = "rcm_coreoncache_numa_request")]
    CoreOnCacheNuma {
        memory_controller_isolated: bool,
        core_with_cache: GrantId,
        memory_performance: Performance,
        numa: NodeId,
        with: Option<Box<WrittenRequest>>,
    },
    /// 6: memory anywhere for a core that is held.
    #[serde(rename = "rcm_coregiven_memd_request")]
    CoreGivenMemd {
        memory_isolated: bool,
        memory_controller_isolated: bool,
        core: GrantId,
        memory_performance: Performance,
    },
    /// 7: memory of a node for a core that is held. The study forgot the performance.
    #[serde(rename = "rcm_coregiven_numa_request")]
    CoreGivenNuma {
        memory_isolated: bool,
        memory_controller_isolated: bool,
        core: GrantId,
        numa: NodeId,
        #[serde(default)]
        memory_performance: Performance,
    },
    /// 8: the controllers of a grant are guarded from now on.
    #[serde(rename = "rcm_memory_controller_isolation_request")]
    Guard { mem: GrantId },
    /// 9: gives cores back.
    #[serde(rename = "rcm_core_memd_release")]
    ReleaseCore { core: GrantId },
    /// 10: gives memory back.
    #[serde(rename = "rcm_cored_mem_release")]
    ReleaseMemory { mem: GrantId },
    /// 11: gives both back.
    #[serde(rename = "rcm_core_mem_release")]
    ReleaseBoth { core: GrantId, mem: GrantId },
    /// 12: the controllers of a grant are no longer guarded.
    #[serde(rename = "rcm_memory_controller_release")]
    Unguard { mem_isolated: GrantId },
}

/// The study's performance wishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Performance {
    /// Least latency.
    MemoryLatencySensitive,
    /// Most read bandwidth.
    MemoryReadBandwidthSensitive,
    /// Most write bandwidth.
    MemoryWriteBandwidthSensitive,
    /// None.
    #[default]
    NoPreference,
}

/// Why a line is no list of calls.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Too long.
    #[error("a line of calls has at most {MOST_LINE} bytes, not {0}")]
    TooLong(usize),
    /// Too many.
    #[error("a transaction has 1 to {MOST_CALLS} calls, not {0}")]
    Count(usize),
    /// Not the JSON of calls.
    #[error("the line is no call, nor a list of calls")]
    Json(#[source] serde_json::Error),
    /// A call with wrong values.
    #[error("call {number}: {}", .broken.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Values {
        /// Which, from 1.
        number: usize,
        /// The rules that it breaks.
        broken: Violations,
    },
    /// One call releases two grants.
    #[error("call {0}: core and mem are of different grants, and a grant has both: release each")]
    TwoGrants(usize),
}

impl From<Performance> for Preference {
    fn from(performance: Performance) -> Self {
        match performance {
            Performance::MemoryLatencySensitive => Self::Latency,
            Performance::MemoryReadBandwidthSensitive => Self::ReadBandwidth,
            Performance::MemoryWriteBandwidthSensitive => Self::WriteBandwidth,
            Performance::NoPreference => Self::None,
        }
    }
}

/// Reads a line: one call, or a list that is one transaction.
pub fn read_calls(line: &str) -> Result<Vec<Action>, CallError> {
    if line.len() > MOST_LINE {
        return Err(CallError::TooLong(line.len()));
    }
    let calls: Vec<Call> = if line.trim_start().starts_with('[') {
        serde_json::from_str(line).map_err(CallError::Json)?
    } else {
        vec![serde_json::from_str(line).map_err(CallError::Json)?]
    };
    if !(1..=MOST_CALLS).contains(&calls.len()) {
        return Err(CallError::Count(calls.len()));
    }
    calls.into_iter().enumerate().map(|(index, call)| call.action(index + 1)).collect()
}

impl Call {
    /// What is asked of the ledger. `number` is that of the call in its transaction, from 1, for errors.
    pub fn action(self, number: usize) -> Result<Action, CallError> {
        let flags = |cache: bool, core: bool, controller: bool| Isolation {
            // In the study a core is isolated together with the links to its memory.
            core,
            route: core,
            cache: if cache { CacheIsolation::Exclusive } else { CacheIsolation::Shared },
            controller,
        };
        let request = |cores, memory, isolate, performance: Performance, with: Option<Box<WrittenRequest>>| {
            if with.as_ref().is_some_and(|with| with.has_place()) {
                let rule = "the call itself says which CPUs, node, isolation and preference".to_owned();
                let broken = Violations(vec![Violation { field: "with".to_owned(), rule }]);
                return Err(CallError::Values { number, broken });
            }
            let read = with.map_or_else(|| Ok(Request::default()), |with| with.read());
            let more = read.map_err(|broken| CallError::Values { number, broken: Violations(broken) })?;
            // Only its number of cores counts: which they are is said by the call.
            let cores = match (cores, &more.cores) {
                (Cores::Any(_), Cores::Any(count)) => Cores::Any(*count),
                (Cores::OnCacheOf(id, _), Cores::Any(count)) => Cores::OnCacheOf(id, *count),
                (cores, _) => cores,
            };
            let request = Request { cores, memory, isolate, prefer: performance.into(), ..more };
            Ok(Action::Request(request.complete()))
        };
        match self {
            Self::CoredMemd {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                with,
            } => {
                let isolate = flags(exclusive_cache, core_memory_isolated, memory_controller_isolated);
                request(Cores::Any(1), Memory::Any, isolate, memory_performance, with)
            }
            Self::CoredNuma {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                numa,
                with,
            } => {
                let isolate = flags(exclusive_cache, core_memory_isolated, memory_controller_isolated);
                request(Cores::Any(1), Memory::Node(numa), isolate, memory_performance, with)
            }
            Self::CoredLocal {
                exclusive_cache,
                core_memory_isolated,
                memory_controller_isolated,
                memory_performance,
                with,
            } => {
                let isolate = flags(exclusive_cache, core_memory_isolated, memory_controller_isolated);
                request(Cores::Any(1), Memory::Local, isolate, memory_performance, with)
            }
            Self::CoreOnCacheMemd { memory_controller_isolated, core_with_cache, memory_performance, with } => {
                let isolate = flags(false, false, memory_controller_isolated);
                request(Cores::OnCacheOf(core_with_cache, 1), Memory::Any, isolate, memory_performance, with)
            }
            Self::CoreOnCacheNuma { memory_controller_isolated, core_with_cache, memory_performance, numa, with } => {
                let isolate = flags(false, false, memory_controller_isolated);
                request(Cores::OnCacheOf(core_with_cache, 1), Memory::Node(numa), isolate, memory_performance, with)
            }
            Self::CoreGivenMemd { memory_isolated, memory_controller_isolated, core, memory_performance } => {
                let isolate = flags(false, memory_isolated, memory_controller_isolated);
                request(Cores::Of(core), Memory::Any, isolate, memory_performance, None)
            }
            Self::CoreGivenNuma { memory_isolated, memory_controller_isolated, core, numa, memory_performance } => {
                let isolate = flags(false, memory_isolated, memory_controller_isolated);
                request(Cores::Of(core), Memory::Node(numa), isolate, memory_performance, None)
            }
            Self::Guard { mem } => Ok(Action::Guard(mem, true)),
            Self::Unguard { mem_isolated } => Ok(Action::Guard(mem_isolated, false)),
            Self::ReleaseCore { core } => Ok(Action::Release(core, Share::Cores)),
            Self::ReleaseMemory { mem } => Ok(Action::Release(mem, Share::Memory)),
            Self::ReleaseBoth { core, mem } if core == mem => Ok(Action::Release(core, Share::All)),
            Self::ReleaseBoth { .. } => Err(CallError::TwoGrants(number)),
        }
    }
}
