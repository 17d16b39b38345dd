//! Interposes the C library's condition variables. QEMU uses one for each halted CPU, one for its file worker threads,
//! and one for threads that wait until CPUs have left the code that they execute. Simulated time depends on all three.
//! The library is in `LD_PRELOAD` and answers the calls.
//!
//! A halted CPU waits here instead of in the C library, so that it counts as running from the moment at which it is
//! woken, at the simulated time of the CPU that woke it, no matter when the host schedules its thread. The same holds
//! for a file worker thread.

use crate::thread_role::{self, Role};
use crate::{LAB, Lab};
use libc::{c_char, c_int, c_void, pthread_cond_t, pthread_mutex_t, timespec};
use std::ffi::CStr;
use std::mem::{transmute_copy, zeroed};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

type Wait = unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type TimedWait = unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
type Wake = unsafe extern "C" fn(*mut pthread_cond_t) -> c_int;

/// The C library's own functions.
struct Real {
    wait: Wait,
    timed_wait: TimedWait,
    signal: Wake,
    broadcast: Wake,
}

static REAL: LazyLock<Real> = LazyLock::new(|| {
    // SAFETY: the functions have had these types since the named version; QEMU is linked with it.
    unsafe {
        Real {
            wait: real(c"pthread_cond_wait"),
            timed_wait: real(c"pthread_cond_timedwait"),
            signal: real(c"pthread_cond_signal"),
            broadcast: real(c"pthread_cond_broadcast"),
        }
    }
});

/// The condition variables that file worker threads wait for.
static REQUESTS: AtomicPtr<pthread_cond_t> = AtomicPtr::new(std::ptr::null_mut());

/// # Safety
/// `F` is the type of the function.
unsafe fn real<F>(name: &CStr) -> F {
    // Without the version this could be the old function, whose condition variables have another layout.
    const VERSION: *const c_char = c"GLIBC_2.3.2".as_ptr();
    // SAFETY: both are C strings; the caller promises the type, and no pointer to a function is null here, since the C
    // library that QEMU is linked with has all four.
    unsafe {
        let found = libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), VERSION);
        assert!(!found.is_null(), "the C library has no {name:?}");
        transmute_copy::<*mut c_void, F>(&found)
    }
}

/// Whether a condition variable belongs to a CPU, on the heap. All others that CPUs wait for are QEMU's globals.
fn is_on_heap(condition: *mut pthread_cond_t) -> bool {
    // SAFETY: all zero is a valid value of this plain structure of pointers, which dladdr fills; it takes any address.
    unsafe { libc::dladdr(condition.cast_const().cast(), &mut zeroed()) == 0 }
}

impl Lab {
    /// The CPU that waits for this condition variable while it is halted.
    fn halted_at(&self, condition: *mut pthread_cond_t) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.halted_at.load(Relaxed) == condition.cast())
    }

    /// Whether a CPU waits for a condition variable while it is halted.
    fn halts_at(&self, cpu: usize, condition: *mut pthread_cond_t) -> bool {
        let own = &self.vcpus[cpu].halted_at;
        if own.load(Relaxed).is_null() && is_on_heap(condition) {
            own.store(condition.cast(), Relaxed);
        }
        own.load(Relaxed) == condition.cast()
    }

    /// Halts a CPU until it is woken. QEMU's lock, which the caller holds, is released during the wait.
    ///
    /// # Safety
    /// The calling thread has locked `mutex`.
    unsafe fn halt(&self, cpu: usize, mutex: *mut pthread_mutex_t) {
        let vcpu = &self.vcpus[cpu];
        // SAFETY: as promised by the caller.
        let unlock = || _ = unsafe { libc::pthread_mutex_unlock(mutex) };
        let time_ps = self.pace.halt(cpu, self.settle(cpu, vcpu), &self.model, unlock);
        // SAFETY: the mutex is QEMU's, which outlives its threads.
        unsafe { libc::pthread_mutex_lock(mutex) };
        vcpu.set_time_ps(time_ps);
    }
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller promises what the C library asks for.
    let wait = || unsafe { (REAL.wait)(condition, mutex) };
    let Some(lab) = LAB.get() else { return wait() };
    match thread_role::own() {
        Role::Cpu(cpu) if lab.halts_at(cpu, condition) => {
            // SAFETY: a thread that waits for a condition has locked its mutex.
            unsafe { lab.halt(cpu, mutex) };
            0
        }
        Role::Cpu(_) | Role::MainLoop => {
            lab.pace.wait_inside(true);
            let result = wait();
            lab.pace.wait_inside(false);
            result
        }
        Role::Worker | Role::Other => wait(),
    }
}

/// Interposes the C library's function in the whole QEMU process. QEMU's file worker threads wait for requests with a
/// time limit, which would expire in simulated time: they wait without one, as none of them should end.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    let role = thread_role::own();
    let (Some(lab), Role::Worker | Role::Other) = (LAB.get(), role) else {
        // SAFETY: the caller promises what the C library asks for.
        return unsafe { (REAL.timed_wait)(condition, mutex, until) };
    };
    if role == Role::Other {
        thread_role::set(Role::Worker);
        REQUESTS.store(condition, Relaxed);
    }
    // SAFETY: a thread that waits for a condition has locked its mutex, which outlives its users.
    lab.pace.rest_worker(role == Role::Other, &lab.model, || _ = unsafe { libc::pthread_mutex_unlock(mutex) });
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_lock(mutex) };
    0
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condition: *mut pthread_cond_t) -> c_int {
    if let Some(lab) = LAB.get().filter(|_| REQUESTS.load(Relaxed) == condition) {
        lab.pace.call_worker();
        return 0;
    }
    // SAFETY: the caller promises what the C library asks for.
    unsafe { (REAL.signal)(condition) }
}

/// Interposes the C library's function in the whole QEMU process.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut pthread_cond_t) -> c_int {
    if let Some((lab, cpu)) = LAB.get().and_then(|lab| Some((lab, lab.halted_at(condition)?))) {
        let by = if let Role::Cpu(by) = thread_role::own() { Some(by) } else { None };
        lab.pace.wake(cpu, lab.own_ps().unwrap_or(0), by, &lab.model);
    }
    // SAFETY: the caller promises what the C library asks for.
    unsafe { (REAL.broadcast)(condition) }
}
