//! The QEMU plugin of nearside's lab. It times every memory access of the guest with [`model`], makes the guest's clock
//! follow, and samples misses into the virtual PMU that host and guest share.
//!
//! The library is loaded twice into one process: as a plugin, and by `LD_PRELOAD`, so that it can answer
//! `clock_gettime` (see `clock`). Arguments: `config=PATH`, a [`Configuration`] as JSON, `pmu=PATH`, the shared memory,
//! `control=PATH`, that of control words, if the machine has control hardware, and `clock=NS`, the guest's time, if the
//! machine continues from a saved boot.
//!
//! Code is instrumented only once the virtual PMU's command first asks for it: boot runs at full speed. To switch, the
//! plugin makes QEMU discard all translated code.

mod callbacks;
mod clock;
mod conditions;
mod control_words;
mod disk;
mod guest_clock;
mod host;
mod main_loop;
mod pace;
mod page_table;
mod processor;
mod program_counter;
mod qemu;
mod qemu_api;
mod resource_director;
mod shown_caches;
mod system_call;
mod task;
mod task_counts;
mod thread_role;
mod time_stamp_counter;
mod times;
mod vcpu;

use callbacks::{after_reset, on_cpu, on_translate, on_translate_at_rest};
use clock::CLOCK;
use control_words::ControlWords;
use guest_clock::guest_clock_ns;
use linux::SharedWords;
use machine::CpuId;
use model::pmu::{self, Command, Pmu, Sample};
use model::{Access, AccessKind, Configuration, Level, Measured, MeasuredCpu, Model, Request};
use pace::Pace;
use page_table::PageTable;
use processor::Processor;
use program_counter::ProgramCounter;
use qemu::{PluginId, Scoreboard, loaded_value, reached};
use qemu_api as sys;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use system_call::SystemCall;
use task::{PerCpuBase, Task};
use task_counts::{TaskCounts, Work};
use time_stamp_counter::TimeStampCounter;
use times::{Disk, Lead, REPORT_PS, Times};
use vcpu::Vcpu;

/// The version of the plugin interface that this plugin uses; QEMU looks it up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU's name")]
pub static qemu_plugin_version: c_int = sys::QEMU_PLUGIN_VERSION;

/// How long cached page table entries stay valid, ps of a CPU's time: huge pages seldom come and go.
const PAGE_TABLE_PS: u64 = 10_000_000_000;
/// Host time between checks of the virtual PMU's command.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Number of checks without progress of simulated time after which it is checked whether all threads sleep.
const LOOKS_UNTIL_STUCK: u32 = 20;

/// The plugin's state, once it is installed.
struct Lab {
    id: PluginId,
    model: Model,
    /// The guest's number of each CPU.
    numbers: Vec<CpuId>,
    /// Time of an instruction, in [`vcpu::FRACTIONS`] of a ps.
    instruction: u64,
    /// First physical address after the memory of all nodes; above it are devices.
    memory_end: u64,
    shared: SharedWords,
    control: Option<ControlWords>,
    processor: Processor,
    pace: Pace,
    vcpus: Vec<Vcpu>,
    task_counts: TaskCounts,
    per_cpu: Vec<PerCpuBase>,
    page_tables: Vec<PageTable>,
    program_counters: Vec<ProgramCounter>,
    system_calls: Vec<SystemCall>,
    time_stamp_counters: Vec<TimeStampCounter>,
    executed: Scoreboard,
    measuring: AtomicBool,
    /// Whether QEMU should discard its translations, so that they are redone with instrumentation.
    switch: AtomicBool,
    /// The guest's count of requests for the counters at their last publication.
    counters_asked: AtomicU64,
    /// Held while counters are published.
    publishing: Mutex<()>,
    /// The CPU that made QEMU discard them.
    switched_by: AtomicUsize,
}

static LAB: OnceLock<Lab> = OnceLock::new();

impl Lab {
    fn new(id: PluginId, arguments: &[&str], vcpus: usize) -> Result<Self, String> {
        let argument = |name: &str| {
            let value = arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
            value.ok_or_else(|| format!("argument {name}= is missing"))
        };
        let path = |name| argument(name).map(Path::new);
        let (config, shared, control) = (path("config")?, path("pmu")?, path("control").ok());
        if let Ok(clock) = argument("clock") {
            CLOCK.continue_at(clock.parse().map_err(|why| format!("clock={clock}: {why}"))?);
        }
        let failed = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = std::fs::read(config).map_err(|why| failed(config, &why))?;
        let configuration: Configuration = serde_json::from_slice(&text).map_err(|why| failed(config, &why))?;
        let model = Model::new(&configuration.machine, &configuration.memory, &configuration.mechanisms)
            .map_err(|why| failed(config, &why))?;
        let numbers = configuration.cpu_numbers;
        if model.cpus() != vcpus || numbers.len() != vcpus {
            let (model, numbers) = (model.cpus(), numbers.len());
            return Err(format!(
                "the model has {model} CPUs, {numbers} have numbers, and the virtual machine has {vcpus}"
            ));
        }
        let file = File::options().read(true).write(true).open(shared).map_err(|why| failed(shared, &why))?;
        let shared_words = SharedWords::map(&file, pmu::BYTES).map_err(|why| failed(shared, &why))?;
        Pmu::create(&shared_words).map_err(|why| failed(shared, &why))?;
        let disk = Disk::from(&configuration.machine.disk.clone().unwrap_or_default());
        let times = Times::new(vcpus, disk, configuration.idles_with_host);
        let sets = model.common_l1_sets();
        let cpu_states = (0..vcpus).map(|cpu| Vcpu::new(cpu, sets)).collect();
        Ok(Self {
            id,
            instruction: (model.ps_per_instruction() * vcpu::FRACTIONS as f64).round() as u64,
            memory_end: configuration.memory.iter().map(|range| range.end).max().unwrap_or(0),
            control: control.map(|path| ControlWords::create(path, &model)).transpose()?,
            processor: Processor::new(&configuration.machine, &model),
            model,
            numbers,
            shared: shared_words,
            pace: Pace::new(vcpus, times, &CLOCK).map_err(|why| format!("cannot make an eventfd: {why}"))?,
            vcpus: cpu_states,
            task_counts: TaskCounts::new(vcpus),
            page_tables: (0..vcpus).map(|_| PageTable::default()).collect(),
            system_calls: (0..vcpus).map(|_| SystemCall::default()).collect(),
            time_stamp_counters: (0..vcpus).map(|_| TimeStampCounter::default()).collect(),
            program_counters: (0..vcpus).map(|_| ProgramCounter::default()).collect(),
            per_cpu: (0..vcpus).map(|_| PerCpuBase::default()).collect(),
            executed: Scoreboard::new(),
            measuring: AtomicBool::new(false),
            switch: AtomicBool::new(false),
            counters_asked: AtomicU64::new(0),
            publishing: Mutex::new(()),
            switched_by: AtomicUsize::new(0),
        })
    }

    fn pmu(&self) -> Option<Pmu<'_>> {
        Pmu::open(&self.shared).ok()
    }

    /// Registers the callbacks below with QEMU.
    fn register(&self) {
        // SAFETY: the functions have the types that QEMU asks for, and this plugin is never unloaded.
        unsafe {
            sys::qemu_plugin_register_vcpu_init_cb(self.id, on_cpu, null_mut());
            if self.measuring.load(SeqCst) {
                sys::qemu_plugin_register_vcpu_tb_trans_cb(self.id, on_translate, null_mut());
            } else {
                sys::qemu_plugin_register_vcpu_tb_trans_cb(self.id, on_translate_at_rest, null_mut());
            }
        }
    }

    /// In a CPU's own thread: switches instrumentation on if requested. QEMU stops the CPUs that run code and frees all
    /// callbacks, but a halted CPU that wakes up at that very moment may be calling those for halted CPUs, and would
    /// crash. So none are registered before, and instrumentation is never switched off.
    fn switch_if_asked(&self, cpu: usize) {
        if self.switch.load(Relaxed) && self.switch.swap(false, SeqCst) {
            self.switched_by.store(cpu, SeqCst);
            // SAFETY: called from a CPU's thread, as QEMU requires; the callback runs when no translated code is left.
            unsafe { sys::qemu_plugin_reset(self.id, after_reset, null_mut()) };
        }
    }

    fn start(&self) {
        self.model.begin(0);
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            vcpu.start(self.executed.entry(index));
        }
        self.task_counts.start(|cpu| self.work(cpu));
        self.pace.start();
    }

    fn publish(&self, pmu: Pmu<'_>) {
        for (index, vcpu) in self.vcpus.iter().enumerate() {
            let (loads, stores) = vcpu.take_recent_hits();
            self.model.add_l1_hits(index, loads, stores);
        }
        let (now_ps, clock_ns) = (self.pace.look(Times::now_ps), guest_clock_ns());
        pmu.set_time_ps(now_ps);
        let instructions = self.vcpus.iter().map(Vcpu::instructions).sum();
        let seconds = |of: fn(&Vcpu) -> u64| {
            let ps: u64 = self.vcpus.iter().map(of).sum();
            Duration::from_nanos(ps / 1000).as_secs_f64()
        };
        let mut counters = self.model.counters(now_ps);
        let cpus = std::mem::take(&mut counters.cpus).into_iter().zip(&self.vcpus).zip(&self.numbers);
        let cpus: BTreeMap<CpuId, MeasuredCpu> = cpus
            .map(|((counters, vcpu), &number)| {
                (
                    number,
                    MeasuredCpu {
                        instructions: vcpu.instructions(),
                        cpu_time_s: Duration::from_nanos(vcpu.ran_ps() / 1000).as_secs_f64(),
                        memory_wait_s: Duration::from_nanos(vcpu.waited_ps() / 1000).as_secs_f64(),
                        counters,
                    },
                )
            })
            .collect();
        let per_cpu = cpus.into_values().collect();
        let (tasks, tasks_uncounted) = self.task_counts.take(|cpu| self.work(cpu));
        let mut measured = Measured {
            instructions,
            clock_releases: self.pace.look(Times::releases),
            cpu_time_s: seconds(Vcpu::ran_ps),
            memory_wait_s: seconds(Vcpu::waited_ps),
            per_cpu,
            tasks,
            tasks_uncounted,
            counters,
        };
        let publish = |measured: &Measured| {
            let json = serde_json::to_vec(measured).map_err(|why| why.to_string())?;
            pmu.set_counters_json(&json, clock_ns).map_err(|why| why.to_string())
        };
        let mut published = publish(&measured);
        if published.is_err() {
            // On machines with many nodes, most of the numbers are of threads.
            measured.tasks_uncounted += std::mem::take(&mut measured.tasks).len() as u64;
            published = publish(&measured);
        }
        if let Err(why) = published {
            eprintln!("nearside: cannot publish the counters: {why}");
        }
    }

    /// The work of a CPU so far.
    fn work(&self, cpu: usize) -> Work {
        let vcpu = &self.vcpus[cpu];
        Work {
            instructions: vcpu.instructions(),
            ran_ps: vcpu.ran_ps(),
            waited_ps: vcpu.waited_ps(),
            dram_accesses: self.model.dram_accesses_of(cpu),
        }
    }

    /// Notes which thread a CPU runs. Only within a callback of that CPU, or of its thread in QEMU.
    fn see_task(&self, cpu: usize, pmu: Pmu<'_>) {
        let offsets = pmu.task_offsets();
        let Some((base, record)) = self.per_cpu.get(cpu).and_then(|base| Some((base, base.record(offsets)?))) else {
            return;
        };
        let read = || base.running(offsets, true).unwrap_or_default();
        self.task_counts.see(cpu, record, read, || self.work(cpu));
    }

    /// Polls the virtual PMU's command, for the lifetime of the process.
    fn follow_commands(&self) {
        let Some(pmu) = self.pmu() else { return };
        let mut measuring = false;
        let (mut last_ps, mut still, mut sleeps) = (0, 0, None);
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let wanted = pmu.command() == Command::Measure;
            if wanted != measuring {
                measuring = wanted;
                // A CPU's own request ends it.
                self.switch.store(wanted, SeqCst);
            } else if measuring {
                let now_ps = self.pace.look(Times::now_ps);
                still = if now_ps == last_ps { still + 1 } else { 0 };
                last_ps = now_ps;
                if still == 0 {
                    sleeps = None;
                } else if still % LOOKS_UNTIL_STUCK == 0 && !self.pace.look(Times::host_works) {
                    // If no thread has run in between, QEMU's threads wait for each other in an unknown way. If one
                    // waits for the host, or for a host CPU, the clock will move by itself: letting CPUs run ahead
                    // would then change what they see.
                    let before = std::mem::replace(&mut sleeps, host::sleeps_of_other_threads());
                    if sleeps.is_some() && sleeps == before {
                        self.pace.release();
                    }
                }
                if self.pace.look(Times::waits_for_input) && !pmu.waits_for_input() {
                    // The input may have arrived, but QEMU's main loop has not seen it yet.
                    self.pace.call_main_loop(None);
                    self.pace.change(&self.model, |times| times.set_input(false));
                }
            }
        }
    }

    /// Handles one memory access of a CPU.
    fn access(&self, cpu: usize, info: sys::qemu_plugin_meminfo_t, address: u64, instruction: u64, store: bool) {
        let Some(vcpu) = self.vcpus.get(cpu) else { return };
        let line = address / 64;
        if vcpu.hits_recent(line, store) {
            if !store && vcpu.wants(line) {
                self.pass_value(cpu, info);
            }
            return;
        }
        let physical = match reached(info, address) {
            Some(physical) if physical < self.memory_end => physical,
            Some(_) if store => return self.device_store(cpu, vcpu),
            _ => return,
        };
        if !machine::is_kernel_address(instruction) && vcpu.take_clock_read() {
            self.report(cpu, vcpu, Lead::READING_CLOCK);
        }
        let time_ps = vcpu.settle(self.instruction);
        let kind = if store { AccessKind::Store } else { AccessKind::Load };
        let request = Request { kind, physical, virtual_address: address, instruction };
        let access = self.model.access(cpu, time_ps, request, || self.page_tables.get(cpu)?.entry(address));
        let mut spins = false;
        if access.keep {
            vcpu.set_recent(line, store);
        } else {
            spins = vcpu.forget_line(line, store);
        }
        vcpu.wait_ps(access.stall_ps);
        if access.wants_value {
            vcpu.set_wanted(line);
        }
        if !store && vcpu.wants(line) {
            self.pass_value(cpu, info);
        }
        // Without first writes, memory that is read before it is written would look read-only.
        if (access.level > Level::L1 || access.first_write) && vcpu.is_sampled() {
            self.sample(cpu, vcpu.sample_period(), time_ps, (address, physical), instruction, store, &access);
        }
        if spins {
            self.report(cpu, vcpu, Lead::spinning(vcpu.spin(vcpu.time_ps())));
        } else if vcpu.time_ps() >= vcpu.report_at_ps.load(Relaxed) {
            self.report(cpu, vcpu, Lead::WORKING);
        }
    }

    fn pass_value(&self, cpu: usize, info: sys::qemu_plugin_meminfo_t) {
        if let Some(value) = loaded_value(info) {
            self.model.loaded(cpu, value);
        }
    }

    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what a sample is made of")]
    fn sample(
        &self,
        cpu: usize,
        period: u64,
        time_ps: u64,
        (address, physical_address): (u64, u64),
        instruction: u64,
        store: bool,
        access: &Access,
    ) {
        let Some(pmu) = self.pmu() else { return };
        let task = self.per_cpu.get(cpu).and_then(|base| base.running(pmu.task_offsets(), pmu.with_names()));
        let Task { pid, tid, name } = task.unwrap_or_default();
        let instruction = self.program_counters.get(cpu).map_or(instruction, |counter| counter.address(instruction));
        let (latency_ps, stall_ps) = (access.latency_ps.into(), access.stall_ps);
        let (node, level) = (access.node.into(), access.level as u8);
        let cpu = self.numbers[cpu].0;
        let clock_ns = guest_clock_ns();
        let sample = Sample {
            time_ps,
            ticks: clock_ns,
            clock_ns,
            instruction,
            address,
            physical_address,
            latency_ps,
            stall_ps,
            cpu,
            pid,
            tid,
            node,
            store,
            level,
            period,
            name,
        };
        pmu.push(&sample);
    }

    /// A CPU's time including all its waits, ps.
    fn settle(&self, cpu: usize, vcpu: &Vcpu) -> u64 {
        let time_ps = vcpu.settle(self.instruction);
        let waited_ps = self.model.catch_up(cpu, time_ps);
        vcpu.wait_ps(waited_ps);
        time_ps + waited_ps
    }

    /// Checks whether a CPU uses another address space than at its last report, or one whose tables may have changed.
    fn follow_address_space(&self, cpu: usize, time_ps: u64) {
        let (Some(pmu), Some(base), Some(table)) = (self.pmu(), self.per_cpu.get(cpu), self.page_tables.get(cpu))
        else {
            return;
        };
        self.see_task(cpu, pmu);
        if base.page_table(pmu.task_offsets()).is_some_and(|root| table.set_root(root)) {
            self.model.forget_pages(cpu);
        } else if time_ps % PAGE_TABLE_PS < REPORT_PS {
            table.forget();
        }
    }

    /// A CPU reports its time, if a report is due or it must stay near the others.
    fn report(&self, cpu: usize, vcpu: &Vcpu, lead: Lead) {
        let time_ps = self.settle(cpu, vcpu);
        let due_ps = vcpu.report_at_ps.load(Relaxed);
        let is_due = time_ps >= due_ps;
        if lead == Lead::WORKING && !is_due {
            return;
        }
        if is_due || lead != Lead::READING_CLOCK {
            self.follow_address_space(cpu, time_ps);
            vcpu.forget_recent();
            vcpu.set_sample_period(self.pmu().map_or(0, |pmu| pmu.period()));
        }
        let next_ps = time_ps + self.pace.report(cpu, time_ps, lead, &self.model);
        vcpu.report_at_ps.store(if is_due { next_ps } else { next_ps.min(due_ps) }, Relaxed);
    }

    /// A CPU has stored to memory outside all nodes: the virtual PMU's, or control words. Its request takes effect at that
    /// moment.
    #[cold]
    fn device_store(&self, cpu: usize, vcpu: &Vcpu) {
        if let Some(control) = &self.control {
            control.follow(&self.model, &self.numbers);
        }
        let Some(pmu) = self.pmu() else { return };
        self.publish_if_asked(cpu, vcpu, pmu);
        if pmu.waits_for_input() {
            self.pace.change(&self.model, |times| times.set_input(true));
        }
    }

    /// Several CPUs may ask at once: one publishes at a time.
    fn publish_if_asked(&self, cpu: usize, vcpu: &Vcpu, pmu: Pmu<'_>) {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        if pmu.command() == Command::Rest && pmu.state() == Command::Measure {
            self.pace.stop(self.settle(cpu, vcpu));
            self.publish(pmu);
            // Translated code keeps its calls (see `switch_if_asked`); the guest only shuts down from here.
            pmu.set_state(Command::Rest);
        }
        let asked = pmu.counters_asked();
        if self.counters_asked.swap(asked, Relaxed) != asked {
            self.publish(pmu);
        }
    }
}

/// QEMU calls this when it loads the plugin.
///
/// # Safety
/// QEMU passes a valid description of itself and `count` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const sys::qemu_info_t,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as promised above; in system emulation the union holds the number of CPUs.
    let (vcpus, arguments) = unsafe {
        let arguments = (0..count.cast_unsigned() as usize).map(|i| CStr::from_ptr(*arguments.add(i)));
        let arguments: Vec<&str> = arguments.filter_map(|argument| argument.to_str().ok()).collect();
        ((*info).max_vcpus.cast_unsigned() as usize, arguments)
    };
    let lab = match Lab::new(id, &arguments, vcpus) {
        Ok(lab) => LAB.get_or_init(|| lab),
        Err(why) => {
            eprintln!("nearside: the lab's plugin cannot start: {why}");
            return 1;
        }
    };
    lab.register();
    let followed = std::thread::Builder::new().name("nearside".into()).spawn(|| lab.follow_commands());
    match followed {
        Ok(_) => 0,
        Err(why) => {
            eprintln!("nearside: the lab's plugin cannot start a thread: {why}");
            1
        }
    }
}
