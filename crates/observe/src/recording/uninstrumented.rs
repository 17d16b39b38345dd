//! Uninstrumented programs: those that reported no objects, because the library was not loaded into them.

use linux::Pid;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Maximum number of programs named; further ones are only counted.
const MOST_NAMES: usize = 8;

/// A sentence about the programs that reported no objects: how often each process executed one of a name, and how often
/// the library reported from such a one.
pub fn uninstrumented(
    executed: &BTreeMap<(Pid, Arc<str>), usize>,
    reported: impl Fn(Pid, &str) -> usize,
) -> Option<String> {
    let mut programs: BTreeMap<&str, usize> = BTreeMap::new();
    for ((pid, name), times) in executed {
        let silent = times.saturating_sub(reported(*pid, name));
        if silent > 0 {
            *programs.entry(name).or_default() += silent;
        }
    }
    let mut names = String::new();
    for (index, (name, times)) in programs.iter().take(MOST_NAMES).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let times = if *times == 1 { String::new() } else { format!(" ({times} times)") };
        // Writing to a string never fails.
        let _ = write!(names, "{comma}{name}{times}");
    }
    if programs.len() > MOST_NAMES {
        let _ = write!(names, " and {} others", programs.len() - MOST_NAMES);
    }
    (!programs.is_empty()).then(|| {
        format!(
            "no objects were reported by {names}: the library cannot be loaded into programs that are linked statically, have \
             privileges that their caller lacks, are started without LD_PRELOAD and NEARSIDE_RINGS in their environment, \
             or have too low limits of file size or address space (ulimit -f, -v); those that ended at once had not loaded it yet"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_the_library_are_named_once() {
        let executed = |programs: &[(u32, &str)]| {
            let mut executed = BTreeMap::new();
            for &(pid, name) in programs {
                *executed.entry((Pid(pid), name.into())).or_default() += 1;
            }
            executed
        };
        let reported = |pid: Pid, name: &str| usize::from(pid == Pid(7) && name == "sh");
        assert_eq!(uninstrumented(&executed(&[(7, "sh")]), reported), None);
        let some = uninstrumented(&executed(&[(7, "sh"), (7, "busybox"), (8, "sh"), (9, "sh")]), reported).unwrap();
        assert!(some.starts_with("no objects were reported by busybox, sh (2 times): the library"), "{some}");
        let again = uninstrumented(&executed(&[(7, "sh"), (7, "sh")]), reported).unwrap();
        assert!(again.starts_with("no objects were reported by sh: "), "{again}");
        let names: Vec<String> = (0..10).map(|number| format!("p{number}")).collect();
        let many: Vec<(u32, &str)> = names.iter().map(|name| (7, name.as_str())).collect();
        assert!(uninstrumented(&executed(&many), reported).unwrap().contains("p6, p7 and 2 others:"));
    }
}
