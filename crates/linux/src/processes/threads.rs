//! The threads of a process: their affinity, last CPU, and memory policy.

use crate::processes::process::{Process, ProcessError, Status, Tid};
use crate::residence::residences::Residence;
use machine::{CpuId, bounded};
use std::io::BufReader;

/// Maximum number of base pages that the kernel may have to walk to report the policies of all threads: about a quarter
/// of a second.
const MOST_PAGES_WALKED: u64 = 1 << 23;
/// Bytes per read, fewer than two lines: the kernel walks only the pages of the lines that are read.
const READ_BYTES: usize = 96;
/// Maximum length of a line of `numa_maps`, in bytes: a path of 4,096, escaped, and counters of each node.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its TID.
    pub tid: Tid,
    /// Its status: name, allowed CPUs and nodes.
    pub status: Status,
    /// The CPU that it runs on, or last ran on.
    pub cpu: Option<CpuId>,
    /// Its memory policy, in the kernel's words. `None` if it was not requested, or is not visible.
    pub policy: Option<String>,
}

/// A mapping that reveals the policy of a thread: in the thread's `numa_maps`, mappings without their own policy show
/// the thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyMark {
    start: u64,
    /// Base pages in the mappings before it.
    pages_before: u64,
}

impl PolicyMark {
    /// The first private mapping of a file: hardly any program sets a policy for one.
    pub fn among(mappings: &[Residence]) -> Option<Self> {
        let mut pages_before = 0_u64;
        for residence in mappings {
            let mapping = &residence.mapping;
            if mapping.inode != 0 && !mapping.shared && residence.policy.is_some() {
                return Some(Self { start: mapping.range.start, pages_before });
            }
            let pages = residence.pages.iter().fold(0, |sum: u64, pages| sum.saturating_add(pages.pages));
            pages_before = pages_before.saturating_add(pages);
        }
        None
    }
}

/// The current threads. A mark adds their policies, which needs the process's user or `CAP_SYS_PTRACE`; policies are
/// left out if the kernel would have to walk millions of pages for them.
pub fn threads(process: &Process, mark: Option<PolicyMark>) -> Result<Vec<Thread>, ProcessError> {
    let ids = process.threads()?;
    let walked = mark.map_or(0, |mark| mark.pages_before.saturating_mul(ids.len() as u64));
    let mark = mark.filter(|_| walked <= MOST_PAGES_WALKED);
    let mut threads = Vec::with_capacity(ids.len());
    for tid in ids.iter() {
        // A thread that has exited does not belong to the process any more.
        let Some(status) = process.thread_status(tid)? else { continue };
        let cpu = thread_cpu(process, tid);
        let policy = mark.and_then(|mark| policy(process, tid, mark));
        threads.push(Thread { tid, status, cpu, policy });
    }
    Ok(threads)
}

fn policy(process: &Process, tid: Tid, mark: PolicyMark) -> Option<String> {
    find_mapping(process, tid, |mapping, _| match mapping.start {
        start if start < mark.start => None,
        start => Some((start == mark.start).then(|| mapping.policy.clone())),
    })?
}

/// The memory policy of a thread, in the kernel's words: that of its first mapping of a file, which belongs to its
/// program or a library and hardly ever has its own policy. Reads no further, so it takes some microseconds. Needs the
/// process's user, or `CAP_SYS_PTRACE`. `None` if it is not visible, or the thread has exited.
pub fn thread_policy(process: &Process, tid: Tid) -> Option<String> {
    find_mapping(process, tid, |mapping, line| line.contains(" file=/").then(|| mapping.policy.clone()))
}

/// Reads a thread's `numa_maps` only until a match, so that the kernel walks no further.
fn find_mapping<T>(
    process: &Process,
    tid: Tid,
    mut find: impl FnMut(&crate::NumaMapping, &str) -> Option<T>,
) -> Option<T> {
    let file = process.open_below(&format!("task/{tid}/numa_maps")).ok()?;
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    loop {
        let line = bounded::line(&mut reader, MOST_LINE_BYTES).ok()??;
        let line = std::str::from_utf8(&line).ok()?.trim_end();
        let found = find(&line.parse().ok()?, line);
        if found.is_some() {
            return found;
        }
    }
}

/// The CPU where a thread ran last; none if it has exited.
pub fn thread_cpu(process: &Process, tid: Tid) -> Option<CpuId> {
    last_cpu(&process.text_below(&format!("task/{tid}/stat")).ok()?)
}

/// The CPU in the text of /proc/PID/stat: field 39. Field 2 is a name in parentheses that may hold anything.
pub(crate) fn last_cpu(stat: &str) -> Option<CpuId> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(39 - 3)?.parse().ok().map(CpuId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::Pid;
    use saved_files::SavedFiles;

    #[test]
    fn the_cpu_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a ) 1 (b) {}", fields.join(" "));
        assert_eq!(last_cpu(&stat), Some(CpuId(39)));
        assert_eq!((last_cpu("7 (a) S 1"), last_cpu("")), (None, None));
    }

    /// A saved process of two threads; the second has its own policy.
    #[test]
    fn a_mark_tells_the_policy_of_each_thread_unless_too_many_pages_are_before_it() {
        let root = SavedFiles::new();
        let numa_maps = |policy: &str| {
            format!(
                "1000 bind:3 anon=9 dirty=9 N3=9 kernelpagesize_kB=4\n2000 {policy} file=/bin/a mapped=1 N0=1 \
                 kernelpagesize_kB=4\n3000 {policy} stack\n"
            )
        };
        for (tid, policy) in [(7, "default"), (8, "weighted interleave:0-1")] {
            root.put(&format!("7/task/{tid}/status"), "Name:\ta\n");
            root.put(&format!("7/task/{tid}/numa_maps"), &numa_maps(policy));
        }
        let smaps = "1000-2000 rw-p 0 0:0 0\n2000-3000 r-xp 0 0:0 5 /bin/a\n3000-4000 rw-p 0 0:0 0 [stack]\n";
        let uses = crate::parse_smaps(smaps).unwrap();
        let numa = crate::parse_numa_maps(&numa_maps("default")).unwrap();
        let mut mappings = crate::residences(uses, numa, 2 << 20).mappings;
        let process = Process::open_in(root.path(), Pid(7)).unwrap();
        let policies = |mark| -> Vec<Option<String>> {
            threads(&process, mark).unwrap().into_iter().map(|thread| thread.policy).collect()
        };
        let mark = PolicyMark::among(&mappings);
        assert_eq!(mark, Some(PolicyMark { start: 0x2000, pages_before: 9 }));
        assert_eq!(policies(mark), [Some("default".into()), Some("weighted interleave:0-1".into())]);
        assert_eq!(policies(None), [None, None]);
        mappings[0].pages[0].pages = MOST_PAGES_WALKED / 2 + 1;
        assert_eq!(policies(PolicyMark::among(&mappings)), [None, None]);
        // The mapping was removed meanwhile.
        assert_eq!(policies(Some(PolicyMark { start: 0x2800, pages_before: 0 })), [None, None]);
        assert_eq!(PolicyMark::among(&mappings[..1]), None);
        // The first mapping of a file is enough, without a mark.
        let policies = [7, 8, 9].map(|tid| thread_policy(&process, Tid(tid)));
        assert_eq!(policies, [Some("default".to_owned()), Some("weighted interleave:0-1".to_owned()), None]);
    }

    #[test]
    fn threads_of_this_process_are_listed() {
        let process = Process::open(Pid(std::process::id())).unwrap();
        let named = std::thread::Builder::new().name("told".into());
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = named.spawn(move || receiver.recv()).unwrap();
        let told = || threads(&process, None).unwrap();
        while !told().iter().any(|thread| thread.status.name == "told") {}
        let found = told().into_iter().find(|thread| thread.status.name == "told").unwrap();
        assert!(!found.status.cpus.is_empty() && found.cpu.is_some() && found.policy.is_none());
        drop(sender);
        let _ = thread.join();
    }
}
