//! The CPUs that serve interrupts.

use machine::{CpuSet, bounded};
use std::fs;
use std::path::{Path, PathBuf};

/// An interrupt whose CPUs can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The file of its CPUs: `smp_affinity_list`. Root may write it; the kernel refuses some (EIO).
    pub path: PathBuf,
    /// The CPUs that may serve it.
    pub cpus: CpuSet,
}

/// The interrupts of a system whose /proc is at `proc`, in the order of their numbers. Those that cannot be read are
/// left out.
pub fn interrupts(proc: &Path) -> Vec<Interrupt> {
    let entries = fs::read_dir(proc.join("irq")).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    let interrupt = |number: u32| {
        let path = proc.join(format!("irq/{number}/smp_affinity_list"));
        let cpus = bounded::text(&path).ok()?.trim().parse().ok()?;
        Some(Interrupt { path, cpus })
    };
    numbers.into_iter().filter_map(interrupt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use saved_files::SavedFiles;

    #[test]
    fn interrupts_are_read_in_order_and_what_cannot_be_read_is_left_out() {
        let root = SavedFiles::new();
        for (name, text) in [("10", "0-3\n"), ("9", "2\n"), ("11", "x\n"), ("default_smp_affinity", "f\n")] {
            root.put(&format!("irq/{name}/smp_affinity_list"), text);
        }
        let found: Vec<String> = interrupts(root.path()).into_iter().map(|found| found.cpus.to_string()).collect();
        assert_eq!(found, ["2", "0-3"]);
        assert_eq!(interrupts(Path::new("/nowhere")), []);
    }
}
