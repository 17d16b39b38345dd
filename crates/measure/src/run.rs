//! Executes the steps of a plan, one after the other.

use crate::arena::{Arena, huge_page_share};
use crate::chase::{Line, UNROLLED, walk, walk_writing};
use crate::cycles::{CYCLES_A_STEP, spend};
use crate::error::MeasureError;
use crate::firmware;
use crate::host::{Host, Usable};
use crate::missing::Missing;
use crate::plan::{Access, CopyState, Cores, Plan, Step, loaders};
use crate::results::{Caches, LoadPoint, LoadedCurve, Outcome, Results, WorkingSet};
use crate::statistics::Number;
use crate::stream::{BLOCK, LINE, Words, stream};
use crate::team::{Stop, ThreadRate, on, together};
use crossbeam_utils::atomic::AtomicCell;
use machine::{CpuId, NodeId, NodeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// If numbers spread, up to this multiple of the repeats is made before a number is rejected.
const MOST_ATTEMPTS: usize = 4;
/// Lines that one core leaves in its cache for another: 128 KiB, half of the smallest L2 caches.
const HANDED_LINES: usize = 2048;
/// The smallest working set, lines: 4 KiB.
const FEWEST_LINES: usize = UNROLLED;
/// Divisor of the loads of a chase under load, as each takes longer and all other cores stream meanwhile.
const LOADED_SHARE: usize = 4;
/// Duration of a chase in a cache, ns: clocks of virtual machines can have steps of tens of microseconds.
const CHASE_NS: f64 = 2e6;
/// Lower bound of a load's latency.
const LEAST_LOAD_NS: f64 = 0.1;
const CLOCK_STEPS: u64 = 1 << 20;

/// Progress of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The next step.
    pub step: Step,
    /// Completed part of the expected time, seconds.
    pub done_s: f64,
    /// The expected time, seconds.
    pub expected_s: f64,
}

/// Executes the steps. Failures are reported as missing, and so is everything that was not started when `interrupted`
/// became true. `progress` is called before each step.
pub fn run(host: &Host, plan: &Plan, interrupted: &AtomicBool, mut progress: impl FnMut(Progress)) -> Results {
    let nodes: Vec<NodeId> = host.nodes.iter().map(|node| node.id).collect();
    let mut results = Results::new(plan, nodes);
    results.instructions_per_cycle = host.instructions_per_cycle;
    let mut bench = Bench { host, plan, interrupted, arenas: Vec::with_capacity(plan.arrays.len()) };
    let expected_s = plan.expected_s();
    let steps_s: f64 = plan.steps.iter().map(|step| plan.expected_step_s(step)).sum();
    let mut done_s = expected_s - steps_s;
    for arrays in plan.arrays.iter().take_while(|_| !interrupted.load(Relaxed)) {
        match Arena::new(host, plan, *arrays) {
            Ok(arena) => bench.arenas.push(arena),
            Err(why) => {
                results.missing.push(Missing::new(format!("everything in memory of node {}", arrays.node), why));
            }
        }
    }
    bench.set_huge_pages(&mut results);
    bench.note_idle_cores(&mut results);
    for &step in &plan.steps {
        if interrupted.load(Relaxed) {
            results.missing.push(Missing::new(step, MeasureError::Interrupted));
            continue;
        }
        progress(Progress { step, done_s, expected_s });
        done_s += plan.expected_step_s(&step);
        // A node without memory for its arrays has been reported once, for all of its steps.
        if !bench.has_memory(&step) {
            continue;
        }
        match bench.measure(step) {
            Ok(outcome) => {
                let refused = outcome.numbers().into_iter().filter(|number| number.value.is_none());
                if let Some(spread) = refused.map(|number| number.spread).max_by(f64::total_cmp) {
                    let (limit, load) = (plan.options.max_spread, host.load.clone());
                    let what = format!("{step} (spread {:.0} %)", spread * 100.0);
                    results.missing.push(Missing::new(what, MeasureError::Spread { limit, load }));
                }
                results.take(step, outcome);
            }
            Err(why) => results.missing.push(Missing::new(step, why)),
        }
    }
    if let (Some(latency_ns), Some(distances)) = (&results.latency_ns, &host.machine.distances)
        && results.nodes.len() > 1
    {
        results.firmware = firmware::compare(&results.nodes, distances, latency_ns);
    }
    results.copy_only_cores(|node| host.cores(node).len() == 1);
    results.partial = !results.missing.is_empty();
    results
}

struct Bench<'a> {
    host: &'a Host,
    plan: &'a Plan,
    interrupted: &'a AtomicBool,
    arenas: Vec<Arena>,
}

impl Bench<'_> {
    fn measure(&mut self, step: Step) -> Result<Outcome, MeasureError> {
        match step {
            Step::Latency { from, to } => self.latency(from, to).map(Outcome::Number),
            Step::Bandwidth { from, to, access, cores } => {
                let count = if cores == Cores::One { 1 } else { self.host.cores(from).len() };
                self.bandwidth(from, to, access, count).map(Outcome::Number)
            }
            Step::Link { from, to, cores } => self.bandwidth(from, to, Access::Read, cores).map(Outcome::Number),
            Step::Machine { access } => self.machine(access).map(Outcome::Number),
            Step::Transfer { reader, owner, state } => self.transfer(reader, owner, state).map(Outcome::Number),
            Step::Loaded { from, to } => self.loaded(from, to).map(Outcome::Curve),
            Step::Caches { node } => self.caches(node).map(Outcome::Caches),
        }
    }

    fn set_huge_pages(&self, results: &mut Results) {
        let share = huge_page_share(self.arenas.iter().map(Arena::bytes).sum());
        results.settings.huge_page_share = share;
        if let Some(share) = share.filter(|share| *share < 0.9 && self.plan.options.huge_pages) {
            results.notes.push(format!(
                "only {:.0} % of the arrays lay on huge pages, so latencies contain TLB misses and page walks: look at \
                 /sys/kernel/mm/transparent_hugepage/enabled (madvise or always is needed) and at fragmented memory",
                share * 100.0
            ));
        }
    }

    fn note_idle_cores(&self, results: &mut Results) {
        let is_idle = |node: &&Usable| !node.cores.is_empty() && !self.arenas.iter().any(|arena| arena.node == node.id);
        let idle: NodeSet = self.host.nodes.iter().filter(is_idle).map(|node| node.id).collect();
        let is_asked_for = self.plan.steps.iter().any(|step| matches!(step, Step::Machine { .. }));
        if is_asked_for && !idle.is_empty() {
            results.notes.push(format!(
                "the whole machine's bandwidth is without the cores of nodes {idle}: there are no arrays on these nodes"
            ));
        }
    }

    fn has_memory(&self, step: &Step) -> bool {
        let has = |node: NodeId| self.arenas.iter().any(|arena| arena.node == node);
        match step {
            Step::Latency { to, .. } | Step::Bandwidth { to, .. } | Step::Link { to, .. } | Step::Loaded { to, .. } => {
                has(*to)
            }
            Step::Transfer { owner, .. } => has(*owner),
            Step::Caches { node } => has(*node),
            Step::Machine { .. } => self.arenas.iter().any(|arena| !self.host.cores(arena.node).is_empty()),
        }
    }

    fn arena(&mut self, node: NodeId) -> Result<&mut Arena, MeasureError> {
        self.arenas.iter_mut().find(|arena| arena.node == node).ok_or(MeasureError::NoMemory(node))
    }

    fn first_core(&self, node: NodeId) -> Result<CpuId, MeasureError> {
        self.host.cores(node).first().copied().ok_or(MeasureError::NoMemory(node))
    }

    /// Measures the given number of times, and more often if the numbers spread.
    fn repeated<const N: usize>(
        &mut self,
        mut once: impl FnMut(&mut Self) -> Result<[f64; N], MeasureError>,
    ) -> Result<[Number; N], MeasureError> {
        let mut samples = vec![Vec::new(); N];
        loop {
            for _ in 0..self.plan.repeats.max(1) {
                if self.interrupted.load(Relaxed) {
                    return Err(MeasureError::Interrupted);
                }
                let measured = once(self)?;
                samples.iter_mut().zip(measured).for_each(|(samples, value)| samples.push(value));
            }
            let nothing = Number { value: None, spread: f64::INFINITY, repeats: 0 };
            let of = |i: usize| Number::from_samples(&samples[i], self.plan.options.max_spread).unwrap_or(nothing);
            let numbers: [Number; N] = std::array::from_fn(of);
            let enough = samples.iter().all(|samples| samples.len() >= MOST_ATTEMPTS * self.plan.repeats);
            if enough || numbers.iter().all(|number| number.value.is_some()) {
                return Ok(numbers);
            }
        }
    }

    fn latency(&mut self, from: NodeId, to: NodeId) -> Result<Number, MeasureError> {
        let (cpu, loads) = (self.first_core(from)?, self.plan.loads);
        let arena = self.arena(to)?;
        arena.cycle(usize::MAX, arena.cpu)?;
        let [number] = self.repeated(|bench| Ok([bench.chase(to, cpu, loads)?]))?;
        Ok(number)
    }

    /// One chase on one CPU, ns per load, from where the last one in this memory ended.
    fn chase(&mut self, memory: NodeId, cpu: CpuId, loads: usize) -> Result<f64, MeasureError> {
        let arena = self.arena(memory)?;
        let start = arena.next.ok_or(MeasureError::NoMemory(memory))?;
        let (next, seconds) = on(cpu, || {
            let begin = Instant::now();
            let next = walk(start, loads);
            (next, begin.elapsed().as_secs_f64())
        })?;
        arena.next = Some(next);
        Ok(seconds * 1e9 / loads as f64)
    }

    fn bandwidth(&mut self, from: NodeId, to: NodeId, access: Access, cores: usize) -> Result<Number, MeasureError> {
        let cpus: Vec<CpuId> = self.host.cores(from).iter().copied().take(cores).collect();
        let quota = self.plan.stream_bytes;
        let [number] = self.repeated(|bench| {
            let parts = shares(bench.arena(to)?.words, &cpus).collect();
            Ok([total_rate(&together(parts, |words, stop| streamed(access, words, quota, stop))?)])
        })?;
        Ok(number)
    }

    fn machine(&mut self, access: Access) -> Result<Number, MeasureError> {
        let (host, quota) = (self.host, self.plan.stream_bytes);
        let [number] = self.repeated(|bench| {
            let parts = bench.arenas.iter_mut().flat_map(|arena| shares(arena.words, host.cores(arena.node))).collect();
            Ok([total_rate(&together(parts, |words, stop| streamed(access, words, quota, stop))?)])
        })?;
        Ok(number)
    }

    fn transfer(&mut self, reader: NodeId, owner: NodeId, state: CopyState) -> Result<Number, MeasureError> {
        let reader_cpu = self.first_core(reader)?;
        let other = self.host.cores(owner).iter().find(|cpu| **cpu != reader_cpu);
        let owner_cpu = other.copied().ok_or(MeasureError::NoMemory(owner))?;
        let arena = self.arena(owner)?;
        arena.cycle(usize::MAX, arena.cpu)?;
        let rounds = (self.plan.loads / HANDED_LINES / 4).max(1);
        let [number] = self.repeated(|bench| {
            let mut total_ns = 0.0;
            for _ in 0..rounds {
                // The least recently used lines, so that only the owner's cache has them now.
                let start = bench.arena(owner)?.next.ok_or(MeasureError::NoMemory(owner))?;
                on(owner_cpu, || match state {
                    CopyState::Clean => walk(start, HANDED_LINES),
                    CopyState::Modified => walk_writing(start, HANDED_LINES),
                })?;
                total_ns += bench.chase(owner, reader_cpu, HANDED_LINES)?;
            }
            Ok([total_ns / rounds as f64])
        })?;
        Ok(number)
    }

    /// The idle point, then points whose streams pause less and less, the last one not at all.
    fn loaded(&mut self, from: NodeId, to: NodeId) -> Result<LoadedCurve, MeasureError> {
        let chaser = self.first_core(from)?;
        let count = loaders(self.host, from);
        let loading: Vec<CpuId> =
            self.host.cores(from).iter().copied().filter(|cpu| *cpu != chaser).take(count).collect();
        let first = loading.first().copied().unwrap_or(chaser);
        let step_s = on(first, seconds_a_step)?;
        let arena = self.arena(to)?;
        arena.cycle(usize::MAX, arena.cpu)?;
        let idle = self.loaded_point(to, chaser, &[], 0)?;
        let full = self.loaded_point(to, chaser, &loading, 0)?;
        // The time that a core takes to read a burst when alone is not part of the pause.
        let alone = self.loaded_point(to, chaser, loading.get(..1).unwrap_or(&[]), 0)?;
        let mut points = vec![idle];
        if let Some(full_rate) = full.load_bytes_per_s.value {
            // Where its numbers spread, the points are at other loads, which are measured as well.
            let alone_rate = alone.load_bytes_per_s.value.unwrap_or(full_rate / loading.len().max(1) as f64);
            let burst = (BLOCK * LINE) as f64;
            let last = self.plan.load_points.saturating_sub(1).max(1);
            for point in 1..last {
                let rate = full_rate / loading.len() as f64 * point as f64 / last as f64;
                let pause_s = (burst / rate - burst / alone_rate).max(0.0);
                points.push(self.loaded_point(to, chaser, &loading, (pause_s / step_s) as u64)?);
            }
        }
        points.push(full);
        Ok(LoadedCurve { node: to, from, loading_cores: loading.len(), points })
    }

    /// A chase on one CPU while others stream, with a pause of `pause` steps after each block.
    fn loaded_point(
        &mut self,
        memory: NodeId,
        chaser: CpuId,
        loading: &[CpuId],
        pause: u64,
    ) -> Result<LoadPoint, MeasureError> {
        enum Role<'a> {
            Chase(&'static Line),
            Load(&'a mut [Words]),
        }
        let loads = (self.plan.loads / LOADED_SHARE).next_multiple_of(UNROLLED);
        let [latency_ns, load_bytes_per_s] = self.repeated(|bench| {
            let arena = bench.arena(memory)?;
            let start = arena.next.ok_or(MeasureError::NoMemory(memory))?;
            let mut parts = vec![(chaser, Role::Chase(start))];
            parts.extend(shares(arena.words, loading).map(|(cpu, words)| (cpu, Role::Load(words))));
            let end = AtomicCell::new(None);
            let done = together(parts, |role, stop| match role {
                Role::Chase(start) => {
                    end.store(Some(walk(start, loads)));
                    stop.now();
                    loads
                }
                Role::Load(words) => stream(Access::Read, words, |_| {
                    spend(pause);
                    stop.is_now()
                }),
            })?;
            arena.next = end.load().or(arena.next);
            let (chase, load) = done.split_first().ok_or(MeasureError::NoMemory(memory))?;
            Ok([1e9 / chase.rate(), total_rate(load) + chase.rate() * LINE as f64])
        })?;
        Ok(LoadPoint { load_bytes_per_s, latency_ns })
    }

    fn caches(&mut self, node: NodeId) -> Result<Caches, MeasureError> {
        let (cpu, loads) = (self.first_core(node)?, self.plan.loads);
        let each_cycle = self.host.instructions_per_cycle.unwrap_or(1.0);
        let [clock_hz] = self.repeated(|_| Ok([CYCLES_A_STEP / each_cycle / on(cpu, seconds_a_step)?]))?;
        let most = self.arena(node)?.line_count();
        let mut working_sets = Vec::new();
        for step in 0.. {
            let lines = FEWEST_LINES as f64 * 2_f64.powf(f64::from(step) / self.plan.sizes_per_doubling as f64);
            let lines = (lines as usize).min(most);
            self.arena(node)?.cycle(lines, cpu)?;
            // Once through to fill the caches; then long enough for any clock.
            let about_ns = self.chase(node, cpu, loads.max(lines).next_multiple_of(UNROLLED))?.max(LEAST_LOAD_NS);
            let loads = ((CHASE_NS / about_ns) as usize).next_multiple_of(UNROLLED);
            let [latency_ns] = self.repeated(|bench| Ok([bench.chase(node, cpu, loads)?]))?;
            working_sets.push(WorkingSet { size_bytes: (lines * LINE) as u64, latency_ns });
            if lines == most {
                break;
            }
        }
        // Beyond a number that spreads, levels might be missed, and the others be numbered wrong.
        let told = |set: &WorkingSet| Some((set.size_bytes, set.latency_ns.value?));
        let levels = crate::levels::levels(&working_sets.iter().map_while(told).collect::<Vec<_>>());
        Ok(Caches { node, clock_hz, working_sets, levels })
    }
}

impl Outcome {
    fn numbers(&self) -> Vec<Number> {
        match self {
            Self::Number(number) => vec![*number],
            Self::Curve(curve) => curve.points.iter().flat_map(|p| [p.latency_ns, p.load_bytes_per_s]).collect(),
            Self::Caches(caches) => {
                let sets = caches.working_sets.iter().map(|set| set.latency_ns);
                [caches.clock_hz].into_iter().chain(sets).collect()
            }
        }
    }
}

/// An equal share of the words for each CPU.
fn shares<'a>(words: &'a mut [Words], cpus: &'a [CpuId]) -> impl Iterator<Item = (CpuId, &'a mut [Words])> {
    let length = (words.len() / cpus.len().max(1)).max(1);
    cpus.iter().copied().zip(words.chunks_exact_mut(length))
}

/// Streams until this thread has reached its quota or another one has.
fn streamed(access: Access, words: &mut [Words], quota: usize, stop: &Stop) -> usize {
    stream(access, words, |bytes| {
        if bytes >= quota {
            stop.now();
        }
        stop.is_now()
    })
}

fn total_rate(done: &[ThreadRate]) -> f64 {
    done.iter().map(|done| done.rate()).sum()
}

fn seconds_a_step() -> f64 {
    let start = Instant::now();
    spend(CLOCK_STEPS);
    start.elapsed().as_secs_f64() / CLOCK_STEPS as f64
}
