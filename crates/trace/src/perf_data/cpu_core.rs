//! The core type of a CPU, which differs between CPUs on Arm.

use machine::CpuId;
use std::fs;
use std::path::Path;

/// The core type of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Core {
    /// The main ID register on Arm; 0 otherwise.
    pub processor: u64,
    /// Frequency, in GHz: cycles per nanosecond.
    pub cycles_per_ns: Option<f64>,
}

impl Core {
    /// Reads an Arm CPU's main ID register and maximum frequency from sysfs.
    pub fn of_system(sys: &Path, cpu: CpuId) -> Self {
        let folder = sys.join(format!("devices/system/cpu/cpu{cpu}"));
        let text = |path: &str| fs::read_to_string(folder.join(path)).unwrap_or_default();
        let khz = text("cpufreq/cpuinfo_max_freq").trim().parse::<u32>().ok().filter(|khz| *khz > 0);
        Self {
            processor: main_id(text("regs/identification/midr_el1").trim()),
            cycles_per_ns: khz.map(|khz| f64::from(khz) / 1e6),
        }
    }

    /// Converts cycles to ns. `None` for 0 cycles, or if the frequency is unknown.
    pub fn nanoseconds(self, cycles: u64) -> Option<f32> {
        self.cycles_per_ns.filter(|_| cycles > 0).map(|per_ns| (cycles as f64 / per_ns) as f32)
    }
}

/// Parses `0x00000000413fd0c1`; 0 for the text of other processors.
pub(super) fn main_id(text: &str) -> u64 {
    let first = text.split(',').next().unwrap_or_default();
    first.strip_prefix("0x").and_then(|number| u64::from_str_radix(number, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::Features;
    use super::*;
    use saved_files::SavedFiles;
    use std::collections::HashMap;

    #[test]
    fn each_cpu_has_its_core() {
        let root = SavedFiles::new();
        let put = |path: &str, text: &str| root.put(&format!("devices/system/cpu/{path}"), text);
        put("cpu3/regs/identification/midr_el1", "0x00000000410fd0c0\n");
        put("cpu3/cpufreq/cpuinfo_max_freq", "2500000\n");
        put("cpu4/cpufreq/cpuinfo_max_freq", "0\n");
        let core = |cpu| Core::of_system(root.path(), CpuId(cpu));
        assert_eq!(core(3), Core { processor: 0x410f_d0c0, cycles_per_ns: Some(2.5) });
        assert_eq!(core(3).nanoseconds(250), Some(100.0));
        assert_eq!([core(4), core(5)], [Core::default(); 2]);
        let cores = HashMap::from([(CpuId(3), core(3))]);
        let mut known = Features::default();
        (known.processor, known.cores) = (7, cores);
        assert_eq!([3, 4].map(|cpu| known.core(CpuId(cpu)).processor), [0x410f_d0c0, 7]);
    }

    #[test]
    fn the_main_id_is_that_of_arm() {
        let ids = ["0x00000000413fd0c1,0x0", "GenuineIntel-6-4F-1", ""].map(main_id);
        assert_eq!(ids, [0x413f_d0c1, 0, 0]);
    }
}
