//! Latencies and routes between nodes, from the machine's description.

use machine::{Machine, NodeId, Routes};
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// Rise and slope of a typical two-socket machine, if the description has no loaded latencies.
const USUAL_CURVE: (f64, f64) = (0.08, 0.15);
/// Utilisation from which on a controller or link counts as nearly saturated: beyond, latency grows without bound.
pub const NEARLY_FULL: f64 = 0.8;

/// Idle latencies and routes of a machine.
pub struct Distances<'a> {
    /// The machine's description.
    pub machine: &'a Machine,
    /// Its routes, if the description has them.
    pub routes: Option<Routes>,
    known: RefCell<FxHashMap<(NodeId, NodeId), Option<f64>>>,
}

impl<'a> Distances<'a> {
    /// A description without routes has no latencies either.
    pub fn new(machine: &'a Machine) -> Self {
        Self::with_routes(machine, Routes::new(machine).ok())
    }

    /// With routes that are known already: finding those of large machines takes milliseconds.
    pub fn with_routes(machine: &'a Machine, routes: Option<Routes>) -> Self {
        Self { machine, routes, known: RefCell::default() }
    }

    /// Latency of an access on an idle machine, ns.
    pub fn idle_ns(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let find = || self.routes.as_ref()?.latency_ns(self.machine, from, to);
        *self.known.borrow_mut().entry((from, to)).or_insert_with(find)
    }

    /// Rise and slope of latency with load, relative to the idle latency, if the description has one of them: see
    /// [`machine::Latency`]. The other is 0, as in the lab's model.
    pub fn curve(&self) -> Option<(f64, f64)> {
        let latency = self.machine.latency.as_ref()?;
        let (rise, slope) = (latency.loaded_rise, latency.loaded_slope);
        rise.or(slope).map(|_| (rise.unwrap_or(0.0), slope.unwrap_or(0.0)))
    }

    /// Loaded over idle latency from which on a node's memory or the route to it is nearly saturated.
    pub fn saturated_factor(&self) -> f64 {
        let (rise, slope) = self.curve().unwrap_or(USUAL_CURVE);
        1.0 + rise + slope * NEARLY_FULL / (1.0 - NEARLY_FULL)
    }
}
