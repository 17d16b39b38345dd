//! The guest's processor as programs and the kernel see it: what `cpuid` and `rdmsr` return is overwritten with what the
//! simulated machine has, its caches and its control hardware, which QEMU's processor does not.

use crate::qemu::{self, Block, Register, Scoreboard, read_register, write_register};
use crate::resource_director::ResourceDirector;
use crate::shown_caches::ShownCaches;
use crate::time_stamp_counter::OWED_REGISTERS;
use machine::Machine;
use model::Model;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What an instruction asked for, until its registers are overwritten.
#[derive(Debug, Default)]
struct Asked {
    /// 0 for nothing, 1 for `cpuid`, 2 for `rdmsr`.
    kind: AtomicU32,
    /// The leaf and its part, or the register.
    what: AtomicU64,
}

const IDENTIFY: u32 = 1;
const READ: u32 = 2;

/// The registers of a CPU.
#[derive(Debug, Default)]
struct Own {
    /// `rax`, `rbx`, `rcx`, `rdx`.
    registers: OnceLock<Option<[Register; 4]>>,
    asked: Asked,
}

/// The processor's identity and model-specific registers.
#[derive(Debug)]
pub(crate) struct Processor {
    own: Vec<Own>,
    caches: ShownCaches,
    /// On a machine with control hardware.
    director: Option<ResourceDirector>,
}

impl Processor {
    /// That of a machine.
    pub(crate) fn new(machine: &Machine, model: &Model) -> Self {
        Self {
            own: (0..model.cpus()).map(|_| Own::default()).collect(),
            caches: ShownCaches::new(machine),
            director: model.control().cloned().map(ResourceDirector::new),
        }
    }

    /// Looks up the registers. Only within that CPU's own callback.
    pub(crate) fn find_registers(&self, cpu: usize) {
        self.own[cpu].registers.get_or_init(|| {
            let [rax, rbx, rcx, rdx] = qemu::registers([c"rax", c"rbx", c"rcx", c"rdx"]);
            Some([rax?, rbx?, rcx?, rdx?])
        });
    }

    fn registers(&self, cpu: usize) -> Option<[Register; 4]> {
        self.own.get(cpu)?.registers.get().copied().flatten()
    }

    /// Notes what `cpuid` or `rdmsr` ask for. Only within a callback of that CPU before the instruction.
    pub(crate) fn ask(&self, cpu: usize, is_identity: bool) {
        let Some([rax, _, rcx, _]) = self.registers(cpu) else { return };
        let asked = &self.own[cpu].asked;
        let what = if is_identity { u64::from(low(rax)) << 32 | u64::from(low(rcx)) } else { low(rcx).into() };
        asked.what.store(what, Relaxed);
        asked.kind.store(if is_identity { IDENTIFY } else { READ }, Relaxed);
    }

    /// Overwrites what the instruction has returned. Only within a callback of that CPU that may write registers.
    pub(crate) fn answer(&self, cpu: usize, model: &Model) {
        let Some(registers) = self.registers(cpu) else { return };
        let asked = &self.own[cpu].asked;
        let what = asked.what.load(Relaxed);
        match asked.kind.swap(0, Relaxed) {
            IDENTIFY => {
                let before = registers.map(low);
                let after = self.identity(cpu, (what >> 32) as u32, what as u32, before);
                let all = registers.into_iter().zip(before).zip(after);
                all.filter(|((_, before), after)| before != after)
                    .for_each(|((register, _), after)| write_register(register, after.into()));
            }
            READ => {
                let value = self.director.as_ref().and_then(|director| director.read(cpu, what as u32, model));
                if let Some(value) = value {
                    let [rax, _, _, rdx] = registers;
                    write_register(rax, value & u64::from(u32::MAX));
                    write_register(rdx, value >> 32);
                }
            }
            _ => {}
        }
    }

    fn identity(&self, cpu: usize, leaf: u32, part: u32, before: [u32; 4]) -> [u32; 4] {
        let shown = self.caches.identity(cpu, leaf, part, before);
        self.director.as_ref().map_or(shown, |director| director.identity(leaf, part, shown))
    }

    /// The guest's kernel writes to a register. Only within a callback of that CPU before the instruction.
    pub(crate) fn write(&self, cpu: usize, model: &Model) {
        if let (Some([rax, _, rcx, rdx]), Some(director)) = (self.registers(cpu), &self.director) {
            director.write(cpu, low(rcx), [low(rax), low(rdx)], model);
        }
    }

    /// Registers the calls for a block. What the last instruction asks for is answered at the beginning of the next
    /// block.
    pub(crate) fn follow(&self, block: &Block, owed: Scoreboard, calls: &ProcessorCalls) {
        let mut instructions = block.instructions().peekable();
        while let Some(instruction) = instructions.next() {
            // Only the kernel may use registers: in programs the instructions fault.
            let may_control = self.director.is_some() && machine::is_kernel_address(instruction.address());
            let ask = if instruction.is_identification() {
                calls.identify
            } else if may_control && instruction.reads_model_specific() {
                calls.read
            } else {
                if may_control && instruction.writes_model_specific() {
                    instruction.call(calls.write);
                }
                continue;
            };
            instruction.call(ask);
            match instructions.peek() {
                Some(next) => next.call_to_write_registers(calls.answer, 0),
                None => instruction.add(owed, OWED_REGISTERS),
            }
        }
    }
}

/// The lower half of a register.
fn low(register: Register) -> u32 {
    read_register(register).unwrap_or(0) as u32
}

/// What is called for instructions that ask the processor.
pub(crate) struct ProcessorCalls {
    /// Before `cpuid`.
    pub identify: qemu::OnCode,
    /// Before `rdmsr`.
    pub read: qemu::OnCode,
    /// Before `wrmsr`.
    pub write: qemu::OnCode,
    /// After the first two: it may write registers.
    pub answer: qemu::OnCode,
}
