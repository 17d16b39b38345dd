//! The cost of remote accesses by call chain, as a flame graph or as folded stacks.

use crate::escape::escape_name;
use crate::picture::DARK;
use inferno::flamegraph::{self, Options, Palette, color::BasicPalette};
use machine::{NodeId, Routes};
use profile::{Access, ChainId, CodeId, ObjectId, Profile, View};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The cost of remote accesses by call chain, or by the code that allocated the memory where no access has a chain: latency in excess of local memory's, times the accesses that each sample
/// stands for. If no latency is known, the number of accesses.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteCost {
    /// Functions from the outermost to the one that accesses, separated by `;`, and the cost.
    stacks: BTreeMap<String, f64>,
    /// Whether the cost is in ns.
    timed: bool,
    /// Whether the chains are of allocations.
    by_allocation: bool,
}

/// The flame graph could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the flame graph: {0}")]
pub struct FlameGraphError(String);

impl RemoteCost {
    /// For the accesses of a view.
    pub fn new(view: &View) -> Self {
        let timed = view.tally().timed_accesses > 0.0;
        let local = Local::new(view);
        let profile = view.profile();
        let chain_of = |chain: Option<ChainId>| chain.map_or(&[][..], |chain| profile.chain(chain));
        // Chains are few and accesses many, so accesses are summed by chain first.
        let by_allocation = view.accesses().all(|access| chain_of(access.chain).is_empty());
        let mut by_frames: HashMap<(Frames, CodeId), f64> = HashMap::new();
        for access in view.accesses().filter(Access::is_remote) {
            let frames = if by_allocation { Frames::Object(access.object) } else { Frames::Chain(access.chain) };
            *by_frames.entry((frames, access.code)).or_insert(0.0) +=
                f64::from(access.weight) * if timed { local.excess_ns(&access) } else { 1.0 };
        }
        let mut stacks = BTreeMap::new();
        for ((frames, code), cost) in by_frames {
            let outwards = match frames {
                Frames::Chain(chain) => names(profile, chain_of(chain)),
                Frames::Object(object) => allocation(profile, object),
            };
            let stack =
                outwards.into_iter().chain([frame(&profile.function_label(code))]).collect::<Vec<_>>().join(";");
            *stacks.entry(stack).or_insert(0.0) += cost;
        }
        Self { stacks, timed, by_allocation }
    }

    /// Folded stacks, the input of flame graph tools: `main;work;load 1234`, one chain per line, in ns or in accesses.
    /// Chains without cost are omitted.
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

    /// A flame graph as one SVG image that can be searched and zoomed in a browser.
    pub fn to_svg(&self, title: &str) -> Result<String, FlameGraphError> {
        let folded = self.to_folded();
        let mut options = Options::default();
        options.title = escape_name(title);
        options.subtitle = Some(self.subtitle(folded.is_empty()));
        if self.timed { "ns" } else { "remote accesses" }.clone_into(&mut options.count_name);
        options.colors = Palette::Basic(BasicPalette::Orange);
        options.deterministic = true;
        // The library rejects an empty graph, so a single frame says that there is nothing.
        let lines: Vec<&str> = if folded.is_empty() { vec!["no remote access 1"] } else { folded.lines().collect() };
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines, &mut svg).map_err(|error| FlameGraphError(error.to_string()))?;
        let svg = String::from_utf8(svg).map_err(|error| FlameGraphError(error.to_string()))?;
        Ok(svg.replacen("<style", &format!("{DARK}<style"), 1))
    }

    fn subtitle(&self, empty: bool) -> String {
        let what = if self.timed {
            "latency of remote accesses in excess of local latency, ns"
        } else {
            "remote accesses: no source reports latencies"
        };
        match empty {
            true => "no remote access cost anything".to_owned(),
            false if self.by_allocation => {
                format!("{what}; below the code that allocated the memory, as accesses have no call chains")
            }
            false => what.to_owned(),
        }
    }
}

/// The latency of local memory.
struct Local {
    idle_ns: HashMap<NodeId, f64>,
    mean_ns: f64,
}

impl Local {
    /// From the machine's description; if it has no latencies, from the view's local accesses.
    fn new(view: &View) -> Self {
        let machine = view.profile().machine();
        let routes = Routes::new(machine).ok();
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

    /// Latency in excess of local memory's. 0 if the latency of the access is not known.
    fn excess_ns(&self, access: &Access) -> f64 {
        let local_ns = access.from.and_then(|from| self.idle_ns.get(&from)).copied().unwrap_or(self.mean_ns);
        access.latency_ns.map_or(0.0, |ns| (f64::from(ns) - local_ns).max(0.0))
    }
}

/// What accesses are summed by, besides the function that accesses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Frames {
    Chain(Option<ChainId>),
    Object(ObjectId),
}

/// Names of a chain's functions, outermost first.
fn names(profile: &Profile, chain: &[CodeId]) -> Vec<String> {
    chain.iter().rev().map(|code| frame(&profile.function_label(*code))).collect()
}

/// The functions that allocated an object, outermost first; for others, what the object is.
fn allocation(profile: &Profile, object: ObjectId) -> Vec<String> {
    let allocated = profile.objects().get(object.0 as usize).map(|object| names(profile, profile.chain(object.site)));
    let label = || profile.site_of(object).map_or_else(String::new, |site| profile.site_label(site));
    allocated.filter(|names| !names.is_empty()).unwrap_or_else(|| vec![frame(&label())])
}

/// The name of a frame, without the separators of frames and lines.
fn frame(name: &str) -> String {
    let name = escape_name(name).replace(';', ":");
    if name.trim().is_empty() { "?".to_owned() } else { name }
}
