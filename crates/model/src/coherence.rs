//! Cache coherence: a line that only another cache has, possibly modified, comes from there, and a write takes the line
//! from all other caches.
//!
//! Implemented as a perfect directory by line of memory. An entry may name a core that has since evicted the line, so
//! the core's caches are checked. It never misses a copy, except for races of host threads, which at worst leave a
//! stale copy. Most pages belong to one core: for those only the page is tracked, as a lookup of a line's own entry
//! takes the host longer than anything else in the model.

use crate::cache::Cache;
use crate::cpu::{CpuCaches, NO_CACHE};
use crate::lines_in_turns::{Moment, Turn, Turns};
use crate::resources::added_ns;
use crate::{AccessKind, LINE_BYTES, ModelError};
use machine::{Machine, Routes};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use zerocopy::FromZeros;

/// Bits that identify holding cores; cores with equal bits are checked together.
const HOLDER_BITS: u32 = 15;
const HOLDERS: u32 = (1 << HOLDER_BITS) - 1;
/// Set if cores write the line in turns: see [`crate::lines_in_turns`].
const IN_TURNS: u32 = 1 << HOLDER_BITS;
const OWNER_SHIFT: u32 = HOLDER_BITS + 1;
/// Set if several cores have had the line since it was written.
const SHARED: u32 = 1 << 30;
/// Set if the owner has written the line.
const WRITTEN: u32 = 1 << 31;
/// Above the holders' bits: the number of the last core with exclusive access, plus one.
const OWNER_BITS: u32 = 14;
/// Lines per page.
const PAGE_LINES: u64 = 64;
/// Set if a core other than the first has used a page.
const SEVERAL: u32 = 1 << 31;

/// The caches of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    pub node: u16,
    pub caches: CpuCaches,
}

/// An access that may concern other cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The number of the requesting core.
    pub me: usize,
    pub line: u64,
    /// The home node of the line.
    pub home: usize,
    pub kind: AccessKind,
    pub moment: Moment,
}

/// What coherence adds to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supplier {
    /// Another cache supplies the line or, for a write, gives it up.
    Peer(Peer),
    /// The core still has the line, which cores write in turns, or has it after this time, ps. Its caches must not keep
    /// it, as the next access has to be checked again.
    Itself { wait_ps: u32 },
}

/// A line from another cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its latency, with the wait for other transfers of the line, but not for links, ps.
    pub latency_ps: u32,
    /// The node that it comes from.
    pub node: u16,
    /// Whether it comes from a different last-level cache than the requesting core's.
    pub other_cache: bool,
    /// Whether other cores will want it back before the core uses it again.
    pub in_turns: bool,
    /// Whether it was modified there.
    pub modified: bool,
}

/// A line's entry, as an access found it.
struct Seen<'a> {
    entry: &'a AtomicU32,
    stored: u32,
    /// The line's state: that of `stored`, or where that is 0, what the page's first core has left.
    state: u32,
}

/// Another core has changed the entry since it was seen.
struct Changed;

impl Seen<'_> {
    fn check(&self) -> Result<(), Changed> {
        if self.entry.load(Relaxed) == self.stored { Ok(()) } else { Err(Changed) }
    }

    /// Changes the entry.
    fn set(&self, state: u32) -> Result<(), Changed> {
        if state == self.stored {
            return Ok(());
        }
        self.entry.compare_exchange(self.stored, state, Relaxed, Relaxed).map(|_| ()).map_err(|_| Changed)
    }
}

/// The holders of each line.
pub(crate) struct Coherence {
    /// By page of physical memory: the number of the first core that used it, plus one; 0 for none.
    pages: Box<[AtomicU32]>,
    /// By line of physical memory, for pages that several cores have used; 0 while it is unchanged since the first one.
    lines: Box<[AtomicU32]>,
    cores: Box<[Core]>,
    turns: Turns,
    line_ps: u32,
    sibling_ps: Option<u32>,
    /// No transfer takes less than this, ps.
    shortest_ps: u64,
    directory_ps: u32,
    /// By pair of nodes: the one-way latency, ps.
    way_ps: Box<[u32]>,
    nodes: usize,
}

impl Coherence {
    /// `None` if the machine's description has no coherence data. `cores` are numbered as in
    /// [`crate::cpu::Cpu::core_index`].
    pub(crate) fn new(machine: &Machine, cores: Vec<Core>, memory_end: u64) -> Result<Option<Self>, ModelError> {
        let Some(coherence) = &machine.coherence else { return Ok(None) };
        if cores.len() >= 1 << OWNER_BITS {
            return Err(ModelError::OutOfRange {
                machine: machine.name.clone(),
                field: "the number of cores".to_owned(),
                value: cores.len().to_string(),
                rule: "the model keeps the caches of fewer than 16,384 cores coherent",
            });
        }
        let zeroed = |count: u64| {
            <[AtomicU32]>::new_box_zeroed_with_elems(count as usize).map_err(|_| ModelError::OutOfRange {
                machine: machine.name.clone(),
                field: "memory".to_owned(),
                value: machine::size::format(memory_end),
                rule: "the host has no room for its directory of lines: 4 bytes per line",
            })
        };
        let lines = memory_end / LINE_BYTES;
        let (pages, lines) = (zeroed(lines.div_ceil(PAGE_LINES))?, zeroed(lines)?);
        let routes = Routes::new(machine)?;
        let nodes = machine.nodes.len();
        // A line passes through at most five of these.
        let picoseconds = |ns: f64| match (ns * 1000.0).round() {
            ps if ps <= f64::from(u32::MAX / 8) => Ok(ps as u32),
            _ => Err(ModelError::OutOfRange {
                machine: machine.name.clone(),
                field: "a latency of coherence".to_owned(),
                value: ns.to_string(),
                rule: "the model supports half a millisecond (5e5 ns) at most",
            }),
        };
        let mut way_ps = Vec::with_capacity(nodes * nodes);
        for from in &machine.nodes {
            for to in &machine.nodes {
                way_ps.push(picoseconds(added_ns(machine, &routes, from.id, to.id) / 2.0)?);
            }
        }
        Ok(Some(Self {
            pages,
            lines,
            cores: cores.into(),
            turns: Turns::default(),
            line_ps: picoseconds(coherence.line_ns)?,
            sibling_ps: coherence.sibling_ns.map(picoseconds).transpose()?,
            shortest_ps: picoseconds(coherence.sibling_ns.unwrap_or(coherence.line_ns).min(coherence.line_ns))?.into(),
            directory_ps: picoseconds(coherence.directory_ns.unwrap_or(0.0))?,
            way_ps: way_ps.into(),
            nodes,
        }))
    }

    /// A core reads or writes a line that its own private caches do not have, or writes one that they have. Returns the
    /// supplier of the line or, for a write, the cache that takes longest to give it up, if there is one.
    pub(crate) fn access(&self, caches: &[Cache], access: &Asked) -> Option<Supplier> {
        let &Asked { me, line, kind, .. } = access;
        let page = self.pages.get((line / PAGE_LINES) as usize)?;
        let (first, alone) = (page.load(Relaxed), me as u32 + 1);
        if first == alone {
            return None;
        }
        if first == 0 {
            page.store(alone, Relaxed);
            return None;
        }
        if first & SEVERAL == 0 {
            page.store(first | SEVERAL, Relaxed);
        }
        let entry = self.lines.get(line as usize)?;
        loop {
            let stored = entry.load(Relaxed);
            let state = if stored == 0 { self.left_by(caches, (first & !SEVERAL) as usize - 1, line) } else { stored };
            let seen = Seen { entry, stored, state };
            let has_other_owner = owner(state).is_some_and(|owner| owner != me);
            let store = kind == AccessKind::Store;
            let supplier = if state & IN_TURNS != 0 || store && has_other_owner {
                self.hand_over(caches, access, &seen)
            } else if store {
                self.store(caches, access, &seen, false)
            } else {
                self.load(caches, access, &seen)
            };
            // Otherwise another core has changed the entry meanwhile.
            if let Ok(supplier) = supplier {
                return supplier;
            }
        }
    }

    /// A core writes a line.
    fn store(
        &self,
        caches: &[Cache],
        access: &Asked,
        seen: &Seen<'_>,
        in_turns: bool,
    ) -> Result<Option<Supplier>, Changed> {
        let own = owned_by(access.me) | bit(access.me);
        seen.set(own | WRITTEN | if in_turns { IN_TURNS } else { 0 })?;
        let alone = seen.state & !(WRITTEN | IN_TURNS) == own || seen.state == 0;
        let peer = if alone { None } else { self.take(caches, access, seen.state) };
        Ok(peer.map(|peer| Supplier::Peer(Peer { in_turns, modified: seen.state & WRITTEN != 0, ..peer })))
    }

    /// A core reads a line.
    fn load(&self, caches: &[Cache], access: &Asked, seen: &Seen<'_>) -> Result<Option<Supplier>, Changed> {
        let &Seen { state, .. } = seen;
        let (mine, own) = (bit(access.me), owned_by(access.me) | bit(access.me));
        if state == 0 {
            return seen.set(own).map(|()| None);
        }
        let owner = owner(state);
        if owner == Some(access.me) {
            return Ok(None);
        }
        if state & SHARED != 0 {
            return seen.set(state | mine).map(|()| None);
        }
        let Some((me, other)) = self.cores.get(access.me).zip(self.cores.get(owner.unwrap_or(usize::MAX))) else {
            return Ok(None);
        };
        let same = me.caches.last == other.caches.last;
        if !same && state & WRITTEN == 0 {
            // Memory now has it too, whether or not the owner still does.
            return seen.set(state | SHARED | mine).map(|()| None);
        }
        let (private, last) = leave_unwritten(caches, other, access.line);
        // Without a copy at the owner, the line has no holder.
        let held = private || last && !same;
        seen.set(if held { state & !WRITTEN | SHARED | mine } else { own })?;
        let peer = held.then(|| self.peer(me, other, access.home)).flatten();
        Ok(peer.map(|peer| Supplier::Peer(Peer { modified: state & WRITTEN != 0, ..peer })))
    }

    /// A core accesses a line that cores write in turns, or writes one that another core owns.
    fn hand_over(&self, caches: &[Cache], access: &Asked, seen: &Seen<'_>) -> Result<Option<Supplier>, Changed> {
        let &Asked { me, line, home, kind, moment } = access;
        let (mine, owner, store) = (bit(me), owner(seen.state), kind == AccessKind::Store);
        let other = owner.filter(|&owner| owner != me);
        let mut turn = self.turns.of(line);
        seen.check()?;
        let is_recent = turn.is_recent(line, moment.time_ps);
        if !is_recent || seen.state & IN_TURNS == 0 {
            if !store {
                return self.load(caches, access, seen);
            }
            let supplier = self.store(caches, access, seen, other.is_some() && is_recent)?;
            let (Some(other), Some(Supplier::Peer(peer))) = (other, supplier) else { return Ok(supplier) };
            turn.change(line, moment.time_ps, other, me);
            return Ok(Some(Supplier::Peer(self.charged(&mut turn, access, true, peer))));
        }
        let supplier = other.or(Some(turn.from()).filter(|&from| from != me)).and_then(|core| self.cores.get(core));
        let peer = self.cores.get(me).zip(supplier).and_then(|(own, supplier)| self.peer(own, supplier, home));
        let is_mine = owner == Some(me);
        let has = if store { is_mine && seen.state & HOLDERS == mine } else { is_mine || seen.state & mine != 0 };
        if has && !turn.changed_meanwhile(me, is_mine, moment) {
            // What is stored waits in the core's buffer, but the value of a load has to come first.
            let wait_ps = if is_mine && !store { turn.under_way_ps(moment.time_ps) } else { 0 };
            turn.note_use(is_mine, moment.time_ps);
            return Ok(Some(Supplier::Itself { wait_ps: u32::try_from(wait_ps).unwrap_or(u32::MAX) }));
        }
        // The caches of all others have given it up already, but for the last-level cache of its owner.
        seen.set(if store { owned_by(me) | mine | WRITTEN | IN_TURNS } else { seen.state | mine })?;
        if let Some(other) = other.filter(|_| store) {
            self.take(caches, access, seen.state);
            turn.change(line, moment.time_ps, other, me);
        }
        let Some(peer) = peer else { return Ok(None) };
        let peer = Peer { in_turns: true, modified: true, ..peer };
        Ok(Some(Supplier::Peer(self.charged(&mut turn, access, store || is_mine, peer))))
    }

    /// A transfer with its wait for others of the line, which the core takes for itself or only reads.
    fn charged(&self, turn: &mut Turn, access: &Asked, takes: bool, peer: Peer) -> Peer {
        let &Asked { me, moment: Moment { time_ps, slowest_ps }, .. } = access;
        let transfer_ps = u64::from(peer.latency_ps);
        let wait_ps = if takes {
            turn.queue.take(time_ps, transfer_ps, self.shortest_ps, slowest_ps)
        } else {
            turn.queue.read(time_ps)
        };
        turn.note_use(takes, time_ps);
        turn.charge(me, takes, time_ps, wait_ps + transfer_ps);
        let latency_ps = u32::try_from(wait_ps + transfer_ps).unwrap_or(u32::MAX);
        Peer { latency_ps, ..peer }
    }

    /// No line is under way: time begins anew.
    pub(crate) fn begin(&self) {
        self.turns.clear();
    }

    /// The state of a line of a page that only one core has used so far.
    fn left_by(&self, caches: &[Cache], core: usize, line: u64) -> u32 {
        let Some(CpuCaches { data, level2, last, .. }) = self.cores.get(core).map(|core| core.caches) else { return 0 };
        let held = [last, level2, data].into_iter().filter_map(|cache| caches.get(cache as usize)?.written(line));
        // The last-level cache records each write, or the second level where that has evicted the line.
        held.reduce(|written, also| written | also)
            .map_or(0, |written| owned_by(core) | bit(core) | if written { WRITTEN } else { 0 })
    }

    /// Invalidates all other copies. Returns the one that took longest.
    fn take(&self, caches: &[Cache], access: &Asked, state: u32) -> Option<Peer> {
        let &Asked { me, line, home, .. } = access;
        let own = self.cores.get(me)?;
        let mut slowest: Option<Peer> = None;
        let holders = state & HOLDERS;
        for (index, core) in self.cores.iter().enumerate() {
            if index == me || holders & bit(index) == 0 {
                continue;
            }
            let CpuCaches { data, level2, last, .. } = core.caches;
            let mut had = false;
            for cache in [data, level2, last] {
                // A cache that this core shares keeps its copy.
                let shared = [own.caches.data, own.caches.level2, own.caches.last].contains(&cache);
                if let Some(cache) = caches.get(cache as usize).filter(|_| !shared && cache != NO_CACHE) {
                    had |= cache.remove(line);
                }
            }
            let peer = had.then(|| self.peer(own, core, home)).flatten();
            slowest = slowest.into_iter().chain(peer).max_by_key(|peer| peer.latency_ps);
        }
        slowest
    }

    /// A line from another core's cache. `None` if that takes no longer than the core's own last-level cache.
    fn peer(&self, own: &Core, other: &Core, home: usize) -> Option<Peer> {
        let (from, to) = (usize::from(own.node), usize::from(other.node));
        if own.caches.last == other.caches.last {
            let own = |latency_ps| Peer {
                latency_ps,
                node: other.node,
                other_cache: false,
                in_turns: false,
                modified: false,
            };
            return self.sibling_ps.map(own);
        }
        let way = |from: usize, to: usize| self.way_ps[from * self.nodes + to];
        // The request goes to the line's home and on to the holder, and the line comes from there.
        let directory_ps = if home == to { 0 } else { self.directory_ps };
        let latency_ps = way(from, home) + directory_ps + way(home, to) + self.line_ps + way(to, from);
        Some(Peer { latency_ps, node: other.node, other_cache: true, in_turns: false, modified: false })
    }
}

/// Makes a core's copies of a line shared. Returns whether its private caches have one, and whether its last-level
/// cache has.
fn leave_unwritten(caches: &[Cache], core: &Core, line: u64) -> (bool, bool) {
    let cache = |cache: u32| caches.get(cache as usize);
    let CpuCaches { data, level2, last, .. } = core.caches;
    // The next write shows in the first level. What the second one has to write back, it still has.
    let is_private = |index: u32| cache(index).filter(|_| index != last);
    let in_first = is_private(data).is_some_and(|cache| cache.clean(line));
    let private = in_first | is_private(level2).is_some_and(|cache| cache.holds(line));
    (private, cache(last).is_some_and(|cache| cache.holds(line)))
}

fn bit(core: usize) -> u32 {
    1 << (core as u32 % HOLDER_BITS)
}

fn owned_by(core: usize) -> u32 {
    (core as u32 + 1) << OWNER_SHIFT
}

fn owner(state: u32) -> Option<usize> {
    (state >> OWNER_SHIFT & ((1 << OWNER_BITS) - 1)).checked_sub(1).map(|core| core as usize)
}
