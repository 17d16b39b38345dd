//! Page faults that the kernel provokes while NUMA balancing is on. It marks a part of each process's memory at a
//! time, and the next access to a marked page faults, which shows the thread that uses it. Needs no PMU, so it works
//! in virtual machines.

use super::fault::{Faults, HintFault, INSTRUCTION, PROTECTION, Step, WRITE};
use super::perf_rings::{Rings, Wanted};
use super::permission::{Scope, with_remedy};
use super::tracepoint::{Field, Tracepoint};
use super::{LiveError, Target};
use linux::{Cause, NodeState, PageBatch, Pages, Pid, Switch, SwitchGuard, Tid};
use machine::{CpuId, NodeId, NodeSet, chain};
use perf_data::attribute::{CPU, IDENTIFIER, RAW, TID, TIME};
use perf_data::kind::{LOST, SAMPLE};
use perf_data::{Attribute, Bytes, SampleFields, lost_count};
use perf_event::Builder;
use perf_event::events::Tracepoint as TracepointEvent;
use std::collections::HashMap;
use std::path::Path;
use trace::{AccessKind, Event, Loss, Sample, Source, SourceNote, Stacks, What};

const PAGE_BYTES: u64 = machine::SMALL_PAGE;
const DROPPED: &str = "page faults that the kernel dropped";
const SWITCHED_OFF: &str = "switch (NUMA balancing) turned off during the recording: later accesses are not seen";
const RING_BYTES: usize = 512 << 10;
/// Value of the kernel's `sysctl_numa_balancing_mode` that moves pages towards their users. The other mode concerns
/// memory tiers only.
const BALANCING: u32 = 1;
/// Maximum number of pages whose node is remembered: at most 40 MB.
const MOST_PAGES: usize = 1 << 20;

const FAULT_TYPE: u64 = IDENTIFIER | TID | TIME | CPU | RAW;
const STEP_TYPE: u64 = IDENTIFIER | TID | TIME;

/// Which hint faults to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintFaultOptions {
    /// The processes to observe.
    pub target: Target,
    /// Whether to switch NUMA balancing on if it is off, until the source is dropped. The switch is system-wide: the
    /// kernel then moves pages and threads of all programs. Needs root.
    pub switch_on: bool,
}

/// A live source of hint faults.
pub struct HintFaults {
    rings: Rings,
    events: Events,
    faults: Faults,
    pages: KnownPages,
    tells_first_touches: bool,
    lost: Vec<Loss>,
    /// Restores the switch when dropped.
    _switch: Option<SwitchGuard>,
}

/// The events observed, and how to decode them.
struct Events {
    attributes: Vec<(Attribute, Kind)>,
    /// Index of each event, by the IDs of its counters.
    of_id: HashMap<u64, usize>,
    address: Field,
    instruction: Field,
    error_code: Field,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fault,
    MemoryChanged,
    PageMoved,
}

/// A fault, or a step that followed it.
type Told = (u64, u32, Step);

impl HintFaults {
    /// Opens the source. Needs root, or `CAP_PERFMON` and read access to tracefs, which has to be mounted. Needs
    /// Linux 3.13; Linux 6.2 and newer distinguish first touches.
    pub fn open(options: &HintFaultOptions) -> Result<Self, LiveError> {
        // How the kernel reports a first touch of our own.
        let tells_first_touches = Self::try_out()?;
        let switch = switch(options.switch_on)?;
        let (mut rings, events) = open(&options.target)?;
        rings.enable(&options.target).map_err(|refusal| refused(&refusal))?;
        let (faults, pages) = (Faults::default(), KnownPages::new());
        Ok(Self { rings, events, faults, pages, tells_first_touches, lost: Vec::new(), _switch: switch })
    }

    /// Tests whether hint faults can be observed, by a page fault of the calling thread. Returns whether its first
    /// touch of a page is recognized as such. Changes no switch; NUMA balancing may be on or off.
    pub fn try_out() -> Result<bool, LiveError> {
        let failed = |why: String| LiveError::new("observe page faults", Cause::Other(why));
        let (mut rings, mut events) = open(&Target::Program)?;
        let mut memory = Pages::reserve(linux::HUGE_PAGE).map_err(|error| failed(error.to_string()))?;
        // Kernels without huge pages fail here, and need no advice.
        let _ = memory.advise_huge(false);
        rings.enable_now().map_err(|refusal| refused(&refusal))?;
        memory.touch(0);
        let (mut told, mut lost) = (Vec::new(), Vec::new());
        events.drain(&mut rings, &mut told, &mut lost);
        let is_ours = |step: &Step| matches!(step, Step::Fault(sample) if memory.range().contains(&sample.address));
        let after = told.iter().skip_while(|(_, _, step)| !is_ours(step)).nth(1);
        if !told.iter().any(|(_, _, step)| is_ours(step)) {
            return Err(failed("the kernel did not report a page fault that took place".to_owned()));
        }
        Ok(after.is_some_and(|(_, _, step)| *step == Step::MemoryChanged))
    }

    /// What the source observes, and what it cannot see.
    pub fn notes(&self) -> Vec<SourceNote> {
        let mut cannot_see = vec![
            "The latency of an access, and what served it, are not reported.",
            "Only the first access to each page that the kernel marks is seen: samples show which thread uses a page, \
             not how often. The kernel marks at most 256 MiB of a process per second, and less if its pages are \
             well placed.",
            "Not marked are memory with a policy of its own (numactl, mbind), shared libraries, and, in programs with \
             one thread, pages on the thread's node.",
            "Reads are of unknown kind: what a program changes in place is read first, and the write that follows is not \
             seen.",
            "The kernel's own accesses to the program's memory are not seen.",
            "The kernel moves pages during the recording. A sample has the node from before the move: where the page \
             was when it was last touched or seen, or the other one of two nodes. For pages that moved unseen, it is \
             unknown.",
        ];
        if !self.tells_first_touches {
            cannot_see.push("This kernel does not distinguish first touches: they are among the samples.");
        }
        let event = "exceptions:page_fault_user".to_owned();
        let cannot_see = cannot_see.into_iter().map(str::to_owned).collect();
        vec![SourceNote { source: Source::HintFault, event, cannot_see }]
    }

    /// Returns samples up to the previous call, in time order: a fault is classified a moment later. Pages that the
    /// kernel moved are returned as events. Never blocks.
    pub fn drain(&mut self, _stacks: &mut Stacks, samples: &mut Vec<Sample>, events: &mut Vec<Event>) {
        let (mut told, mut found) = (Vec::new(), Vec::new());
        self.events.drain(&mut self.rings, &mut told, &mut self.lost);
        self.faults.take(told, &mut found);
        let touched = std::mem::take(&mut self.faults.touched);
        self.pages.learn(&touched);
        self.give(found, samples, events);
    }

    /// Pauses observation until [`go_on`](Self::go_on). The kernel keeps marking pages.
    pub fn rest(&mut self) {
        // An event that cannot be disabled goes on, at a small cost.
        let _ = self.rings.disable();
    }

    /// Resumes observation.
    pub fn go_on(&mut self) {
        let _ = self.rings.enable_now();
    }

    /// Returns the remaining samples and events, after the program has ended.
    pub fn finish(&mut self, stacks: &mut Stacks, samples: &mut Vec<Sample>, events: &mut Vec<Event>) {
        self.drain(stacks, samples, events);
        Loss::add(&mut self.lost, DROPPED, self.rings.take_losses());
        // For example, another recording that had switched it on has switched it off.
        let is_off = Switch::numa_balancing().value().is_ok_and(|value| !is_on(&value));
        Loss::add(&mut self.lost, SWITCHED_OFF, is_off.into());
        let mut found = Vec::new();
        self.faults.finish(&mut found);
        self.give(found, samples, events);
    }

    fn give(&mut self, mut found: Vec<HintFault>, samples: &mut Vec<Sample>, events: &mut Vec<Event>) {
        self.pages.place(&mut found, events);
        samples.extend(found.iter().map(|fault| fault.sample));
    }

    /// Losses so far.
    pub fn lost(&self) -> Vec<Loss> {
        self.lost.clone()
    }
}

fn refused(refusal: &super::permission::Refusal) -> LiveError {
    LiveError::refused("observe page faults (perf)", refusal, Scope::Tracepoint)
}

/// Whether NUMA balancing marks pages, given the value of its switch.
fn is_on(value: &str) -> bool {
    value.parse::<u32>().is_ok_and(|mode| mode & BALANCING != 0)
}

/// Switches NUMA balancing on if it is off and `switch_on` is set.
fn switch(switch_on: bool) -> Result<Option<SwitchGuard>, LiveError> {
    let switch = Switch::numa_balancing();
    let failed =
        |diagnosis| LiveError { what: "have the kernel mark pages".to_owned(), diagnosis: Box::new(diagnosis) };
    let value =
        switch.value().map_err(|error| failed(with_remedy(chain(&error), "the kernel needs CONFIG_NUMA_BALANCING")))?;
    if is_on(&value) {
        return Ok(None);
    }
    if !switch_on {
        let remedy = "sudo sysctl kernel.numa_balancing=1, or have nearside switch it on for the recording";
        return Err(failed(with_remedy("NUMA balancing is off", remedy)));
    }
    let on = switch.set_for_now("1");
    on.map(Some).map_err(|error| failed(with_remedy(chain(&error), "only root may do this: run it with sudo")))
}

/// Opens the events, disabled.
fn open(target: &Target) -> Result<(Rings, Events), LiveError> {
    let faults = Tracepoint::find("exceptions/page_fault_user")?;
    let field = |name: &str| {
        let unknown = || Cause::Other(format!("the tracepoint exceptions:page_fault_user has no field {name}"));
        faults.field(name).ok_or_else(|| LiveError::new("observe page faults", unknown()))
    };
    let (address, instruction, error_code) = (field("address")?, field("ip")?, field("error_code")?);
    let mut all = vec![(faults.id, FAULT_TYPE, Kind::Fault)];
    // Kernels without these report less: see `notes`.
    for (name, kind) in [("kmem/rss_stat", Kind::MemoryChanged), ("migrate/set_migration_pte", Kind::PageMoved)] {
        all.extend(Tracepoint::find(name).ok().map(|tracepoint| (tracepoint.id, STEP_TYPE, kind)));
    }
    let wanted = all.iter().map(|(id, sample_type, _)| {
        let mut builder = Builder::new(TracepointEvent::with_id(*id));
        // Tracepoints fire in the kernel.
        builder.exclude_kernel(false).sample_period(1);
        builder.attrs_mut().sample_type = *sample_type;
        Wanted::new(builder)
    });
    let rings = Rings::open(target, &wanted.collect::<Vec<_>>(), RING_BYTES).map_err(|refusal| refused(&refusal))?;
    let attributes = all.iter().map(|(_, sample_type, kind)| (Attribute::live("", *sample_type, 1, Vec::new()), *kind));
    let of_id = rings.ids.iter().enumerate().flat_map(|(number, ids)| ids.iter().map(move |id| (*id, number)));
    let (attributes, of_id) = (attributes.collect(), of_id.collect());
    let events = Events { attributes, of_id, address, instruction, error_code };
    Ok((rings, events))
}

impl Events {
    /// Reads the rings, and sorts their records by time.
    fn drain(&mut self, rings: &mut Rings, told: &mut Vec<Told>, lost: &mut Vec<Loss>) {
        rings.drain(|kind, _, body| {
            let body = Bytes(body);
            match kind {
                SAMPLE => told.extend(self.step(body)),
                LOST => Loss::add(lost, DROPPED, lost_count(body, 8).unwrap_or(0)),
                _ => {}
            }
        });
        told.sort_by_key(|(time, ..)| *time);
    }

    fn step(&self, body: Bytes<'_>) -> Option<Told> {
        let id = { body }.u64()?;
        let (attribute, kind) = self.attributes.get(*self.of_id.get(&id)?)?;
        let fields = SampleFields::parse(body, attribute)?;
        let step = match kind {
            Kind::Fault => Step::Fault(self.sample(&fields)?),
            Kind::MemoryChanged => Step::MemoryChanged,
            Kind::PageMoved => Step::PageMoved,
        };
        Some((fields.time, fields.tid, step))
    }

    /// Returns `None` for faults that the kernel cannot have provoked.
    fn sample(&self, fields: &SampleFields<'_>) -> Option<Sample> {
        let raw = fields.raw?;
        let error_code = self.error_code.of(raw)?;
        if error_code & (PROTECTION | INSTRUCTION) != 0 {
            return None;
        }
        Some(Sample {
            time_ns: fields.time,
            cpu: CpuId(fields.cpu?),
            pid: Pid(fields.pid),
            tid: Tid(fields.tid),
            instruction: self.instruction.of(raw)?,
            address: self.address.of(raw)?,
            physical: None,
            // Once the page is there, what follows makes no fault: what is changed in place is read first, and written unseen.
            kind: if error_code & WRITE == 0 { AccessKind::Unknown } else { AccessKind::Store },
            served: None,
            node: None,
            latency_ns: None,
            kernel: false,
            stack: None,
            weight: 1.0,
            source: Source::HintFault,
        })
    }
}

/// The last known node of each page.
struct KnownPages {
    nodes: HashMap<(Pid, u64), NodeId>,
    with_memory: NodeSet,
}

impl KnownPages {
    fn new() -> Self {
        let state = NodeState::read(Path::new("/sys")).unwrap_or_default();
        Self { nodes: HashMap::new(), with_memory: state.with_memory }
    }

    /// Remembers the nodes of pages that were touched for the first time.
    fn learn(&mut self, touched: &[Sample]) {
        for (number, node) in located(touched.iter().copied()) {
            if let Some(sample) = touched.get(number) {
                self.remember(sample, node);
            }
        }
    }

    /// Sets the node of each sample to that of its page, and adds an event for each page that moved.
    fn place(&mut self, found: &mut [HintFault], events: &mut Vec<Event>) {
        for (number, node) in located(found.iter().map(|fault| fault.sample)) {
            if let Some(fault) = found.get_mut(number) {
                self.place_one(fault, node, events);
            }
        }
    }

    /// Returns the previous node of the page, if known.
    fn remember(&mut self, sample: &Sample, node: NodeId) -> Option<NodeId> {
        if self.nodes.len() >= MOST_PAGES {
            self.nodes.clear();
        }
        self.nodes.insert((sample.pid, page_of(sample)), node)
    }

    fn place_one(&mut self, fault: &mut HintFault, now: NodeId, events: &mut Vec<Event>) {
        let sample = &mut fault.sample;
        let (pid, tid, page) = (sample.pid, sample.tid, page_of(sample));
        let seen = self.remember(sample, now);
        if !fault.moved {
            sample.node = Some(now);
            return;
        }
        let from = seen.filter(|seen| *seen != now).or_else(|| self.only_other(now));
        sample.node = from;
        let what = What::PagePlaced { address: page, bytes: PAGE_BYTES, node: now, from };
        // The access came first: it is what made the kernel move the page.
        let time_ns = sample.time_ns.saturating_add(1);
        events.push(Event { time_ns, pid, tid, cpu: Some(sample.cpu), what });
    }

    /// The only other node with memory, if there are two.
    fn only_other(&self, node: NodeId) -> Option<NodeId> {
        let mut others = self.with_memory.iter().filter(|other| *other != node);
        others.next().filter(|_| others.next().is_none())
    }
}

/// The current nodes of the sampled pages, with the index of each sample.
fn located(samples: impl Iterator<Item = Sample>) -> Vec<(usize, NodeId)> {
    let mut by_process: HashMap<Pid, (PageBatch, Vec<usize>)> = HashMap::new();
    for (number, sample) in samples.enumerate() {
        let (batch, numbers) = by_process.entry(sample.pid).or_default();
        batch.push(page_of(&sample), None);
        numbers.push(number);
    }
    let mut found = Vec::new();
    for (pid, (mut batch, numbers)) in by_process {
        // Pages of a process that has ended, or that the caller may not inspect, have no known node.
        if batch.locate(pid).is_ok() {
            let nodes =
                batch.statuses().zip(numbers).filter_map(|((_, status), number)| Some((number, status.node().ok()?)));
            found.extend(nodes);
        }
    }
    found
}

fn page_of(sample: &Sample) -> u64 {
    sample.address & !(PAGE_BYTES - 1)
}
