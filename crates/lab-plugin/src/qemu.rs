//! The used part of QEMU's plugin interface, in types that cannot be misused. Every function says from where QEMU
//! allows it to be called.

use crate::qemu_api as sys;
use std::ffi::{CStr, c_uint, c_void};
use std::ptr::null_mut;

/// Identifies this plugin to QEMU.
pub(crate) type PluginId = sys::qemu_plugin_id_t;

/// A function that translated code calls for each access: CPU, virtual address, and the word set at translation.
pub(crate) type OnAccess = unsafe extern "C" fn(c_uint, sys::qemu_plugin_meminfo_t, u64, *mut c_void);
/// A function that translated code calls for each instruction or block.
pub(crate) type OnCode = unsafe extern "C" fn(c_uint, *mut c_void);

/// One number per CPU, which translated code increments without a call.
#[derive(Clone, Copy)]
pub(crate) struct Scoreboard(sys::qemu_plugin_u64);

// SAFETY: QEMU gives each CPU its own entry; the handle itself is never written after creation.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        // SAFETY: the call has no precondition; the scoreboard lives as long as the process.
        let score = unsafe { sys::qemu_plugin_scoreboard_new(size_of::<u64>()) };
        Self(sys::qemu_plugin_u64 { score, offset: 0 })
    }

    /// The entry of a CPU. QEMU may move entries when CPUs are added.
    pub(crate) fn entry(&self, cpu: usize) -> *mut u64 {
        // SAFETY: the scoreboard exists and the caller's CPU is one that QEMU has announced.
        unsafe { sys::qemu_plugin_scoreboard_find(self.0.score, cpu as c_uint) }.cast()
    }
}

/// A block of guest code that QEMU is translating.
pub(crate) struct Block(*mut sys::qemu_plugin_tb);

/// An instruction in such a block.
pub(crate) struct Instruction(*mut sys::qemu_plugin_insn);

impl Block {
    /// # Safety
    /// The pointer is what QEMU gave to a translation callback that has not returned.
    pub(crate) unsafe fn new(tb: *mut sys::qemu_plugin_tb) -> Self {
        Self(tb)
    }

    pub(crate) fn instructions(&self) -> impl ExactSizeIterator<Item = Instruction> + '_ {
        // SAFETY: the block is being translated (see `new`).
        let count = unsafe { sys::qemu_plugin_tb_n_insns(self.0) };
        // SAFETY: as above, and the index is below the count.
        (0..count).map(|i| Instruction(unsafe { sys::qemu_plugin_tb_get_insn(self.0, i) }))
    }

    /// Adds a number to the CPU's entry at each execution.
    pub(crate) fn add(&self, to: Scoreboard, value: u64) {
        let operation = sys::QEMU_PLUGIN_INLINE_ADD_U64;
        // SAFETY: the block is being translated; the scoreboard lives as long as the process.
        unsafe { sys::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self.0, operation, to.0, value) };
    }

    /// Calls a function, which may read and write registers, before an execution if the CPU's entry has reached a
    /// number.
    pub(crate) fn call_when_at_least(&self, entry: Scoreboard, value: u64, call: OnCode) {
        let condition = sys::QEMU_PLUGIN_COND_GE;
        let flags = sys::QEMU_PLUGIN_CB_RW_REGS;
        // SAFETY: as above; the function has the type that QEMU asks for.
        unsafe {
            sys::qemu_plugin_register_vcpu_tb_exec_cond_cb(self.0, call, flags, condition, entry.0, value, null_mut());
        }
    }
}

impl Instruction {
    /// Whether it is `pause`.
    pub(crate) fn is_pause(&self) -> bool {
        self.bytes()[..2] == [0xf3, 0x90]
    }

    /// Whether it is `syscall`.
    pub(crate) fn is_system_call(&self) -> bool {
        self.bytes()[..2] == [0x0f, 0x05]
    }

    /// Whether it is `rdtsc` or `rdtscp`.
    pub(crate) fn reads_time_stamp_counter(&self) -> bool {
        matches!(self.bytes(), [0x0f, 0x31, ..] | [0x0f, 0x01, 0xf9, _])
    }

    /// Whether it is the `rdtsc` of `linux::tsc`, which has a prefix.
    pub(crate) fn reads_own_ticks(&self) -> bool {
        matches!(self.bytes(), [0x48, 0x0f, 0x31, _])
    }

    /// Whether it is `cpuid`.
    pub(crate) fn is_identification(&self) -> bool {
        self.bytes()[..2] == [0x0f, 0xa2]
    }

    /// Whether it is `rdmsr`.
    pub(crate) fn reads_model_specific(&self) -> bool {
        self.bytes()[..2] == [0x0f, 0x32]
    }

    /// Whether it is `wrmsr`.
    pub(crate) fn writes_model_specific(&self) -> bool {
        self.bytes()[..2] == [0x0f, 0x30]
    }

    /// Its first bytes; those beyond its end are zero.
    fn bytes(&self) -> [u8; 4] {
        let mut bytes = [0; 4];
        // SAFETY: the instruction belongs to a block that is being translated; QEMU writes at most the given length.
        unsafe { sys::qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        bytes
    }

    /// The address in the address space where it was translated: see
    /// [`ProgramCounter`](crate::program_counter::ProgramCounter).
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { sys::qemu_plugin_insn_vaddr(self.0) }
    }

    /// Calls a function, which may read registers, at each execution.
    pub(crate) fn call(&self, call: OnCode) {
        let flags = sys::QEMU_PLUGIN_CB_R_REGS;
        // SAFETY: as above; the function has the type that QEMU asks for.
        unsafe { sys::qemu_plugin_register_vcpu_insn_exec_cb(self.0, call, flags, null_mut()) };
    }

    /// Calls a function, which may write registers, with `word` before each execution.
    pub(crate) fn call_to_write_registers(&self, call: OnCode, word: u64) {
        let flags = sys::QEMU_PLUGIN_CB_RW_REGS;
        // SAFETY: as above; the word is passed through and never followed.
        unsafe { sys::qemu_plugin_register_vcpu_insn_exec_cb(self.0, call, flags, word as *mut c_void) };
    }

    /// Adds a number to the CPU's entry before each execution.
    pub(crate) fn add(&self, to: Scoreboard, value: u64) {
        let operation = sys::QEMU_PLUGIN_INLINE_ADD_U64;
        // SAFETY: as above; the scoreboard lives as long as the process.
        unsafe { sys::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(self.0, operation, to.0, value) };
    }

    /// Calls a function with `word` for each load, and another for each store. In programs they may read registers, as
    /// [`ProgramCounter`](crate::program_counter::ProgramCounter) does: QEMU has to keep these up to date at each
    /// access. In the kernel, which has the same addresses in all address spaces, it need not.
    pub(crate) fn call_on_access(&self, load: OnAccess, store: OnAccess, word: u64) {
        let is_programs = !machine::is_kernel_address(self.address());
        let flags = if is_programs { sys::QEMU_PLUGIN_CB_R_REGS } else { sys::QEMU_PLUGIN_CB_NO_REGS };
        let word = word as *mut c_void;
        for (call, kind) in [(load, sys::QEMU_PLUGIN_MEM_R), (store, sys::QEMU_PLUGIN_MEM_W)] {
            // SAFETY: as above; the word is passed through and never followed.
            unsafe { sys::qemu_plugin_register_vcpu_mem_cb(self.0, call, flags, kind, word) };
        }
    }
}

/// The guest-physical address that an access reached; `None` for a device, or if QEMU does not know it. Only within an
/// access callback.
#[inline]
pub(crate) fn reached(info: sys::qemu_plugin_meminfo_t, address: u64) -> Option<u64> {
    // SAFETY: called within an access callback with QEMU's arguments; the result is valid until that returns.
    unsafe {
        let found = sys::qemu_plugin_get_hwaddr(info, address);
        if found.is_null() {
            return None;
        }
        (!sys::qemu_plugin_hwaddr_is_io(found)).then(|| sys::qemu_plugin_hwaddr_phys_addr(found))
    }
}

/// The value loaded; `None` for more than 64 bits. Only within a load's callback.
pub(crate) fn loaded_value(info: sys::qemu_plugin_meminfo_t) -> Option<u64> {
    // SAFETY: called within a load's callback with QEMU's arguments.
    let value = unsafe { sys::qemu_plugin_mem_get_value(info) };
    match value.kind {
        sys::QEMU_PLUGIN_MEM_VALUE_U32 => Some(u64::from(value.low as u32)),
        sys::QEMU_PLUGIN_MEM_VALUE_U64 => Some(value.low),
        _ => None,
    }
}

/// A register of one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register(*mut sys::qemu_plugin_register);

// SAFETY: QEMU's register handles are constants.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

/// The registers with these names, in the same order. Only within a CPU's own callbacks.
pub(crate) fn registers<const N: usize>(names: [&CStr; N]) -> [Option<Register>; N] {
    let mut found = [None; N];
    // SAFETY: QEMU returns an array of descriptors that the caller must free; names are C strings that live with QEMU.
    unsafe {
        let array = sys::qemu_plugin_get_registers();
        if array.is_null() {
            return found;
        }
        let first = (*array).data.cast::<c_void>().cast::<sys::qemu_plugin_reg_descriptor>();
        for index in 0..(*array).len as usize {
            let register = &*first.add(index);
            let name = CStr::from_ptr(register.name);
            for (wanted, place) in names.iter().zip(&mut found) {
                if *wanted == name {
                    *place = Some(Register(register.handle));
                }
            }
        }
        sys::g_array_unref(array);
    }
    found
}

/// A growing `GLib` array, in which QEMU returns values.
struct Bytes(*mut sys::GByteArray);

impl Bytes {
    fn new() -> Self {
        // SAFETY: no precondition.
        Self(unsafe { sys::g_byte_array_new() })
    }

    fn first<const N: usize>(&self) -> Option<[u8; N]> {
        // SAFETY: the array exists; `data` holds `len` bytes.
        unsafe { ((*self.0).len as usize >= N).then(|| (*self.0).data.cast::<[u8; N]>().read_unaligned()) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the array exists and is not used again.
        unsafe { sys::g_byte_array_unref(self.0) };
    }
}

/// The value of a 64-bit register; `None` in a callback that may not read registers. Only within a callback of that
/// CPU.
pub(crate) fn read_register(register: Register) -> Option<u64> {
    let bytes = Bytes::new();
    // SAFETY: the handle came from QEMU; it appends the value to the array.
    let read = unsafe { sys::qemu_plugin_read_register(register.0, bytes.0) };
    if read { bytes.first().map(u64::from_le_bytes) } else { None }
}

/// Sets a 64-bit register. Only within a callback of that CPU that may write registers.
pub(crate) fn write_register(register: Register, value: u64) {
    let (bytes, value) = (Bytes::new(), value.to_le_bytes());
    // SAFETY: the handle came from QEMU, which reads the register's eight bytes from the array.
    unsafe {
        sys::g_byte_array_append(bytes.0, value.as_ptr(), value.len() as c_uint);
        sys::qemu_plugin_write_register(register.0, bytes.0);
    }
}

/// Guest memory at a virtual address of the running CPU; `None` if nothing is mapped there. Only within a CPU's
/// callback.
pub(crate) fn read_memory<const N: usize>(address: u64) -> Option<[u8; N]> {
    let bytes = Bytes::new();
    // SAFETY: the array exists; QEMU writes N bytes to it and checks the address.
    let done = unsafe {
        sys::g_byte_array_set_size(bytes.0, N as c_uint);
        sys::qemu_plugin_read_memory_vaddr(address, bytes.0, N)
    };
    if done { bytes.first() } else { None }
}
