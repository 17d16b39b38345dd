//! What threads to come begin with.

use crate::boundary::{ErrorOut, Out, call, free, given};
use crate::policies::policy;
use crate::sets::ns_set;
use crate::threads::{combine, process};
use library::{Error, Template};
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::mpsc::{Sender, channel};

/// CPUs and memory policy for threads.
#[derive(Default)]
pub struct ns_template(Template);

/// A thread's function. The C library unwinds it where the thread calls `pthread_exit`, or is cancelled.
pub type ns_thread_function = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A new template, which changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_new() -> Box<ns_template> {
    Box::default()
}

/// Frees a template; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_free(template: Option<Box<ns_template>>) {
    free(template);
}

/// Sets the CPUs of a template; null leaves them to inheritance.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_cpus(
    template: Option<&mut ns_template>,
    cpus: Option<&ns_set>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        given(template, "template")?.0.cpus = cpus.map(ns_set::as_ids);
        Ok(0)
    })
}

/// Sets the memory policy of a template.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_policy(
    template: Option<&mut ns_template>,
    mode: c_int,
    nodes: Option<&ns_set>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let policy = policy(mode, nodes)?;
        given(template, "template")?.0.policy = Some(policy);
        Ok(0)
    })
}

/// Brings the template to the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_enter(template: Option<&ns_template>, error: ErrorOut<'_>) -> c_int {
    call(error, || given(template, "template")?.0.enter().map(|()| 0))
}

/// Brings the CPUs of the template to all threads of a process. Returns the number of threads.
#[unsafe(no_mangle)]
pub extern "C" fn ns_template_apply(
    template: Option<&ns_template>,
    pid: c_int,
    how: c_int,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let threads = given(template, "template")?.0.apply(process(pid)?, combine(how)?)?;
        Ok(c_int::try_from(threads).unwrap_or(c_int::MAX))
    })
}

/// What a new thread needs to begin.
struct Start {
    template: Template,
    entered: Sender<Result<(), Error>>,
    function: ns_thread_function,
    argument: *mut c_void,
}

/// Starts a thread that has the template before its function begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_template_start(
    template: Option<&ns_template>,
    thread: Out<'_, libc::pthread_t>,
    attributes: *const libc::pthread_attr_t,
    function: Option<ns_thread_function>,
    argument: *mut c_void,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        let template = given(template, "template")?.0.clone();
        let place = given(thread, "thread")?;
        let missing = || Error::Argument { attempt: "start a thread".to_owned(), why: "it has no function".to_owned() };
        let function = function.ok_or_else(missing)?;
        let (entered, result) = channel();
        let start = Box::into_raw(Box::new(Start { template, entered, function, argument }));
        let mut made: libc::pthread_t = 0;
        // SAFETY: the attributes are null or valid by the contract of all calls; the new thread owns `start`.
        let errno = unsafe { pthread_create(&raw mut made, attributes, begin, start.cast()) };
        let no_thread = |errno| {
            let answer = io::Error::from_raw_os_error(errno);
            let diagnosis = Box::new(linux::Cause::Other(answer.to_string()).into());
            Error::Refused { attempt: "start a thread".to_owned(), call: "clone", errno, diagnosis }
        };
        if errno != 0 {
            // SAFETY: no thread was made, so the box is still ours.
            drop(unsafe { Box::from_raw(start) });
            return Err(no_thread(errno));
        }
        let entered = result.recv().unwrap_or_else(|_| Err(no_thread(libc::EAGAIN)));
        if entered.is_err() {
            // It ends without its function. A detached thread cannot be joined, and needs not.
            // SAFETY: by the contract of all calls.
            if !unsafe { is_detached(attributes) } {
                // SAFETY: it was just made, is joinable, and no other thread knows it.
                unsafe { libc::pthread_join(made, std::ptr::null_mut()) };
            }
        } else {
            place.write(made);
        }
        entered.map(|()| 0)
    })
}

unsafe extern "C" {
    /// Missing from libc.
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
    /// libc's takes no function that may be unwound.
    fn pthread_create(
        made: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        begin: ns_thread_function,
        argument: *mut c_void,
    ) -> c_int;
}

/// Whether threads with these attributes, or none, cannot be joined.
///
/// # Safety
///
/// The attributes are null or valid.
unsafe fn is_detached(attributes: *const libc::pthread_attr_t) -> bool {
    let mut state = libc::PTHREAD_CREATE_JOINABLE;
    if !attributes.is_null() {
        // SAFETY: the attributes are valid.
        unsafe { pthread_attr_getdetachstate(attributes, &raw mut state) };
    }
    state == libc::PTHREAD_CREATE_DETACHED
}

extern "C-unwind" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `ns_template_start` made the box for this thread alone.
    let Start { template, entered, function, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| template.enter()));
    drop(template);
    // Without an answer the creator reports that the thread ended.
    let Ok(result) = result else { return std::ptr::null_mut() };
    let runs = result.is_ok();
    let _ = entered.send(result);
    drop(entered);
    if runs { function(argument) } else { std::ptr::null_mut() }
}
