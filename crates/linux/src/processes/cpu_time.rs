//! CPU time of processes and threads.

use crate::processes::process::{Pid, Process, ProcessError, Tid, is_gone, read_error};
use std::io;
use std::time::Duration;

/// A CPU time clock ID is the inverted PID with these low three bits: scheduler time, summed over all threads.
const SCHEDULED: i32 = 2;

/// CPU time of all threads of a process so far, including those that have exited. One cheap call regardless of the
/// number of threads. Since Linux 2.6.12. Needs no privileges. ESRCH: it has exited.
pub fn process_cpu_time(pid: Pid) -> io::Result<Duration> {
    let clock = !pid.0.cast_signed() << 3 | SCHEDULED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is valid.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result == -1 {
        // EINVAL means that the process does not exist.
        let error = io::Error::last_os_error();
        let gone = error.raw_os_error() == Some(libc::EINVAL);
        return Err(if gone { io::Error::from_raw_os_error(libc::ESRCH) } else { error });
    }
    Ok(Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The part of the CPU time of a process, of its threads that have exited, and of the children that it has waited for, that
/// its first thread had, 0 to 1. Also of a process that has ended and that its parent has not waited for. Children count in
/// ticks of 10 ms. Since Linux 2.6.23 with `CONFIG_SCHED_INFO`; none without, or if it had no time at all.
pub fn first_thread_share(process: &Process) -> Option<f64> {
    let pid = process.pid();
    let first = thread_times(process, Tid(pid.0)).ok()??.ran;
    let all = process_cpu_time(pid).ok()? + children_time(&process.text_below("stat").ok()?)?;
    Some(first.as_secs_f64() / all.as_secs_f64()).filter(|share| share.is_finite())
}

/// CPU time of waited-for children: `cutime` and `cstime` of /proc/PID/stat.
fn children_time(stat: &str) -> Option<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    // The name before the last parenthesis may contain anything.
    let mut rest = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
    let mut ticks = || rest.next()?.parse::<u32>().ok();
    Some(TICK.saturating_mul(ticks()?) + TICK.saturating_mul(ticks()?))
}

/// How a thread has spent its time since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a CPU.
    pub ran: Duration,
    /// Time runnable, waiting for a CPU.
    pub waited: Duration,
}

/// Times of a thread so far; `None` if it has exited. Since Linux 2.6.23 with `CONFIG_SCHED_INFO`. Needs no privileges.
pub fn thread_times(process: &Process, thread: Tid) -> Result<Option<ThreadTimes>, ProcessError> {
    match process.text_below(&format!("task/{thread}/schedstat")) {
        Ok(text) => parse_schedstat(&text).map(Some).ok_or_else(|| ProcessError::Malformed {
            pid: process.pid(),
            file: "task/TID/schedstat",
            line: text.trim_end().to_owned(),
        }),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(read_error(process.pid(), "task/TID/schedstat", error)),
    }
}

/// Parses time on a CPU (ns), time waiting for one (ns), and the number of time slices.
fn parse_schedstat(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok().map(Duration::from_nanos);
    Some(ThreadTimes { ran: next()?, waited: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_of_a_program_that_has_ended_had_all_its_time_or_its_child_had() {
        let share = |script: &str| {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            let process = Process::open(Pid(child.id())).unwrap();
            let is_over = || process.text_below("stat").is_ok_and(|stat| stat.contains(") Z "));
            while !is_over() {
                std::thread::sleep(Duration::from_millis(2));
            }
            let share = first_thread_share(&process);
            child.wait().unwrap();
            share
        };
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        let Some(alone) = share(busy) else {
            return test_tools::skipped("the kernel does not tell threads' CPU times");
        };
        assert!(alone > 0.95, "{alone}");
        assert!(share(&format!("({busy}); :")).is_some_and(|share| share < 0.5));
        assert_eq!(children_time("7 (a) b) S 1 1 1 0 -1 4 1 2 3 4 50 60 7 8 20 0"), Some(Duration::from_millis(150)));
        assert_eq!([children_time("7 (a) S 1"), children_time("")], [None, None]);
    }

    #[test]
    fn work_takes_cpu_time() {
        let own = Pid(std::process::id());
        let before = process_cpu_time(own).unwrap();
        let process = Process::open(own).unwrap();
        let thread = Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let mut sum = 0_u64;
        while process_cpu_time(own).unwrap() < before + Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        let times = thread_times(&process, thread).unwrap().unwrap();
        assert!(times.ran > Duration::ZERO, "{times:?}");
        assert_eq!(thread_times(&process, Tid(u32::MAX >> 1)).unwrap(), None);
        assert_eq!(process_cpu_time(Pid(u32::MAX >> 4)).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn what_is_not_as_the_kernel_writes_it_is_nothing() {
        let times = ThreadTimes { ran: Duration::from_nanos(12), waited: Duration::from_nanos(3) };
        assert_eq!(parse_schedstat("12 3 4\n"), Some(times));
        assert_eq!([parse_schedstat(""), parse_schedstat("12"), parse_schedstat("-1 3 4")], [None; 3]);
    }
}
