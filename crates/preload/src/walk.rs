//! Call chains. Walking a stack takes a microsecond, so recent chains are cached together with the stack words that the
//! walk read: while these are unchanged, the chain is still valid.
//!
//! framehop is not used: adding a module to its unwinder allocates, which a library that replaces malloc must not do,
//! and its documentation calls unwinding in the own process unproven.

use crate::clock;
use crate::module::{self, Module};
use crate::process::settings;
use crate::ring::Ring;
use crate::rule::{BASE_GONE, Context, From, Rule};
use crate::stack::{Reach, Window};
use crate::thread::Blocked;
use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;
use rings::{Head, Kind, MOST_FRAMES, NO_CPU, SLOTS, payload_records};

/// Maximum number of stack words that a cached chain may depend on.
const MOST_LOADS: usize = 64;
const RULES: usize = 1024;
/// Slot for chains that cannot be cached.
const SCRATCH: usize = SLOTS - 1;
/// Chains are cached in pairs of slots; the last pair contains the scratch slot.
const KEPT: usize = SLOTS - 2;
/// Unwind tables are evaluated on a separate stack, as the program's may be small. Debug builds need the most.
const STACK_BYTES: usize = 64 << 10;
/// Offset in `struct rt_sigframe` after the return address: the registers, in the kernel's order.
const SIGNAL_RBP: usize = 40 + 8 * 10;
const SIGNAL_RSP: usize = 40 + 8 * 15;
const SIGNAL_RIP: usize = 40 + 8 * 16;

/// The frame of a function's caller.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Address of the return address.
    pub stack: usize,
    /// The base pointer.
    pub base: usize,
}

/// The walker and its cache. Zeroes are a valid value.
pub struct Walk {
    entries: [Entry; SLOTS],
    rules: [Cached; RULES],
    generation: u32,
    /// Which slot of a pair is replaced next.
    turn: u32,
    chain: [u64; MOST_FRAMES],
    frames: usize,
    loads: Loads,
    scratch: [u64; MOST_FRAMES],
    window: Window,
    path: [u64; 512],
    stack: Aligned,
}

#[repr(C, align(16))]
struct Aligned([u8; STACK_BYTES]);

/// A cached chain and its conditions.
struct Entry {
    stack: usize,
    base: usize,
    generation: u32,
    loads: Loads,
}

#[derive(Clone, Copy)]
struct Loads {
    used: usize,
    /// Whether the chain depends on the base pointer.
    base: bool,
    /// Offsets from the frame in bytes, and the words there.
    words: [(usize, usize); MOST_LOADS],
}

#[derive(Clone, Copy)]
struct Cached {
    address: usize,
    rule: Rule,
}

impl Loads {
    /// Notes that the walk depends on a word of the stack.
    fn add(&mut self, frame: Frame, (address, word): (usize, usize)) {
        if let Some(place) = self.words.get_mut(self.used) {
            *place = (address.wrapping_sub(frame.stack), word);
        }
        self.used += 1;
    }
}

impl Entry {
    #[inline]
    fn holds(&self, frame: Frame, generation: u32) -> bool {
        self.stack == frame.stack
            && self.generation == generation
            && (self.base == frame.base || !self.loads.base)
            && self.loads.words.iter().take(self.loads.used).all(|&(offset, word)| {
                // SAFETY: when it was cached, the same stack pointer was in the thread's own stack, and so was this
                // address.
                unsafe { (frame.stack.wrapping_add(offset) as *const usize).read_volatile() == word }
            })
    }
}

impl Walk {
    /// Clears the cache of the previous thread: another thread's stack may have the same address and be shorter.
    pub fn forget(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.generation = 0);
    }

    /// The slot of the call chain of a function's caller, which the recorder then knows. `None` if there is no room to
    /// record it.
    #[inline]
    pub fn slot(&mut self, ring: &mut Ring, frame: Frame, own: (usize, usize)) -> Option<u16> {
        self.kept(frame).or_else(|| self.walk(ring, frame, own))
    }

    /// Like [`slot`](Self::slot), only from the cache.
    #[inline]
    pub fn kept(&self, frame: Frame) -> Option<u16> {
        let (generation, place) = (module::generation(), place(frame));
        let holds = |&slot: &usize| self.entries.get(slot).is_some_and(|entry| entry.holds(frame, generation));
        [place, place ^ 1].into_iter().find(holds).map(|slot| slot as u16)
    }

    /// Like [`slot`](Self::slot), by a new walk.
    #[cold]
    #[inline(never)]
    pub fn walk(&mut self, ring: &mut Ring, frame: Frame, own: (usize, usize)) -> Option<u16> {
        let generation = self.forget_unloaded();
        let is_own = (own.0..own.1).contains(&frame.stack);
        if !is_own {
            self.window.copy(frame.stack);
        }
        self.follow(Some(ring), frame, own, is_own, settings().frames);
        if is_own && self.loads.used <= MOST_LOADS {
            self.keep(ring, frame, generation)
        } else {
            self.tell_scratch(ring)
        }
    }

    /// The call chain of a function's caller, which is not recorded.
    pub fn chain(&mut self, frame: Frame, own: (usize, usize)) -> &[u64] {
        self.forget_unloaded();
        let is_own = (own.0..own.1).contains(&frame.stack);
        if !is_own {
            self.window.copy(frame.stack);
        }
        self.follow(None, frame, own, is_own, MOST_FRAMES);
        self.chain.get(..self.frames).unwrap_or_default()
    }

    /// Forgets rules of code that may have been unloaded.
    fn forget_unloaded(&mut self) -> u32 {
        let generation = module::generation();
        if self.generation != generation {
            self.generation = generation;
            self.rules.iter_mut().for_each(|cached| cached.address = 0);
        }
        generation
    }

    /// Walks from caller to caller, over at most this number of frames. With a ring, new modules are recorded.
    fn follow(&mut self, mut ring: Option<&mut Ring>, frame: Frame, own: (usize, usize), is_own: bool, most: usize) {
        self.frames = 0;
        self.loads.used = 0;
        self.loads.base = false;
        let (mut stack, mut base) = (frame.stack, frame.base);
        // The word that the base pointer was loaded from, while the walk does not depend on it yet.
        let mut base_from = None;
        let mut is_first_base = true;
        let Some(mut address) = self.word(own, is_own, stack) else { return };
        self.loads.add(frame, (stack, address));
        stack = stack.wrapping_add(8);
        while self.frames < most && address != 0 {
            if !module::is_own(address)
                && let Some(place) = self.chain.get_mut(self.frames)
            {
                *place = address as u64;
                self.frames += 1;
            }
            // A call may be the last instruction of a function.
            let mut rule = self.rule(ring.as_deref_mut(), address - 1);
            if matches!(rule.from, From::Nothing | From::Base | From::WordAtBase) {
                if let Some(load) = base_from.take() {
                    self.loads.add(frame, load);
                }
                self.loads.base |= is_first_base;
            }
            if rule.from == From::Nothing && base >= stack {
                // Without tables: follow frame pointers, if they lead to known code.
                let at = base.wrapping_add(8);
                let Some(ahead) = self.word(own, is_own, at) else { return };
                self.loads.add(frame, (at, ahead));
                if Module::at(ahead).is_some() {
                    rule = Rule { from: From::Base, base: -2, offset: 16 };
                }
            }
            let end = match rule.from {
                From::Nothing | From::End => return,
                From::Stack => stack.wrapping_add_signed(rule.offset as isize),
                From::Base => base.wrapping_add_signed(rule.offset as isize),
                From::WordAtBase => {
                    let at = base.wrapping_add_signed(rule.offset as isize);
                    let Some(end) = self.word(own, is_own, at) else { return };
                    self.loads.add(frame, (at, end));
                    end
                }
                From::Signal => {
                    let registers = [SIGNAL_RIP, SIGNAL_RSP, SIGNAL_RBP].map(|at| {
                        let at = stack.wrapping_add(at);
                        self.word(own, is_own, at).map(|word| (at, word))
                    });
                    let [Some(interrupted), Some(pointer), Some(saved)] = registers else { return };
                    self.loads.add(frame, interrupted);
                    self.loads.add(frame, pointer);
                    (base, base_from, is_first_base) = (saved.1, Some(saved), false);
                    // An interrupted instruction is not a call: its own address counts.
                    (address, stack) = (interrupted.1.wrapping_add(1), pointer.1);
                    continue;
                }
            };
            // A frame has a positive size, towards the base of the stack.
            if end <= stack.wrapping_sub(8) {
                return;
            }
            let Some(next) = self.word(own, is_own, end.wrapping_sub(8)) else { return };
            self.loads.add(frame, (end.wrapping_sub(8), next));
            if rule.base != 0 {
                let at = end.wrapping_add_signed(isize::from(rule.base) * 8);
                let saved = (rule.base != BASE_GONE).then(|| self.word(own, is_own, at)).flatten();
                (base, base_from, is_first_base) = (saved.unwrap_or(0), saved.map(|saved| (at, saved)), false);
            }
            (address, stack) = (next, end);
        }
    }

    fn word(&self, own: (usize, usize), is_own: bool, address: usize) -> Option<usize> {
        Reach { own, window: (!is_own).then_some(&self.window) }.word(address)
    }

    fn rule(&mut self, ring: Option<&mut Ring>, address: usize) -> Rule {
        let place = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RULES.ilog2());
        match self.rules.get(place) {
            Some(cached) if cached.address == address => return cached.rule,
            _ => {}
        }
        let rule = self.find_rule(ring, address);
        if let Some(cached) = self.rules.get_mut(place) {
            *cached = Cached { address, rule };
        }
        rule
    }

    fn find_rule(&mut self, ring: Option<&mut Ring>, address: usize) -> Rule {
        let top = (&raw mut self.stack).wrapping_add(1) as usize;
        let mut work = Work { walk: self, ring, address, rule: Rule { from: From::Nothing, base: 0, offset: 0 } };
        // A signal handler on this stack would have less room than the program provided for it.
        let blocked = Blocked::new();
        // SAFETY: the stack is aligned, large enough, and has no other user while the thread's `busy` is set. The C ABI
        // preserves r12, which holds the program's stack pointer.
        unsafe {
            asm!("mov r12, rsp", "mov rsp, {top}", "call {work_out}", "mov rsp, r12",
                top = in(reg) top, work_out = sym work_out, in("rdi") &raw mut work, out("r12") _, clobber_abi("C"));
        }
        drop(blocked);
        work.rule
    }

    /// Records the chain and caches it.
    fn keep(&mut self, ring: &mut Ring, frame: Frame, generation: u32) -> Option<u16> {
        let place = place(frame);
        let is_free = |slot: usize| self.entries.get(slot).is_some_and(|entry| entry.generation != generation);
        self.turn ^= 1;
        let slot = if is_free(place) {
            place
        } else if is_free(place ^ 1) {
            place ^ 1
        } else {
            place ^ self.turn as usize
        };
        let told = tell_chain(ring, slot as u16, self.chain.get(..self.frames)?);
        let entry = self.entries.get_mut(slot)?;
        entry.generation = if told { generation } else { 0 };
        (entry.stack, entry.base) = (frame.stack, frame.base);
        entry.loads.clone_from(&self.loads);
        told.then_some(slot as u16)
    }

    /// Records the chain, unless it is the same as the last uncached one.
    fn tell_scratch(&mut self, ring: &mut Ring) -> Option<u16> {
        let chain = self.chain.get(..self.frames)?;
        let entry = self.entries.get_mut(SCRATCH)?;
        let is_known = entry.generation != 0 && entry.loads.used == self.frames && self.scratch.starts_with(chain);
        if !is_known {
            entry.generation = u32::from(tell_chain(ring, SCRATCH as u16, chain));
            entry.loads.used = self.frames;
            self.scratch = self.chain;
        }
        (entry.generation != 0).then_some(SCRATCH as u16)
    }
}

/// The work for the separate stack.
struct Work<'a> {
    walk: &'a mut Walk,
    ring: Option<&'a mut Ring>,
    address: usize,
    rule: Rule,
}

extern "C" fn work_out(work: *mut Work<'_>) {
    // SAFETY: `find_rule` waits, and passes its own.
    let work = unsafe { &mut *work };
    let Some(module) = Module::at(work.address) else { return };
    work.rule = Rule::find(&module, work.address, &mut Context::new_in());
    if let Some(ring) = work.ring.as_deref_mut()
        && module.is_new()
    {
        module.tell(ring, &mut work.walk.path);
    }
}

/// The first slot of a pair.
#[inline]
fn place(frame: Frame) -> usize {
    // SAFETY: the frame belongs to the function's caller, and its return address is there.
    let address = unsafe { *(frame.stack as *const usize) };
    let mixed = (address ^ frame.stack.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (mixed * KEPT) >> 32
}

/// Records the chain, preceded by the small objects of the slot's previous chain.
fn tell_chain(ring: &mut Ring, slot: u16, chain: &[u64]) -> bool {
    if !ring.has_room(2 + payload_records(chain.len())) {
        return false;
    }
    let [objects, bytes] = ring.small(slot).map(|count| count.load(Relaxed));
    // A thread may record nothing else for hours, so its counts get the current time.
    let time = clock::now();
    let head = |kind, address, bytes| Head { time, kind, address, bytes, slot, cpu: NO_CPU }.to_words();
    if objects != 0 {
        ring.put(head(Kind::Small, objects, bytes));
        for count in ring.small(slot) {
            count.store(0, Relaxed);
        }
    }
    ring.put(head(Kind::Chain, 0, chain.len() as u64));
    ring.put_words(chain);
    ring.publish();
    true
}
