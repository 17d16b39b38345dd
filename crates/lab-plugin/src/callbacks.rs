//! Functions that QEMU calls: each finds the lab, and passes the call on.

use crate::processor::ProcessorCalls;
use crate::qemu::{self, Block};
use crate::qemu_api as sys;
use crate::thread_role::{self, Role};
use crate::time_stamp_counter::{OWED, Reader, follow_reads};
use crate::times::Lead;
use crate::{LAB, Lab, guest_clock_ns, host};
use model::pmu::Command;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::SeqCst;

/// Number of instructions between two checks of a CPU's time, about a tenth of a reporting period, and of where its
/// kernel keeps the running thread, which cannot be determined in an access callback.
const INSTRUCTIONS_PER_LOOK: u64 = 1000;
/// Duration of `pause`, ps: about 40 cycles, as on the processors of the presets. Without it, spinning CPUs would slow
/// the host down for nothing.
const PAUSE_PS: u64 = 20_000;
pub(crate) unsafe extern "C" fn after_reset(_: *mut c_void) {
    let Some((lab, pmu)) = LAB.get().and_then(|lab| Some((lab, lab.pmu()?))) else { return };
    let command = pmu.command();
    if command == Command::Measure {
        lab.start();
    }
    lab.measuring.store(command == Command::Measure, SeqCst);
    lab.register();
    pmu.set_state(command);
}

pub(crate) unsafe extern "C" fn on_cpu(cpu: c_uint, _: *mut c_void) {
    let Some(lab) = LAB.get() else { return };
    if let Some(base) = lab.per_cpu.get(cpu as usize) {
        host::become_batch_work();
        base.find_registers();
        lab.program_counters[cpu as usize].find_register();
        lab.system_calls[cpu as usize].find_register();
        lab.time_stamp_counters[cpu as usize].find_registers();
        lab.processor.find_registers(cpu as usize);
        thread_role::set(Role::Cpu(cpu as usize));
    }
}

pub(crate) unsafe extern "C" fn on_translate(tb: *mut sys::qemu_plugin_tb, _: *mut c_void) {
    let Some(lab) = LAB.get() else { return };
    // SAFETY: QEMU is translating this block while this function runs.
    let block = unsafe { Block::new(tb) };
    let instructions = block.instructions();
    block.add(lab.executed, instructions.len() as u64);
    block.call_when_at_least(lab.executed, INSTRUCTIONS_PER_LOOK, on_look);
    follow_reads(&block, lab.executed, on_ticks);
    follow_processor(lab, &block);
    for instruction in instructions {
        if instruction.is_pause() {
            instruction.call(on_pause);
        }
        if instruction.is_system_call() {
            instruction.call(on_system_call);
        }
        instruction.call_on_access(on_load, on_store, instruction.address());
    }
}

/// The guest spins on `pause` while it waits for the switch.
pub(crate) unsafe extern "C" fn on_translate_at_rest(tb: *mut sys::qemu_plugin_tb, _: *mut c_void) {
    let Some(lab) = LAB.get() else { return };
    // SAFETY: QEMU is translating this block while this function runs.
    let block = unsafe { Block::new(tb) };
    block.call_when_at_least(lab.executed, OWED, on_owed);
    follow_reads(&block, lab.executed, on_ticks);
    follow_processor(lab, &block);
    for instruction in block.instructions().filter(qemu::Instruction::is_pause) {
        instruction.call(on_pause_at_rest);
    }
}

fn follow_processor(lab: &Lab, block: &Block) {
    let calls =
        ProcessorCalls { identify: on_identify, read: on_read_register, write: on_write_register, answer: on_answer };
    lab.processor.follow(block, lab.executed, &calls);
}

unsafe extern "C" fn on_identify(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.processor.ask(cpu as usize, true);
    }
}

unsafe extern "C" fn on_read_register(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.processor.ask(cpu as usize, false);
    }
}

unsafe extern "C" fn on_write_register(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.processor.write(cpu as usize, &lab.model);
    }
}

unsafe extern "C" fn on_answer(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.processor.answer(cpu as usize, &lab.model);
    }
}

unsafe extern "C" fn on_pause_at_rest(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.switch_if_asked(cpu as usize);
    }
}

unsafe extern "C" fn on_ticks(cpu: c_uint, reader: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.show_ticks(cpu as usize, Reader::from_word(reader as u64));
    }
}

unsafe extern "C" fn on_owed(cpu: c_uint, _: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.show_owed(cpu as usize);
    }
}

unsafe extern "C" fn on_look(cpu: c_uint, _: *mut c_void) {
    if let Some((lab, vcpu)) = LAB.get().and_then(|lab| Some((lab, lab.vcpus.get(cpu as usize)?))) {
        lab.show_owed(cpu as usize);
        lab.per_cpu[cpu as usize].find();
        let lead = if vcpu.spins() { Lead::spinning(vcpu.spin(vcpu.time_ps())) } else { Lead::WORKING };
        lab.report(cpu as usize, vcpu, lead);
        vcpu.looked();
    }
}

unsafe extern "C" fn on_pause(cpu: c_uint, _: *mut c_void) {
    if let Some((lab, vcpu)) = LAB.get().and_then(|lab| Some((lab, lab.vcpus.get(cpu as usize)?))) {
        if let Some(pmu) = lab.pmu() {
            let clock_ns = guest_clock_ns();
            pmu.note_pause(clock_ns, clock_ns);
        }
        vcpu.run_ps(PAUSE_PS);
        lab.report(cpu as usize, vcpu, Lead::spinning(vcpu.spin(vcpu.time_ps())));
    }
}

unsafe extern "C" fn on_system_call(cpu: c_uint, _: *mut c_void) {
    if let Some((lab, vcpu)) = LAB.get().and_then(|lab| Some((lab, lab.vcpus.get(cpu as usize)?)))
        && lab.system_calls[cpu as usize].reads_clock()
    {
        vcpu.read_clock();
    }
}

unsafe extern "C" fn on_load(cpu: c_uint, info: sys::qemu_plugin_meminfo_t, address: u64, instruction: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.access(cpu as usize, info, address, instruction as u64, false);
    }
}

unsafe extern "C" fn on_store(cpu: c_uint, info: sys::qemu_plugin_meminfo_t, address: u64, instruction: *mut c_void) {
    if let Some(lab) = LAB.get() {
        lab.access(cpu as usize, info, address, instruction as u64, true);
    }
}
