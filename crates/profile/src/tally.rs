//! Counts of accesses.

use crate::profile::Access;
use crate::statistics::{effective_samples, ratio};
use serde::Serialize;
use trace::{AccessKind, Served};

/// Counts of accesses. `samples` and fields with this word in their names count samples, on which confidence rests; the
/// others count the accesses that samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Samples.
    pub samples: u64,
    /// Samples that are loads.
    pub load_samples: u64,
    /// Samples that are stores.
    pub store_samples: u64,
    /// Loads among the samples that reached memory.
    pub memory_load_samples: u64,
    /// Stores among them.
    pub memory_store_samples: u64,
    /// Samples that went to the node of their CPU.
    pub local_samples: u64,
    /// Samples that went to another node.
    pub remote_samples: u64,
    /// Samples that another core's cache served.
    pub peer_samples: u64,
    /// Accesses.
    pub accesses: f64,
    /// Accesses to memory of the node of their CPU.
    pub local_accesses: f64,
    /// Accesses to memory of another node.
    pub remote_accesses: f64,
    /// Accesses that another core's cache served.
    pub peer_accesses: f64,
    /// Sum of the squares of the numbers of accesses that the local and remote samples stand for.
    pub squared_accesses: f64,
    /// The same of the samples that another core's cache served.
    pub squared_peer_accesses: f64,
    /// Total latency of all accesses that reached memory and have a known latency, ns.
    pub memory_time_ns: f64,
    /// Number of these accesses.
    pub timed_accesses: f64,
    /// Total latency of those that another core's cache served, ns.
    pub peer_time_ns: f64,
    /// Number of these.
    pub timed_peer_accesses: f64,
    /// Total latency of the remote ones among them, ns.
    pub remote_time_ns: f64,
    /// Number of these remote ones.
    pub timed_remote_accesses: f64,
}

impl Tally {
    /// Adds an access.
    pub fn add(&mut self, access: &Access) {
        let weight = f64::from(access.weight);
        self.samples += 1;
        self.accesses += weight;
        match access.kind {
            AccessKind::Load => self.load_samples += 1,
            AccessKind::Store => self.store_samples += 1,
            AccessKind::Unknown => {}
        }
        if access.reaches_memory() {
            match access.kind {
                AccessKind::Load => self.memory_load_samples += 1,
                AccessKind::Store => self.memory_store_samples += 1,
                AccessKind::Unknown => {}
            }
        }
        if access.leaves_core() {
            if access.served == Some(Served::Peer) {
                self.peer_samples += 1;
                self.peer_accesses += weight;
                self.squared_peer_accesses += weight * weight;
            } else if access.is_local() {
                self.local_samples += 1;
                self.local_accesses += weight;
                self.squared_accesses += weight * weight;
            } else {
                self.remote_samples += 1;
                self.remote_accesses += weight;
                self.squared_accesses += weight * weight;
            }
            if let Some(latency_ns) = access.latency_ns {
                let (time_ns, timed) = match access.served {
                    Some(Served::Peer) => (&mut self.peer_time_ns, &mut self.timed_peer_accesses),
                    _ => (&mut self.memory_time_ns, &mut self.timed_accesses),
                };
                *time_ns += weight * f64::from(latency_ns);
                *timed += weight;
                if access.is_remote() {
                    self.remote_time_ns += weight * f64::from(latency_ns);
                    self.timed_remote_accesses += weight;
                }
            }
        }
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.load_samples += other.load_samples;
        self.store_samples += other.store_samples;
        self.memory_load_samples += other.memory_load_samples;
        self.memory_store_samples += other.memory_store_samples;
        self.local_samples += other.local_samples;
        self.remote_samples += other.remote_samples;
        self.peer_samples += other.peer_samples;
        self.accesses += other.accesses;
        self.local_accesses += other.local_accesses;
        self.remote_accesses += other.remote_accesses;
        self.peer_accesses += other.peer_accesses;
        self.squared_accesses += other.squared_accesses;
        self.squared_peer_accesses += other.squared_peer_accesses;
        self.memory_time_ns += other.memory_time_ns;
        self.timed_accesses += other.timed_accesses;
        self.peer_time_ns += other.peer_time_ns;
        self.timed_peer_accesses += other.timed_peer_accesses;
        self.remote_time_ns += other.remote_time_ns;
        self.timed_remote_accesses += other.timed_remote_accesses;
    }

    /// The local share of accesses that reached memory.
    pub fn local_access_ratio(&self) -> Option<f64> {
        ratio(self.local_accesses, self.local_accesses + self.remote_accesses)
    }

    /// How many equal samples would tell that share as precisely: on some processors, loads and stores are sampled at
    /// different rates.
    pub fn effective_samples(&self) -> u64 {
        effective_samples(self.local_accesses + self.remote_accesses, self.squared_accesses)
    }

    /// The same for all accesses that left the core's caches.
    pub fn effective_samples_of_leaving(&self) -> u64 {
        effective_samples(self.leaving_accesses(), self.squared_accesses + self.squared_peer_accesses)
    }

    /// Accesses that left the core's caches, and whose node is known.
    pub fn leaving_accesses(&self) -> f64 {
        self.local_accesses + self.remote_accesses + self.peer_accesses
    }

    /// The mean latency of accesses that reached memory, ns.
    pub fn latency_mean_ns(&self) -> Option<f64> {
        ratio(self.memory_time_ns, self.timed_accesses)
    }

    /// The mean latency of all accesses that left the core's caches, ns.
    pub fn wait_mean_ns(&self) -> Option<f64> {
        ratio(self.memory_time_ns + self.peer_time_ns, self.timed_accesses + self.timed_peer_accesses)
    }

    /// The part of the observed latency that is of memory, 0 to 1; none without latencies.
    pub fn memory_part(&self) -> Option<f64> {
        ratio(self.memory_time_ns, self.memory_time_ns + self.peer_time_ns)
    }

    /// What these accesses are without those that other cores' caches served.
    #[must_use]
    pub fn of_memory(&self) -> Self {
        Self {
            samples: self.local_samples + self.remote_samples,
            load_samples: self.memory_load_samples,
            store_samples: self.memory_store_samples,
            peer_samples: 0,
            accesses: self.local_accesses + self.remote_accesses,
            peer_accesses: 0.0,
            squared_peer_accesses: 0.0,
            peer_time_ns: 0.0,
            timed_peer_accesses: 0.0,
            ..*self
        }
    }

    /// The cost of waiting for memory and other caches, by which rankings are ordered. If `all` have latencies, the total
    /// latency, ns (unknown ones count as the mean of all); otherwise remote accesses, and those to other caches, count a thousand times.
    pub fn cost(&self, all: &Self) -> f64 {
        match all.wait_mean_ns() {
            Some(mean_ns) => self.memory_time_ns + self.peer_time_ns + self.untimed_accesses() * mean_ns,
            None => self.remote_accesses + self.peer_accesses + 1e-3 * self.accesses,
        }
    }

    /// The cost of its remote accesses: their total latency, ns, likewise, or else their number.
    pub fn remote_cost(&self, all: &Self) -> f64 {
        match all.wait_mean_ns() {
            Some(mean_ns) => {
                self.remote_time_ns + (self.remote_accesses - self.timed_remote_accesses).max(0.0) * mean_ns
            }
            None => self.remote_accesses,
        }
    }

    /// Accesses that left the core's caches but whose latency is not known.
    fn untimed_accesses(&self) -> f64 {
        self.leaving_accesses() - self.timed_accesses - self.timed_peer_accesses
    }

    /// A part of the cost of all, if `all` have latencies.
    fn time_share(cost: f64, all: &Self) -> Option<f64> {
        all.wait_mean_ns().and_then(|_| ratio(cost, all.cost(all)))
    }

    /// The counts for output. `all` is the tally of the whole view.
    pub fn counts(&self, all: &Self) -> Counts {
        Counts {
            samples: self.samples,
            load_samples: self.load_samples,
            store_samples: self.store_samples,
            accesses: self.accesses,
            share: ratio(self.accesses, all.accesses).unwrap_or(0.0),
            local_accesses: self.local_accesses,
            remote_accesses: self.remote_accesses,
            remote_share: ratio(self.remote_accesses, all.remote_accesses).unwrap_or(0.0),
            local_access_ratio: self.local_access_ratio(),
            latency_mean_ns: self.latency_mean_ns(),
            memory_time_share: Self::time_share(self.cost(all), all),
            remote_time_share: Self::time_share(self.remote_cost(all), all),
        }
    }
}

/// A [`Tally`] relative to that of the whole view.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Samples that are loads.
    pub load_samples: u64,
    /// Samples that are stores.
    pub store_samples: u64,
    /// The accesses that the samples stand for.
    pub accesses: f64,
    /// Their share of all accesses of the view, 0 to 1.
    pub share: f64,
    /// Accesses to memory of the CPU's node.
    pub local_accesses: f64,
    /// Accesses to memory of another node.
    pub remote_accesses: f64,
    /// Their share of all remote accesses of the view, 0 to 1.
    pub remote_share: f64,
    /// Local accesses over local and remote ones, 0 to 1; none without either.
    pub local_access_ratio: Option<f64>,
    /// Mean latency of accesses that reached memory, ns; none if no source reports latency.
    pub latency_mean_ns: Option<f64>,
    /// The share of the total latency of all accesses of the view, 0 to 1, where unknown ones count as the mean; none if
    /// no source reports latency.
    pub memory_time_share: Option<f64>,
    /// Total latency of its remote accesses over the same whole: their cost. None if no source reports latency.
    pub remote_time_share: Option<f64>,
}
