//! What `cpuid` says of caches: those of the machine instead of those of QEMU's processor, in the leaves that Linux, libc
//! and programs read.
//!
//! Source: "AMD64 Architecture Programmer's Manual", volume 3, appendix E.4: leaves `8000_0005`, `8000_0006` and `8000_001d`.
//! Leaf 4, Intel's, has the form of the last.

use machine::{CacheKind, CpuSet, LINE_BYTES, Machine};

/// The field of `eax` with the number of CPUs that share a cache, less one.
const SHARERS_SHIFT: u32 = 14;
const MOST_SHARERS: u32 = 0xfff;
/// Fields of `eax` in leaf 4 that are not the cache's.
const PROCESSOR_FIELDS: u32 = 0x3f << 26;
/// Family 19h, model 1: Linux takes the CPUs that share the last level from leaf `8000_001d` only from family 17h, model 20h
/// on, and otherwise believes that all of a package do. QEMU's processor is of AMD's family 6.
const SIGNATURE: u32 = 0x00a0_0f11;
/// The most ways that leaf `8000_001d` can name.
const MOST_WAYS: u32 = 1 << 10;
/// Ways of a cache whose number is not known.
const UNKNOWN_WAYS: u32 = 16;

/// The caches of each CPU, in the order of their leaves: data, instructions, then each further level.
#[derive(Debug)]
pub(crate) struct ShownCaches(Vec<Box<[Form]>>);

/// The form of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    level: u8,
    kind: CacheKind,
    size_bytes: u64,
    ways: u32,
    sharers: u32,
}

impl ShownCaches {
    /// Those of a machine, by CPU in ascending order.
    pub(crate) fn new(machine: &Machine) -> Self {
        let forms = |cpu| {
            let of_cpu = |cache| machine.cache_instances(cache).into_iter().find(|cpus: &CpuSet| cpus.contains(cpu));
            let mut forms: Vec<Form> = machine
                .caches
                .iter()
                .filter_map(|cache| {
                    Some(Form {
                        level: cache.level,
                        kind: cache.kind,
                        size_bytes: cache.size_bytes,
                        ways: if cache.ways == 0 { UNKNOWN_WAYS } else { cache.ways },
                        sharers: u32::try_from(of_cpu(cache)?.len()).unwrap_or(u32::MAX),
                    })
                })
                .collect();
            forms.sort_by_key(|form| (form.level, form.kind == CacheKind::Instruction));
            forms.into()
        };
        Self(machine.cpus().iter().map(forms).collect())
    }

    /// What `cpuid` returns on a CPU, where QEMU's processor returns `before`: `eax`, `ebx`, `ecx` and `edx`.
    pub(crate) fn identity(&self, cpu: usize, leaf: u32, part: u32, before: [u32; 4]) -> [u32; 4] {
        let [a, b, c, d] = before;
        let forms = self.0.get(cpu).map_or(&[][..], |forms| forms);
        let first = |level: u8, kind: CacheKind| {
            forms.iter().find(|form| form.level == level && [kind, CacheKind::Unified].contains(&form.kind))
        };
        let level1 = |kind| first(1, kind).map_or(0, |form| form.level1());
        let upper = |level, unit, shift| first(level, CacheKind::Unified).map_or(0, |form| form.upper(unit, shift));
        match leaf {
            1 => [SIGNATURE, b, c, d],
            // With the extended topology, without which Linux does not read the last of these leaves.
            0x8000_0001 => [SIGNATURE, b, c | 1 << 22, d],
            0x8000_0005 => [a, b, level1(CacheKind::Data), level1(CacheKind::Instruction)],
            0x8000_0006 => [a, b, upper(2, 1 << 10, 16), upper(3, 512 << 10, 18)],
            4 | 0x8000_001d => forms.get(part as usize).map_or([0; 4], |form| form.identity(a, d)),
            _ => before,
        }
    }
}

impl Form {
    /// In leaf `8000_0005`.
    fn level1(self) -> u32 {
        let kibibytes = (self.size_bytes >> 10).min(0xff) as u32;
        kibibytes << 24 | self.ways.min(0xfe) << 16 | 1 << 8 | LINE_BYTES as u32
    }

    /// In leaf `8000_0006`: the size in units, above this bit.
    fn upper(self, unit: u64, shift: u32) -> u32 {
        let units = (self.size_bytes / unit).min(u64::from(u32::MAX >> shift)) as u32;
        // 9 refers to leaf 8000_001d.
        let codes = [(1, 1), (2, 2), (4, 4), (8, 6), (16, 8), (32, 10), (48, 11), (64, 12), (96, 13), (128, 14)];
        let code = codes.iter().find(|(ways, _)| *ways == self.ways).map_or(9, |(_, code)| *code);
        units << shift | code << 12 | 1 << 8 | LINE_BYTES as u32
    }

    /// In leaves 4 and `8000_001d`.
    fn identity(self, a: u32, d: u32) -> [u32; 4] {
        let kind = match self.kind {
            CacheKind::Data => 1,
            CacheKind::Instruction => 2,
            CacheKind::Unified => 3,
        };
        // IDs of CPUs that share it are equal above some bit.
        let sharers = (self.sharers.next_power_of_two() - 1).min(MOST_SHARERS) << SHARERS_SHIFT;
        // The remaining fields of leaf 4 are the processor's. The cache needs no initialisation by software.
        let a = a & PROCESSOR_FIELDS | sharers | 1 << 8 | u32::from(self.level) << 5 | kind;
        let ways = self.ways.min(MOST_WAYS);
        let sets = (self.size_bytes / LINE_BYTES / u64::from(ways)).clamp(1, u64::from(u32::MAX)) as u32;
        [a, (ways - 1) << 22 | (LINE_BYTES as u32 - 1), sets - 1, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    fn shown(preset: &str) -> ShownCaches {
        ShownCaches::new(&presets::find(preset).unwrap())
    }

    /// Two CPUs a core, and a last level of 12 MiB for twelve, whose IDs have four bits.
    #[test]
    fn leaves_have_the_machines_caches() {
        let shown = shown("xeon-x5650x2");
        let of = |leaf, part| shown.identity(13, leaf, part, [0; 4]);
        let form = |kind: u32, level: u32, sharers: u32, ways: u32, sets: u32| {
            [(sharers - 1) << 14 | 1 << 8 | level << 5 | kind, (ways - 1) << 22 | 63, sets - 1, 0]
        };
        for leaf in [4, 0x8000_001d] {
            assert_eq!(of(leaf, 0), form(1, 1, 2, 8, 64));
            assert_eq!(of(leaf, 1), form(2, 1, 2, 4, 128));
            assert_eq!(of(leaf, 2), form(3, 2, 2, 8, 512));
            assert_eq!(of(leaf, 3), form(3, 3, 16, 16, 12288));
            assert_eq!(of(leaf, 4), [0; 4], "there are no more");
        }
        assert_eq!(of(0x8000_0005, 0), [0, 0, 32 << 24 | 8 << 16 | 0x140, 32 << 24 | 4 << 16 | 0x140]);
        assert_eq!(of(0x8000_0006, 0), [0, 0, 256 << 16 | 6 << 12 | 0x140, 24 << 18 | 8 << 12 | 0x140]);
        assert_eq!(of(0x8000_0001, 0)[2], 1 << 22);
    }

    #[test]
    fn what_the_processor_says_of_itself_stays() {
        let shown = shown("opteron-6164x2");
        assert_eq!(shown.identity(0, 1, 0, [1, 2, 3, 4]), [SIGNATURE, 2, 3, 4]);
        assert_eq!(shown.identity(0, 7, 0, [1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(shown.identity(0, 4, 2, [u32::MAX, 0, 0, 5])[0] >> 26, 0x3f);
        assert_eq!(shown.identity(0, 4, 2, [0, 0, 0, 5])[3], 5);
        assert_eq!(shown.identity(1000, 4, 0, [1; 4]), [0; 4], "a CPU that there is not");
    }
}
