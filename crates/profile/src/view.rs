//! Accesses that match a filter, tallied by object, site, thread, process, function and pair of nodes.

use crate::evidence::Evidence;
use crate::filter::{Filter, Predicate};
use crate::flow::Flow;
use crate::groups::Groups;
use crate::ids::{CodeId, ObjectId, ProcessId, SiteId, ThreadId};
use crate::measurements::Measurements;
use crate::profile::{Access, Profile};
use crate::samples::{NONE, Row};
use crate::shared_memory::SharedMemory;
use crate::statistics::Share;
use crate::tally::Tally;
use machine::NodeId;
use std::collections::{BTreeMap, HashMap};

/// Accesses that match a filter.
#[derive(Clone, Debug)]
pub struct View<'a> {
    profile: &'a Profile,
    /// Their positions; none for all accesses.
    chosen: Option<Vec<u32>>,
    /// First and last ns of the filter's time range, within the trace.
    time_ns: Option<(u64, u64)>,
    measured: Measurements,
    groups: Groups,
    tally: Tally,
    /// Whether the filter selects accesses by their outcome.
    selects_outcomes: bool,
    hides_accesses: bool,
    /// Where the filter selects processes: memory that several map.
    shared_with_others: SharedMemory,
}

/// Part of the accesses from which on memory counts as what several processes map.
const SHARED: f64 = 0.5;

/// Items with their accesses, highest cost first.
pub type Ranking<T> = Vec<(T, Tally)>;

impl Profile {
    /// The accesses that match a filter.
    pub fn view(&self, filter: &Filter) -> View<'_> {
        let chosen = (!filter.0.is_empty()).then(|| {
            let filter = filter.prepare(self);
            let holds = |(access, _): &(Access, u32)| filter.holds(access);
            self.accesses().zip(0..).filter(holds).map(|(_, at)| at).collect::<Vec<u32>>()
        });
        let groups = Groups::new(self, chosen.as_deref());
        let mut tally = Tally::default();
        groups.cells.in_order(self).for_each(|(_, cell)| tally.merge(&cell.tally));
        let time_ns = self.time_of(filter);
        let selects_outcomes = filter.0.iter().any(Predicate::selects_outcomes);
        let hides_accesses = filter.0.iter().any(Predicate::hides_accesses);
        let selects_processes = filter.0.iter().any(Predicate::selects_processes);
        let shared_with_others =
            if selects_processes { SharedMemory::new(&Flow::new(self, None)) } else { SharedMemory::default() };
        let measured = self.measured_of(filter);
        View {
            profile: self,
            chosen,
            time_ns,
            measured,
            groups,
            tally,
            selects_outcomes,
            hides_accesses,
            shared_with_others,
        }
    }
}

impl Profile {
    /// The time range of a filter, within that of the accesses, or of the counters if there is no access.
    fn time_of(&self, filter: &Filter) -> Option<(u64, u64)> {
        let times = filter.0.iter().filter_map(|predicate| match predicate {
            Predicate::Time(time) => Some(time),
            _ => None,
        });
        let whole = self.span_ns().or_else(|| self.counted_ns())?;
        Some(times.fold(whole, |(first, last), time| (first.max(*time.start()), last.min(*time.end()))))
    }

    /// Counter readings, if the filter selects all accesses of a time range.
    fn measured_of(&self, filter: &Filter) -> Measurements {
        let is_whole = filter.0.iter().all(|predicate| matches!(predicate, Predicate::Time(_)));
        let time = self.time_of(filter).filter(|_| is_whole);
        time.map_or_else(Measurements::default, |(first, last)| self.measured(&(first..=last)))
    }
}

impl<'a> View<'a> {
    /// Whether the filter leaves out accesses of other processes to the memory of these.
    pub(crate) fn leaves_sharers_out(&self, flow: &Flow) -> Option<Evidence> {
        let shared = flow.accesses().filter(|access| self.shared_with_others.has(access.object)).count() as u64;
        let share = Share { part: shared, of: flow.len() as u64, threshold: SHARED };
        let text = "several processes map it, and the filter leaves accesses of some out".to_owned();
        let (value, samples) = (share.value(), share.of);
        share.is_reached().then_some(Evidence { what: "processes", value, threshold: SHARED, samples, text })
    }

    /// The profile of the accesses.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Counter readings over the view's time range. Empty if the view is not all accesses of that time: counters cover
    /// the whole machine.
    pub fn measured(&self) -> &Measurements {
        &self.measured
    }

    /// All of them, tallied.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// All of them, in chronological order.
    pub fn accesses(&self) -> impl Iterator<Item = Access> + '_ {
        self.positions().map(|at| self.profile.at(at as usize))
    }

    /// Times of the first and last of them, ns; none without any.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let at = |position: u32| self.profile.at(position as usize).time_ns;
        match &self.chosen {
            None => self.profile.span_ns(),
            Some(chosen) => Some((at(*chosen.first()?), at(*chosen.last()?))),
        }
    }

    /// Whether its accesses were selected by their outcome, so that they say nothing about the program's placement.
    pub(crate) fn selects_outcomes(&self) -> bool {
        self.selects_outcomes
    }

    /// Whether the filter leaves accesses out to objects to which it has others: who shares and writes these is not seen.
    pub fn hides_accesses(&self) -> bool {
        self.hides_accesses
    }

    /// Begin and end of the filter's time range, ns, within the trace: rates refer to it.
    pub(crate) fn time_ns(&self) -> Option<(u64, u64)> {
        self.time_ns
    }

    /// All accessed objects.
    pub fn objects(&self) -> Ranking<ObjectId> {
        self.sorted(touched(&self.groups.objects, ObjectId))
    }

    /// All sites of those objects.
    pub fn sites(&self) -> Ranking<SiteId> {
        let mut sites = vec![Tally::default(); self.profile.site_ids().len()];
        for (object, site) in self.groups.objects.iter().zip(self.profile.sites_of_objects()) {
            if object.samples > 0 {
                sites[site.index()].merge(object);
            }
        }
        self.sorted(touched(&sites, SiteId))
    }

    /// All threads with accesses.
    pub fn threads(&self) -> Ranking<ThreadId> {
        self.sorted(touched(&self.by_thread(), ThreadId))
    }

    /// All processes with accesses.
    pub fn processes(&self) -> Ranking<ProcessId> {
        let mut processes = vec![Tally::default(); self.profile.processes().len()];
        for (tally, thread) in self.by_thread().iter().zip(self.profile.threads()) {
            processes[thread.process.index()].merge(tally);
        }
        self.sorted(touched(&processes, ProcessId))
    }

    /// All code locations with accesses.
    pub fn code(&self) -> Ranking<CodeId> {
        self.sorted(touched(&self.groups.codes, CodeId))
    }

    /// All functions with accesses, by label.
    pub fn functions(&self) -> Ranking<String> {
        let mut functions: HashMap<String, Tally> = HashMap::new();
        for (code, tally) in self.code() {
            functions.entry(self.profile.function_label(code)).or_default().merge(&tally);
        }
        self.sorted(functions.into_iter().collect())
    }

    /// Accesses that reached memory, by the node of the CPU and that of the memory.
    pub fn matrix(&self) -> BTreeMap<(NodeId, NodeId), Tally> {
        let pairs = self.pairs().into_iter().map(|(pair, tally)| (pair, tally.of_memory()));
        pairs.filter(|(_, tally)| tally.samples > 0).collect()
    }

    /// The same of all accesses that left the core's caches.
    pub(crate) fn pairs(&self) -> BTreeMap<(NodeId, NodeId), Tally> {
        let mut pairs: BTreeMap<_, Tally> = BTreeMap::new();
        for ((_, from, to), cell) in self.groups.cells.in_order(self.profile) {
            if let (Some(from), Some(to)) = (from, to) {
                pairs.entry((from, to)).or_default().merge(&cell.tally);
            }
        }
        pairs
    }

    /// Accesses by thread, node of the CPU, and node of the memory if memory was reached.
    pub fn thread_nodes(&self) -> BTreeMap<(ThreadId, Option<NodeId>, Option<NodeId>), Tally> {
        self.groups.cells.in_order(self.profile).map(|(key, cell)| (key, cell.tally)).collect()
    }

    /// Tallies of all of them.
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    fn by_thread(&self) -> Vec<Tally> {
        let mut threads = vec![Tally::default(); self.profile.threads().len()];
        for ((thread, _, _), cell) in self.groups.cells.in_order(self.profile) {
            threads[thread.index()].merge(&cell.tally);
        }
        threads
    }

    /// The flow of each of these objects, in one pass over the accesses.
    pub fn flows_of_objects(&self, objects: &[ObjectId]) -> Vec<Flow<'a>> {
        let objects = objects.iter().map(|object| object.index());
        self.flows(objects, self.profile.objects().len(), |row| row.object as usize)
    }

    /// The flow of each of these threads, in one pass over the accesses.
    pub fn flows_of_threads(&self, threads: &[ThreadId]) -> Vec<Flow<'a>> {
        let threads = threads.iter().map(|thread| thread.index());
        self.flows(threads, self.profile.threads().len(), |row| self.profile.thread_of(row).index())
    }

    /// The flow of the objects of each of these sites, in one pass over the accesses.
    pub fn flows_of_sites(&self, sites: &[SiteId]) -> Vec<Flow<'a>> {
        let of = self.profile.sites_of_objects();
        let sites = sites.iter().map(|site| site.index());
        self.flows(sites, self.profile.site_ids().len(), |row| of[row.object as usize].index())
    }

    /// All accesses, as one flow.
    pub fn flow(&self) -> Flow<'a> {
        Flow::new(self.profile, self.chosen.clone())
    }

    /// The accesses for which `is_in` holds, as one flow.
    pub(crate) fn flow_where(&self, is_in: impl Fn(&Access) -> bool) -> Flow<'a> {
        let chosen = self.positions().filter(|at| is_in(&self.profile.at(*at as usize))).collect();
        Flow::new(self.profile, Some(chosen))
    }

    fn positions(&self) -> impl Iterator<Item = u32> + '_ {
        let all = if self.chosen.is_none() { 0..self.profile.len() as u32 } else { 0..0 };
        all.chain(self.chosen.iter().flatten().copied())
    }

    fn flows(
        &self,
        chosen: impl Iterator<Item = usize>,
        groups: usize,
        group: impl Fn(&Row) -> usize,
    ) -> Vec<Flow<'a>> {
        let mut places = vec![NONE; groups];
        // A repeated ID gives a repeated flow, and an ID that does not exist gives an empty one.
        let chosen: Vec<usize> = chosen.collect();
        for (&number, place) in chosen.iter().zip(0..) {
            if let Some(known) = places.get_mut(number) {
                *known = place;
            }
        }
        let mut flows = vec![Vec::new(); chosen.len()];
        let rows = self.profile.rows();
        for at in self.positions() {
            if let Some(flow) = flows.get_mut(places[group(&rows[at as usize])] as usize) {
                flow.push(at);
            }
        }
        let flow = |(at, number): (usize, usize)| match places.get(number) {
            Some(&place) if place as usize != at => flows[place as usize].clone(),
            _ => std::mem::take(&mut flows[at]),
        };
        chosen.into_iter().enumerate().map(flow).map(|positions| Flow::new(self.profile, Some(positions))).collect()
    }

    /// Highest cost first, and lower number first among equals.
    fn sorted<T: Ord>(&self, mut ranking: Ranking<T>) -> Ranking<T> {
        let cost = |tally: &Tally| tally.cost(&self.tally);
        ranking.sort_unstable_by(|(a, first), (b, second)| cost(second).total_cmp(&cost(first)).then_with(|| a.cmp(b)));
        ranking
    }
}

/// Non-empty tallies only.
fn touched<T>(tallies: &[Tally], id: impl Fn(u32) -> T) -> Ranking<T> {
    let touched = tallies.iter().zip(0..).filter(|(tally, _)| tally.samples > 0);
    touched.map(|(tally, number)| (id(number), *tally)).collect()
}
