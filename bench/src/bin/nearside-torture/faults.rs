//! Each system call of the agent fails once, by strace's injector: nothing is left, nothing panics, and an agent that ends
//! says why.

use crate::Part;
use crate::load::Load;
use bench::attacks::{Agent, Ground, Start};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an agent works before it is ended: several rounds, under a tracer.
const WORK: Duration = Duration::from_millis(400);
/// Calls that cannot fail, or whose failure is no state of a kernel: the end of a process, its own numbers, the time, and
/// the start of the traced program, which has not run yet. `brk` fails by returning the old end of the heap, which an injected error is not: the C
/// library takes it for success.
const NEVER_FAIL: [&str; 16] = [
    "exit",
    "exit_group",
    "rt_sigreturn",
    "execve",
    "restart_syscall",
    "arch_prctl",
    "brk",
    "getpid",
    "gettid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "umask",
    "clock_gettime",
];

/// The error that a call is made to fail with: what it can return on a real system, EIO for all that reads or writes.
fn error_of(call: &str) -> &'static str {
    match call {
        "mmap" | "munmap" | "mremap" | "madvise" | "mprotect" | "poll" | "ppoll" => "ENOMEM",
        "clone" | "clone3" | "getrandom" => "EAGAIN",
        // The C library ends a process that gets any other error of a lock.
        "futex" => "EINTR",
        _ => "EIO",
    }
}

pub fn run(programs: &Path, most: usize) -> Part {
    let mut load = Load::start(Ground::new(programs)?)?;
    let mut broken: Vec<String> = load.restore()?.into_iter().collect();
    let before = load.state()?;
    let calls = traced(&load)?;
    let mut sites: Vec<(String, usize)> = calls.iter().flat_map(|(call, &count)| occurrences(call, count)).collect();
    let of_all = sites.len();
    if most > 0 && most < of_all {
        sites = sites.into_iter().step_by(of_all.div_ceil(most)).collect();
    }
    let (mut tried, mut served, mut ended, mut runtime) = (0, 0, 0, 0);
    for (call, number) in &sites {
        let inject = format!("inject={call}:error={}:when={number}", error_of(call));
        let site = format!("{call}, occurrence {number}, {}", error_of(call));
        let trace = load.ground().path("trace.txt");
        let trace = trace.to_string_lossy();
        let mut agent = load.ground().agent(&load.acting(), &["strace", "-f", "-qq", "-o", &trace, "-e", &inject])?;
        match agent.wait_until_up()? {
            Start::Up => served += 1,
            Start::Ended(_) => ended += 1,
            // Its message may be what could not be written.
            Start::Hung if load.is_served() => served += 1,
            Start::Hung => broken.push(format!("{site}: the agent hung at its start")),
        }
        sleep(WORK);
        match after_end(&mut agent)? {
            Ended::Well => {}
            Ended::Badly(why) if is_of_runtime(call, &why) => runtime += 1,
            Ended::Badly(why) => broken.push(format!("{site}: {why}")),
        }
        drop(agent);
        broken.extend(load.restore()?.map(|said| format!("{site}: the next agent: {said}")));
        let after = load.state()?;
        if after != before {
            broken.push(format!("{site}: {before:?} became {after:?}"));
        }
        if !load.is_well()? {
            broken.push(format!("{site}: the managed program has ended"));
            break;
        }
        tried += 1;
    }
    let done = format!(
        "{tried} of {of_all} call sites of {} system calls; the agent served in {served}, could not start in {ended}, and \
         ended before its first line or in the loader or Rust's own runtime in {runtime}",
        calls.len()
    );
    Ok((done, broken))
}

/// How an agent ended.
enum Ended {
    Well,
    Badly(String),
}

/// Whether this end is decided outside nearside: without memory, the loader ends a process before its first line, and Rust's
/// runtime ends one whose thread gets no stack, or that gets no random numbers.
fn is_of_runtime(call: &str, why: &str) -> bool {
    let is_its = why.contains("/library/std/src/sys/") || why.starts_with("without a word");
    is_its && (error_of(call) == "ENOMEM" || call == "getrandom")
}

/// Ends the agent.
fn after_end(agent: &mut Agent) -> io::Result<Ended> {
    // strace passes signals to itself on only where it is interactive; the agent is its child.
    for pid in children_of(agent.pid()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let Some(status) = agent.wait()? else { return Ok(Ended::Badly("the agent did not end".to_owned())) };
    let said = agent.said();
    Ok(if said.contains("panicked") {
        Ended::Badly(format!("panic: {said}"))
    } else if !status.success() && said.trim().is_empty() {
        Ended::Badly(format!("without a word: {status}"))
    } else {
        Ended::Well
    })
}

fn children_of(pid: u32) -> Vec<rustix::process::Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)).collect()
}

/// How often each system call is made in a run, from its start to its end.
fn traced(load: &Load) -> io::Result<BTreeMap<String, usize>> {
    let trace = load.ground().path("trace.txt");
    let words = ["strace", "-f", "-qq", "-o", &trace.to_string_lossy()];
    let mut agent = load.ground().agent(&load.acting(), &words)?;
    if agent.wait_until_up()? != Start::Up {
        return Err(io::Error::other(format!("the agent does not run under strace: {}", agent.said())));
    }
    let began = Instant::now();
    while began.elapsed() < WORK {
        sleep(Duration::from_millis(10));
    }
    if let Ended::Badly(why) = after_end(&mut agent)? {
        return Err(io::Error::other(why));
    }
    let text = fs::read_to_string(trace)?;
    Ok(count(&text).into_iter().filter(|(call, _)| !NEVER_FAIL.contains(&call.as_str())).collect())
}

/// The calls of the thread that makes each most often: strace counts occurrences by thread.
fn count(text: &str) -> BTreeMap<String, usize> {
    let mut of_threads: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            *of_threads.entry((call.to_owned(), thread)).or_default() += 1;
        }
    }
    let mut calls = BTreeMap::new();
    for ((call, _), count) in of_threads {
        let most: &mut usize = calls.entry(call).or_default();
        *most = count.max(*most);
    }
    calls
}

/// The first, second, middle and last occurrence.
fn occurrences(call: &str, count: usize) -> Vec<(String, usize)> {
    let mut numbers = vec![1, 2, count.div_ceil(2), count];
    numbers.retain(|&number| number >= 1 && number <= count);
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| (call.to_owned(), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_thread_and_tried_at_their_ends() {
        let text = "7  read(3, \"\", 1) = 0\n7  read(3, \"\", 1) = 0\n8  read(3, \"\", 1) = 0\n\
                    7  <... futex resumed>) = 0\n7  --- SIGTERM {si_signo=SIGTERM} ---\n7  +++ exited with 0 +++\n";
        assert_eq!(count(text), BTreeMap::from([("read".to_owned(), 2)]));
        let numbers = |count| occurrences("read", count).into_iter().map(|(_, number)| number).collect::<Vec<_>>();
        assert_eq!((numbers(1), numbers(2), numbers(9)), (vec![1], vec![1, 2], vec![1, 2, 5, 9]));
        let runtime = "panic: panicked at /rustc/1/library/std/src/sys/random/linux.rs";
        assert!(is_of_runtime("getrandom", runtime) && is_of_runtime("mmap", "without a word: signal 11"));
        assert!(!is_of_runtime("read", runtime) && !is_of_runtime("mmap", "panic: panicked at crates/agent"));
        assert_eq!((error_of("openat"), error_of("mmap")), ("EIO", "ENOMEM"));
    }
}
