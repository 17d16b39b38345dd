//! What to run on a virtual machine, what happens meanwhile, and what comes of it.

use crate::LabError;
use crate::kernel_module::KernelModule;
use crate::protocol::{Ended, Shaken, Task};
use crate::shape::Shape;
use model::pmu::Sample;
use model::{Measured, Mechanisms};
use std::time::Duration;

/// What to run, and on which machine.
#[derive(Clone, Debug)]
pub struct Run {
    /// The virtual machine.
    pub shape: Shape,
    /// The parts of the model that are switched on.
    pub mechanisms: Mechanisms,
    /// The guest's task.
    pub task: Task,
    /// Kernel modules of the user's, in loading order.
    pub kernel_modules: Vec<KernelModule>,
    /// Whether the machine boots, even if the same one has booted before and its state was saved; it is not saved then.
    pub fresh_boot: bool,
    /// Limit of host time for the whole run.
    pub timeout: Option<Duration>,
    /// Whether a command that runs is asked to end, and gets a minute to do so, where the run is interrupted or its time is
    /// over: the command is a recording, whose files are incomplete otherwise.
    pub asks_to_end: bool,
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The state of a machine that has booted is loaded.
    Continuing,
    /// The kernel boots.
    Booting,
    /// The guest prepares the command.
    Preparing,
    /// The command runs.
    Running,
}

/// An event during a run.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A phase has begun.
    Stage(Stage),
    /// A sample was taken. Samples come in order.
    Sample(Sample),
    /// What was moved, at the command's end.
    Shaken(Shaken),
    /// A process was killed while it wrote to the output folder: what it wrote last may be missing there.
    WriterKilled,
}

/// Result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// How the command ended.
    pub ended: Ended,
    /// The model's measurements so far.
    pub measured: Measured,
    /// Number of samples dropped because the ring was full.
    pub samples_dropped: u64,
    /// The process that the guest's kernel killed for lack of memory: pid and name.
    pub out_of_memory: Option<String>,
    /// Host time from the start of the run to the start of the command.
    pub boot: Duration,
    /// Whether the machine continued a saved boot.
    pub saved_boot: bool,
    /// Host time from there to the command's end.
    pub ran: Duration,
    /// Why the command was asked to end: see [`Run::asks_to_end`].
    pub cut_short: Option<LabError>,
}

/// Host memory of a virtual machine beside the guest's: a sixteenth of that for the model's directory of lines, of 4 bytes
/// each, and this for QEMU, its translated code, the model's caches and the virtual PMU.
const BESIDE_GUEST: u64 = 256 << 20;
/// The state of a booted machine, not yet compressed, beside the kernel's description of each page, a 64th of the guest's
/// memory: measured, 156 to 340 MiB with both.
const SAVED_STATE: u64 = 512 << 20;

/// Memory of the guest, and host memory of the whole machine.
fn asked_and_needed(shape: &Shape) -> (u64, u64) {
    let asked: u64 = shape.machine.nodes.iter().map(|node| node.memory_bytes).sum();
    (asked, asked + asked / 16 + BESIDE_GUEST)
}

/// Refuses a machine for which this host has too little available memory: call it before [`run`](crate::run). The guest
/// allocates memory from the host as it uses it, so QEMU would be killed in the middle of a run.
pub fn check_memory(shape: &Shape) -> Result<(), LabError> {
    let (asked, needed) = asked_and_needed(shape);
    match linux::available_memory() {
        Some(available) if available < needed => {
            let [needed, available] = [needed, available].map(machine::size::rounded);
            Err(LabError::HostMemory { asked: machine::size::format(asked), needed, available })
        }
        _ => Ok(()),
    }
}

/// Whether the state of the machine can be saved once it has booted.
pub(crate) fn has_memory_to_save(shape: &Shape) -> bool {
    let (asked, needed) = asked_and_needed(shape);
    linux::available_memory().is_none_or(|available| available >= needed + asked / 64 + SAVED_STATE)
}
