//! Declarations from QEMU's `qemu-plugin.h`, version 7: only the used ones, with QEMU's names. The header documents
//! what each function requires and when it may be called.

#![allow(non_camel_case_types, reason = "QEMU's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the interface; 7 came with QEMU 11.1, which accepts no older one.
pub(crate) const QEMU_PLUGIN_VERSION: c_int = 7;

pub(crate) type qemu_plugin_id_t = u64;
/// An access to memory.
pub(crate) type qemu_plugin_meminfo_t = u32;
pub(crate) type qemu_plugin_udata_cb_t = unsafe extern "C" fn(*mut c_void);
pub(crate) type qemu_plugin_vcpu_udata_cb_t = unsafe extern "C" fn(c_uint, *mut c_void);
pub(crate) type qemu_plugin_vcpu_tb_trans_cb_t = unsafe extern "C" fn(*mut qemu_plugin_tb, *mut c_void);
pub(crate) type qemu_plugin_vcpu_mem_cb_t = unsafe extern "C" fn(c_uint, qemu_plugin_meminfo_t, u64, *mut c_void);

/// Structures that are opaque to plugins.
macro_rules! opaque {
    ($($name:ident),*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name {
                _hidden: [u8; 0],
            }
        )*
    };
}
opaque!(qemu_plugin_tb, qemu_plugin_insn, qemu_plugin_scoreboard, qemu_plugin_hwaddr, qemu_plugin_register);

#[repr(C)]
pub struct qemu_info_t {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_cur: c_int,
    pub(crate) system_emulation: bool,
    // A union, of which system emulation uses these members.
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// One number per CPU in a scoreboard.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct qemu_plugin_u64 {
    pub(crate) score: *mut qemu_plugin_scoreboard,
    pub(crate) offset: usize,
}

#[repr(C)]
pub(crate) struct qemu_plugin_reg_descriptor {
    pub(crate) handle: *mut qemu_plugin_register,
    pub(crate) name: *const c_char,
    pub(crate) feature: *const c_char,
    pub(crate) is_readonly: bool,
}

/// The value loaded or stored.
#[repr(C)]
pub(crate) struct qemu_plugin_mem_value {
    pub(crate) kind: c_uint,
    /// In the host's byte order; the kind says how many of the first bytes hold the value.
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// Kinds of [`qemu_plugin_mem_value`].
pub(crate) const QEMU_PLUGIN_MEM_VALUE_U32: c_uint = 2;
pub(crate) const QEMU_PLUGIN_MEM_VALUE_U64: c_uint = 3;

/// Register access of a callback.
pub(crate) const QEMU_PLUGIN_CB_NO_REGS: c_uint = 0;
pub(crate) const QEMU_PLUGIN_CB_R_REGS: c_uint = 1;
pub(crate) const QEMU_PLUGIN_CB_RW_REGS: c_uint = 2;

/// Accesses for which a callback is called.
pub(crate) const QEMU_PLUGIN_MEM_R: c_uint = 1;
pub(crate) const QEMU_PLUGIN_MEM_W: c_uint = 2;

/// The condition "greater or equal".
pub(crate) const QEMU_PLUGIN_COND_GE: c_uint = 7;
/// The operation "add".
pub(crate) const QEMU_PLUGIN_INLINE_ADD_U64: c_uint = 0;

/// `GLib`'s arrays.
#[repr(C)]
pub(crate) struct GArray {
    pub(crate) data: *mut c_char,
    pub(crate) len: c_uint,
}

#[repr(C)]
pub(crate) struct GByteArray {
    pub(crate) data: *mut u8,
    pub(crate) len: c_uint,
}

unsafe extern "C" {
    pub(crate) fn qemu_plugin_reset(id: qemu_plugin_id_t, call: qemu_plugin_udata_cb_t, word: *mut c_void);
    pub(crate) fn qemu_plugin_register_vcpu_init_cb(
        id: qemu_plugin_id_t,
        call: qemu_plugin_vcpu_udata_cb_t,
        word: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: qemu_plugin_id_t,
        call: qemu_plugin_vcpu_tb_trans_cb_t,
        word: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        tb: *mut qemu_plugin_tb,
        call: qemu_plugin_vcpu_udata_cb_t,
        flags: c_uint,
        condition: c_uint,
        entry: qemu_plugin_u64,
        value: u64,
        word: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        tb: *mut qemu_plugin_tb,
        operation: c_uint,
        entry: qemu_plugin_u64,
        value: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut qemu_plugin_insn,
        call: qemu_plugin_vcpu_udata_cb_t,
        flags: c_uint,
        word: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut qemu_plugin_insn,
        operation: c_uint,
        entry: qemu_plugin_u64,
        value: u64,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut qemu_plugin_insn,
        call: qemu_plugin_vcpu_mem_cb_t,
        flags: c_uint,
        accesses: c_uint,
        word: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(tb: *const qemu_plugin_tb) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(tb: *const qemu_plugin_tb, index: usize) -> *mut qemu_plugin_insn;
    pub(crate) fn qemu_plugin_insn_data(instruction: *const qemu_plugin_insn, to: *mut c_void, bytes: usize) -> usize;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const qemu_plugin_insn) -> u64;
    pub(crate) fn qemu_plugin_mem_get_value(info: qemu_plugin_meminfo_t) -> qemu_plugin_mem_value;
    pub(crate) fn qemu_plugin_get_hwaddr(info: qemu_plugin_meminfo_t, address: u64) -> *mut qemu_plugin_hwaddr;
    pub(crate) fn qemu_plugin_hwaddr_is_io(address: *const qemu_plugin_hwaddr) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(address: *const qemu_plugin_hwaddr) -> u64;
    pub(crate) fn qemu_plugin_get_registers() -> *mut GArray;
    pub(crate) fn qemu_plugin_read_register(register: *mut qemu_plugin_register, to: *mut GByteArray) -> bool;
    pub(crate) fn qemu_plugin_write_register(register: *mut qemu_plugin_register, from: *mut GByteArray) -> bool;
    pub(crate) fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut GByteArray, bytes: usize) -> bool;
    pub(crate) fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut qemu_plugin_scoreboard;
    pub(crate) fn qemu_plugin_scoreboard_find(scoreboard: *mut qemu_plugin_scoreboard, cpu: c_uint) -> *mut c_void;

    // GLib functions, which QEMU itself is linked with.
    pub(crate) fn g_byte_array_new() -> *mut GByteArray;
    pub(crate) fn g_byte_array_append(array: *mut GByteArray, bytes: *const u8, count: c_uint) -> *mut GByteArray;
    pub(crate) fn g_byte_array_set_size(array: *mut GByteArray, bytes: c_uint) -> *mut GByteArray;
    pub(crate) fn g_byte_array_unref(array: *mut GByteArray);
    pub(crate) fn g_array_unref(array: *mut GArray);
}
