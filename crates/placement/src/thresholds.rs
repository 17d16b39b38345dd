//! All thresholds, each with its origin.

use crate::costs::Costs;
use serde::{Deserialize, Serialize};

/// Controller bandwidth of the machine that [`Thresholds::accesses_per_us_min`] was chosen on (machine A of the
/// thesis).
const STUDY_CONTROLLER_BYTES_PER_S: f64 = 7.58e9;

/// A threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threshold {
    /// Its name.
    pub name: &'static str,
    /// What it decides.
    #[serde(skip)]
    pub about: &'static str,
    /// Its default.
    pub default: f64,
    /// The origin of the default.
    pub origin: &'static str,
}

macro_rules! thresholds {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty = $default:literal, $origin:literal;)+) => {
        /// The thresholds. [`Thresholds::table`] has the origins of their defaults.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Thresholds {
            $(
                $(#[doc = $doc])*
                #[doc = concat!("\n\nDefault: ", stringify!($default), ". ", $origin, ".")]
                pub $name: $type,
            )+
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Thresholds {
            /// Their values, by name.
            #[allow(clippy::cast_lossless, reason = "some are f64 already")]
            pub fn values(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($name), self.$name as f64),)+]
            }

            /// Sets the one with this name. Fails if there is none, or the value is out of its range.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ThresholdError> {
                let mut new = self.clone();
                match name {
                    $(stringify!($name) => {
                        new.$name = value.parse().map_err(|_| ThresholdError::value::<$type>(name, value))?;
                    })+
                    _ => return Err(ThresholdError::unknown(name)),
                }
                if let Some((name, least)) = new.violations().into_iter().next() {
                    return Err(ThresholdError::Range { name, least, value: value.to_owned() });
                }
                *self = new;
                Ok(())
            }

            /// All of them, with their defaults and origins.
            #[allow(clippy::cast_lossless, reason = "some are f64 already")]
            pub fn table() -> Vec<Threshold> {
                vec![$(Threshold {
                    name: stringify!($name),
                    about: concat!($($doc),*).trim_ascii(),
                    default: $default as f64,
                    origin: $origin,
                },)+]
            }
        }
    };
}

/// Why a threshold cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// There is none of this name.
    #[error("there is no threshold `{name}`{}; docs/place.md lists them", machine::did_you_mean(*.nearest))]
    Unknown {
        /// The name.
        name: String,
        /// The most similar one.
        nearest: Option<&'static str>,
    },
    /// The value is no number of its type.
    #[error("threshold {name} is a {wanted}, and `{value}` is none")]
    Value {
        /// The name.
        name: String,
        /// `number` or `whole number`.
        wanted: &'static str,
        /// The value.
        value: String,
    },
    /// The value is too small, or infinite.
    #[error("threshold {name} must be at least {least}, and finite: `{value}` is not")]
    Range {
        /// The name.
        name: &'static str,
        /// The least value.
        least: u32,
        /// The value.
        value: String,
    },
}

impl ThresholdError {
    fn unknown(name: &str) -> Self {
        let nearest = machine::nearest(name, Thresholds::table().iter().map(|known| known.name));
        Self::Unknown { name: name.to_owned(), nearest }
    }

    fn value<T: 'static>(name: &str, value: &str) -> Self {
        let is_whole = std::any::TypeId::of::<T>() != std::any::TypeId::of::<f64>();
        let wanted = if is_whole { "whole number from 0 up" } else { "number" };
        Self::Value { name: name.to_owned(), wanted, value: value.to_owned() }
    }
}

impl Thresholds {
    /// Those that are out of their range, with the least value that each may have.
    pub fn violations(&self) -> Vec<(&'static str, u32)> {
        let values = self.values().into_iter();
        // A step of zero pages would do nothing.
        let ranges = values.map(|(name, value)| (name, value, u32::from(name == "batch_pages")));
        let wrong = ranges.filter(|(_, value, least)| !(value.is_finite() && *value >= f64::from(*least)));
        wrong.map(|(name, _, least)| (name, least)).collect()
    }
}

// "Thesis": Lepers, "Improving performance on NUMA systems", 2014, chapter 7. "Code": Carrefour's published code.
// "Manager": Müller's NUMA manager, 2013, which leaves its thresholds open. "Own": chosen here.
thresholds! {
    /// Below this many memory accesses per microsecond memory is not contended. Valid for the study's machine, whose
    /// controllers carry 7.58 GB/s each; scaled to others.
    accesses_per_us_min: f64 = 50.0, "Code, MAPTU_MIN; 42 % of one of the study's controllers";
    /// Fewer accesses are enough if they use a link this much.
    link_utilisation_min: f64 = 0.422, "Own: what MAPTU_MIN is of the study's controllers";
    /// Processes that use no more than this of a CPU are left alone.
    cpu_share_min: f64 = 0.1, "Thesis, 7.3.2";
    /// Migration is enabled below this local access ratio.
    local_access_ratio_max: f64 = 0.8, "Code, MAX_LOCALITY_MIGRATION";
    /// Interleaving is enabled above this imbalance of controllers.
    imbalance_min: f64 = 0.35, "Code, MIN_IMBALANCE";
    /// Replication is enabled up to this share of modified lines, in each thread.
    modified_share_max: f64 = 0.05, "Code, DCRM_MAX";
    /// If modified lines are not known: replication is enabled from this share of reads.
    read_ratio_min: f64 = 0.9, "Code, MRR_MIN";
    /// Replication is enabled up to this share of the machine's memory in use.
    memory_used_max: f64 = 0.25, "Code, MEMORY_USAGE_MAX";
    /// Counters that ran for a smaller part of a round are ignored. Those of the lab always run.
    counters_running_min: f64 = 0.15, "Code, MIN_ACTIVE_PERCENTAGE";
    /// Samples of a page needed to move it to the node that uses it; one is enough while interleaving is enabled.
    samples_min: u64 = 2, "Thesis, 7.4, and code";
    /// Most pages kept per round, and most operations, at the full sampling rate.
    page_cap: u64 = 30_000, "Thesis, table 7.3: 20,000 and more are alike, 10,000 cost 5 %";
    /// The same at the low rate.
    page_cap_low: u64 = 10_000, "Code";
    /// Core cycles between samples at the full rate; `predict` has a rate of its own.
    sampling_interval_cycles: u64 = 65_528, "Thesis, 7.5 (65K), and code (0xFFF8)";
    /// Factor by which the low rate has fewer samples, in decisions. The agent takes 1/32, because counters show when
    /// more are needed.
    sampling_divisor: u64 = 4, "Thesis, 7.5";
    /// With fewer operations than this in a round, the sampling rate is low.
    operations_min: u64 = 10, "Thesis, 7.5";
    /// Fewest pages in one round for the first replication of a process, since it copies page tables.
    first_replication_pages: u64 = 500, "Code";
    /// A page whose copies were written more often than this is never replicated again.
    collapses_max: u64 = 5, "Code of the replication kernel";
    /// A page that returns to a node within this many rounds stays there.
    ping_pong_rounds: u64 = 2, "Thesis, 7.5: successive rounds, no number; own: one round may miss the page";
    /// A page that moved this many times stays where it is; 0 for no limit.
    page_moves_max: u64 = 0, "Code, PAGE_BOUNCING_FIX: off";
    /// Rounds before a page that the kernel refused to move is requested again.
    refused_rounds: u64 = 16, "Own: pages are held by devices or other processes for longer than a round";
    /// Pages per action.
    batch_pages: u64 = 2048, "Own: 8 MiB, some milliseconds of the kernel's time";
    /// Assumed rate of moving, bytes/s, until it is measured. Pages are moved for as long as earlier moves have saved,
    /// as far as costs of accesses differ by more than `worse_cost_min`, and for as long as CPUs have
    /// waited for some controllers more than they would if load were even.
    move_bytes_per_s: f64 = 600e6, "Own: 4 KiB in 7 us, by four threads in the lab on its Opterons";
    /// Initial credit for moving, in rounds.
    credit_rounds: f64 = 1.0, "Own: moves show what they help when some thousand pages have moved";
    /// Later credit without savings and without waiting, as a share of time.
    credit_share: f64 = 0.02, "Own: what may be lost where nothing helps";
    /// Share of a node's memory that pages are not moved into.
    memory_free_min: f64 = 0.02, "Own: above the kernel's own watermarks, so that moves do not stall allocations";
    /// With 1, `carrefour` splits huge pages that nodes share falsely; with 0 these move as a whole.
    split_shared: u64 = 1, "Own: the study's pages are small";
    /// A shared huge page with at least this share of all samples is split before it is interleaved.
    hot_page_share_min: f64 = 0.06, "Carrefour for large pages (Gaud et al., 2014), from memory";
    /// Moves are reverted when the cost of an access grows by this factor.
    worse_cost_min: f64 = 1.15, "Own: rounds of a steady program differ by less";
    /// Rounds without moves after that; doubled each time.
    rest_rounds: u64 = 4, "Own";
    /// Most rounds without moves.
    rest_rounds_max: u64 = 64, "Own";
    /// With 1, `predict` spreads what a program touches before it makes threads; with 0 that is left to first touch.
    spread_start: u64 = 1, "Own: what one thread fills, many use";
    /// With 1, `predict` keeps threads on the node that has most of their memory; with 0 the kernel places them.
    keep_threads: u64 = 1, "Own: what threads touch first is near for as long as they stay";
    /// Difference of two nodes' cache pressure (misses per thousand instructions) at which a process is moved.
    cache_pressure_gap_min: f64 = 5.0, "Own, as manager leaves it open: a quarter of a memory-bound program";
    /// Memory follows its process when remote accesses add at least this share to its cost: remote accesses over all,
    /// times the extra cost of one. On two X5650 that is one remote access in eight.
    remote_cost_min: f64 = 0.05, "Own, as manager leaves it open: machine dependent, so by the machine's latencies";
    /// Rounds that a process stays on a node after a move.
    home_rounds: u64 = 3, "Own, as manager leaves it open: its memory has to follow first";
    /// Accesses to shared pages that join two threads in a cluster.
    shared_accesses_min: u64 = 5, "Code";
    /// Most threads per page that are compared, busiest first.
    cluster_threads_max: u64 = 64, "Code";
}

impl Thresholds {
    /// [`Thresholds::accesses_per_us_min`] scaled to this machine: the rate that uses the same part of one controller
    /// if all accesses went there. Unscaled if bandwidths are not known.
    pub fn accesses_per_us_min_on(&self, costs: &Costs) -> f64 {
        let scale = costs.controller_bandwidth_bytes_per_s().map_or(1.0, |mean| mean / STUDY_CONTROLLER_BYTES_PER_S);
        self.accesses_per_us_min * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_the_users_guide_with_default_and_origin() {
        let guide = include_str!("../../../docs/place.md");
        for Threshold { name, default, origin, .. } in Thresholds::table() {
            let row = guide.lines().find(|line| line.starts_with(&format!("| `{name}` | {default} | ")));
            assert!(
                row.is_some_and(|row| row.ends_with(&format!(" | {origin} |"))),
                "no `{name}`, {default}, {origin}"
            );
        }
    }

    #[test]
    fn values_are_by_name() {
        let thresholds = Thresholds { credit_rounds: 7.0, ..Thresholds::default() };
        let changed: Vec<_> = thresholds.values().into_iter().zip(Thresholds::default().values()).collect();
        let changed: Vec<_> = changed.into_iter().filter(|(now, before)| now != before).collect();
        assert_eq!(changed, [(("credit_rounds", 7.0), ("credit_rounds", 1.0))]);
    }
}
