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

/// Processes of one number or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// The process of this number.
    Number(u32),
    /// All that had a name: at least one.
    Name(Vec<u32>),
}

/// The number of a running process, from the number or from a name that only one process has.
pub fn process(text: &str) -> Result<u32, NoProcess> {
    only(text, &in_proc(text, Path::new("/proc"))?)
}

/// The numbers of all running processes with a name, or of one, from its number.
pub fn processes(text: &str) -> Result<Named, NoProcess> {
    let found = in_proc(text, Path::new("/proc"))?;
    let number = text.parse().ok().filter(|number| found == [*number]);
    Ok(number.map_or(Named::Name(found), Named::Number))
}

/// Those of a number or name; at least one.
fn in_proc(text: &str, proc: &Path) -> Result<Vec<u32>, NoProcess> {
    if text.is_empty() {
        return Err(NoProcess("the name of a process is empty".to_owned()));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let pid = text.parse().ok().filter(|pid| *pid > 0);
        let none = || NoProcess(format!("`{text}` is no process id: they are from 1 to {}", u32::MAX));
        return pid.map(|pid| vec![pid]).ok_or_else(none);
    }
    let name = &text.as_bytes()[..text.len().min(LONGEST_NAME)];
    let is_named = |pid: &u32| {
        let folder = proc.join(pid.to_string());
        let comm = fs::read(folder.join("comm")).unwrap_or_default();
        comm.strip_suffix(b"\n") == Some(name) && !is_zombie(&folder)
    };
    let entries = fs::read_dir(proc).map_err(|why| NoProcess(format!("cannot read {}: {why}", proc.display())))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<u32> = pids.filter(is_named).collect();
    found.sort_unstable();
    if found.is_empty() {
        let why = format!("there is no process `{text}`: give its number, or its name as `ps -o comm` has it");
        return Err(NoProcess(why));
    }
    Ok(found)
}

/// Whether a process has ended, and waits for its parent.
fn is_zombie(folder: &Path) -> bool {
    let stat = fs::read(folder.join("stat")).unwrap_or_default();
    // Its name may contain anything.
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state.is_some_and(|state| b"ZX".contains(state))
}

/// The only process of those of a name.
fn only(text: &str, found: &[u32]) -> Result<u32, NoProcess> {
    if let [pid] = found {
        return Ok(*pid);
    }
    let listed: Vec<String> = found.iter().take(MOST_LISTED).map(ToString::to_string).collect();
    let more = if found.len() > MOST_LISTED { ", ..." } else { "" };
    let (count, listed) = (found.len(), listed.join(", "));
    Err(NoProcess(format!("{count} processes are named `{text}`: give the number of one, of {listed}{more}")))
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
        named("11", "postgres");
        fs::write(proc.path().join("11/stat"), "11 (post) S) Z 1 11").unwrap();
        let all = |text: &str| in_proc(text, proc.path());
        let find = |text: &str| all(text).and_then(|found| only(text, &found)).map_err(|NoProcess(why)| why);
        assert_eq!((find("9"), find("work er"), find("a-very-long-name-indeed")), (Ok(9), Ok(9), Ok(8)));
        assert_eq!(find("postgres").unwrap_err(), "2 processes are named `postgres`: give the number of one, of 7, 10");
        assert_eq!(all("postgres").unwrap(), [7, 10]);
        for (text, says) in [
            ("mysqld", "there is no process `mysqld`"),
            ("", "is empty"),
            ("0", "is no process id"),
            ("99999999999", "is no process id"),
        ] {
            assert!(find(text).unwrap_err().contains(says), "{text}");
        }
    }
}
