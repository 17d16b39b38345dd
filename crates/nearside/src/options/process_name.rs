//! Processes by number or name.

use std::fs;
use std::path::Path;

/// Length of a name that the kernel keeps (`TASK_COMM_LEN` without its end).
const LONGEST_NAME: usize = 15;
/// Most numbers in a message.
const MOST_LISTED: usize = 10;

/// Why a text names no process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoProcess(String);

/// The number of a running process, from the number or from a name that only one process has.
pub fn process(text: &str) -> Result<u32, NoProcess> {
    in_proc(text, Path::new("/proc")).map_err(NoProcess)
}

fn in_proc(text: &str, proc: &Path) -> Result<u32, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let pid = text.parse().ok().filter(|pid| *pid > 0);
        return pid.ok_or_else(|| format!("`{text}` is no process id: they are from 1 to {}", u32::MAX));
    }
    let name = &text.as_bytes()[..text.len().min(LONGEST_NAME)];
    let is_named = |pid: &u32| {
        let comm = fs::read(proc.join(pid.to_string()).join("comm")).unwrap_or_default();
        comm.strip_suffix(b"\n") == Some(name)
    };
    let entries = fs::read_dir(proc).map_err(|why| format!("cannot read {}: {why}", proc.display()))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = pids.filter(is_named).collect();
    found.sort_unstable();
    match found.as_slice() {
        [pid] => Ok(*pid),
        [] => Err(format!("there is no process `{text}`: give its number, or its name as `ps -o comm` has it")),
        several => {
            let listed: Vec<String> = several.iter().take(MOST_LISTED).map(ToString::to_string).collect();
            let more = if several.len() > MOST_LISTED { ", ..." } else { "" };
            Err(format!(
                "{} processes are named `{text}`: give the number of one, of {}{more}",
                several.len(),
                listed.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_be_of_one_process() {
        let proc = tempfile::tempdir().unwrap();
        let named = |pid: &str, name: &str| {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("comm"), format!("{name}\n")).unwrap();
        };
        named("7", "postgres");
        named("8", "a-very-long-nam");
        named("9", "work er");
        named("10", "postgres");
        named("self", "postgres");
        let find = |text| in_proc(text, proc.path());
        assert_eq!((find("9"), find("work er"), find("a-very-long-name-indeed")), (Ok(9), Ok(9), Ok(8)));
        assert_eq!(find("postgres").unwrap_err(), "2 processes are named `postgres`: give the number of one, of 7, 10");
        for (text, says) in
            [("mysqld", "there is no process `mysqld`"), ("", "is no process id"), ("0", "is no process id")]
        {
            assert!(find(text).unwrap_err().contains(says), "{text}");
        }
        assert!(find("99999999999").unwrap_err().contains("is no process id"));
    }
}
