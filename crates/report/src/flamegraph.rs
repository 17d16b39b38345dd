//! Where remote accesses cost time: a flame graph of their call chains, and the same as folded stacks.

use crate::label::label;
use inferno::flamegraph::{self, Options, Palette, color::BasicPalette};
use machine::{NodeId, Routes};
use profile::{Access, CodeId, Profile, View};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// What remote accesses cost by the call chains that led to them: the latency that they have above that of local
/// memory, times the accesses that each sample stands for. Where no latency is known, so many accesses.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteCost {
    /// Functions from the outermost to the one that accesses, separated by `;`, and the cost.
    stacks: BTreeMap<String, f64>,
    /// The cost is in ns.
    timed: bool,
}

/// Why a flame graph could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the flame graph: {0}")]
pub struct FlameGraphError(String);

impl RemoteCost {
    /// Of the accesses of a view.
    pub fn of(view: &View) -> Self {
        let timed = view.tally().timed_accesses > 0.0;
        let local = Local::of(view);
        // Chains are few, accesses many.
        let mut costs: HashMap<(Vec<CodeId>, CodeId), f64> = HashMap::new();
        let mut by_chain = HashMap::new();
        for access in view.accesses().filter(Access::is_remote) {
            *by_chain.entry((access.chain, access.code)).or_insert(0.0) +=
                f64::from(access.weight) * if timed { local.excess_ns(&access) } else { 1.0 };
        }
        let profile = view.profile();
        for ((chain, code), cost) in by_chain {
            let outwards = chain.map_or(&[][..], |chain| profile.chain(chain)).to_vec();
            *costs.entry((outwards, code)).or_insert(0.0) += cost;
        }
        let mut stacks = BTreeMap::new();
        for ((outwards, code), cost) in costs {
            let frames = outwards.iter().rev().chain([&code]).map(|code| frame(profile, *code));
            *stacks.entry(frames.collect::<Vec<_>>().join(";")).or_insert(0.0) += cost;
        }
        Self { stacks, timed }
    }

    /// Folded stacks, as the tools that draw flame graphs read them: `main;work;load 1234`, a line a chain, in ns or
    /// in accesses. Chains that cost nothing are left out.
    pub fn to_folded(&self) -> String {
        let mut text = String::new();
        for (stack, cost) in &self.stacks {
            let cost = cost.round() as u64;
            if cost > 0 {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{stack} {cost}");
            }
        }
        text
    }

    /// A flame graph as one SVG image that can be searched and zoomed into in a browser.
    pub fn to_svg(&self, title: &str) -> Result<String, FlameGraphError> {
        let folded = self.to_folded();
        let mut options = Options::default();
        options.title = label(title);
        options.subtitle = Some(self.subtitle(folded.is_empty()));
        if self.timed { "ns" } else { "remote accesses" }.clone_into(&mut options.count_name);
        options.colors = Palette::Basic(BasicPalette::Orange);
        options.deterministic = true;
        // An empty graph is refused: it says so as a graph of one frame.
        let lines: Vec<&str> = if folded.is_empty() { vec!["no remote access 1"] } else { folded.lines().collect() };
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines, &mut svg).map_err(|error| FlameGraphError(error.to_string()))?;
        String::from_utf8(svg).map_err(|error| FlameGraphError(error.to_string()))
    }

    fn subtitle(&self, empty: bool) -> String {
        let what = if self.timed {
            "what remote accesses took longer than local ones would have, ns"
        } else {
            "remote accesses: no source told latencies"
        };
        if empty { "no remote access cost anything".to_owned() } else { what.to_owned() }
    }
}

/// The latency of local memory.
struct Local {
    idle_ns: HashMap<NodeId, f64>,
    mean_ns: f64,
}

impl Local {
    /// Of an idle machine; where its description does not tell, that of the view's local accesses.
    fn of(view: &View) -> Self {
        let machine = view.profile().machine();
        let routes = Routes::of(machine).ok();
        let idle = |node: &machine::Node| Some((node.id, routes.as_ref()?.latency_ns(machine, node.id, node.id)?));
        let (mut time_ns, mut accesses) = (0.0, 0.0);
        for access in view.accesses().filter(Access::is_local) {
            if let Some(ns) = access.latency_ns {
                time_ns += f64::from(ns) * f64::from(access.weight);
                accesses += f64::from(access.weight);
            }
        }
        let mean_ns = if accesses > 0.0 { time_ns / accesses } else { 0.0 };
        Self { idle_ns: machine.nodes.iter().filter_map(idle).collect(), mean_ns }
    }

    /// What an access took longer. One whose latency is not known is no cost beside those whose is.
    fn excess_ns(&self, access: &Access) -> f64 {
        let local_ns = access.from.and_then(|from| self.idle_ns.get(&from)).copied().unwrap_or(self.mean_ns);
        access.latency_ns.map_or(0.0, |ns| (f64::from(ns) - local_ns).max(0.0))
    }
}

/// The name of a frame: without what separates frames and lines.
fn frame(profile: &Profile, code: CodeId) -> String {
    let name = label(&profile.function_label(code)).replace(';', ":");
    if name.trim().is_empty() { "?".to_owned() } else { name }
}
