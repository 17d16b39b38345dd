//! The core type of a CPU, which differs between CPUs on Arm.

/// The core type of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Core {
    /// The main ID register on Arm; 0 otherwise.
    pub processor: u64,
    /// Frequency, in GHz: cycles per nanosecond.
    pub cycles_per_ns: Option<f64>,
}

impl Core {
    /// Converts cycles to ns. `None` for 0 cycles, or if the frequency is unknown.
    pub fn nanoseconds(self, cycles: u64) -> Option<f32> {
        self.cycles_per_ns.filter(|_| cycles > 0).map(|per_ns| (cycles as f64 / per_ns) as f32)
    }
}

/// Parses `0x00000000413fd0c1`; 0 for the text of other processors.
pub fn main_id(text: &str) -> u64 {
    let first = text.split(',').next().unwrap_or_default();
    first.strip_prefix("0x").and_then(|number| u64::from_str_radix(number, 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_id_is_that_of_arm() {
        let ids = ["0x00000000413fd0c1,0x0", "GenuineIntel-6-4F-1", ""].map(main_id);
        assert_eq!(ids, [0x413f_d0c1, 0, 0]);
    }
}
