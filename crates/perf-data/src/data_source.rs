//! Decodes what served an access: `union perf_mem_data_src` of the kernel's `include/uapi/linux/perf_event.h`, and
//! the registers of AMD's instruction-based sampling.

use crate::bytes::Bytes;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A read.
    Load,
    /// A write.
    Store,
    /// The processor does not report it.
    Unknown,
}

/// The level that served an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The core's first-level cache, or a fill in progress.
    L1,
    /// The core's second-level cache.
    L2,
    /// The last-level cache near the core.
    L3,
    /// The cache of another core or node.
    Peer,
    /// Memory.
    Dram,
}

/// What a processor reports about an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Load or store.
    pub kind: AccessKind,
    /// The level that served it, if known.
    pub served: Option<Served>,
    /// Whether the level that served it is on the CPU's node, if known.
    pub local: Option<bool>,
}

const OP_LOAD: u64 = 2;
const OP_STORE: u64 = 4;
const OP_PREFETCH: u64 = 8;

const LEVEL_HIT: u64 = 0x02;
const LEVEL_L1: u64 = 0x08;
const LEVEL_FILL_BUFFER: u64 = 0x10;
const LEVEL_L2: u64 = 0x20;
const LEVEL_L3: u64 = 0x40;
const LEVEL_LOCAL_RAM: u64 = 0x80;
const LEVEL_REMOTE_RAM: u64 = 0x100 | 0x200;
const LEVEL_REMOTE_CACHE: u64 = 0x400 | 0x800;

/// Value of the level number for "not available".
const NO_NUMBER: u64 = 0xf;

const SNOOP_HITM: u64 = 0x10;
/// Forwarded, or from a peer: both bits of `mem_snoopx`.
const SNOOP_PEER: u64 = 0x3;

impl Observed {
    /// An access of which nothing is reported.
    pub const NOTHING: Self = Self { kind: AccessKind::Unknown, served: None, local: None };

    /// Decodes `PERF_SAMPLE_DATA_SRC`. `None` if it has neither the operation nor the level.
    pub fn of_data_source(value: u64) -> Option<Self> {
        let bits = |from: u32, count: u32| value >> from & ((1 << count) - 1);
        let (operation, level, snoop) = (bits(0, 5), bits(5, 14), bits(19, 5));
        let (number, remote, peer, hops) = (bits(33, 4), bits(37, 1) == 1, bits(38, 2), bits(43, 3));
        let kind = match (operation & (OP_LOAD | OP_PREFETCH) != 0, operation & OP_STORE != 0) {
            (true, false) => AccessKind::Load,
            (false, true) => AccessKind::Store,
            _ => AccessKind::Unknown,
        };
        // Newer kernels report the level's number, older ones a bit for each level, and some both.
        let cache = |served| {
            let from_peer = snoop & SNOOP_HITM != 0 || peer & SNOOP_PEER != 0 || remote || hops > 0;
            // A hop of the first kind is to another core of the same node, although AMD calls that remote.
            let local = if !from_peer || hops == 1 { Some(true) } else { (hops > 0 || remote).then_some(false) };
            (Some(if from_peer { Served::Peer } else { served }), local)
        };
        let memory = (Some(Served::Dram), Some(!remote && hops <= 1));
        // AMD before Zen 4 does not distinguish the L3 from the cores around it: it reports the L3 and a cache one
        // hop away. For modified lines it reports a modified cache, which may be the L3.
        let around_l3 = level & LEVEL_L3 != 0 && level & LEVEL_REMOTE_CACHE != 0 && !remote && hops <= 1;
        let (served, local) = match number {
            // A store miss names the level that missed.
            _ if level & LEVEL_HIT == 0 && level & 1 == 0 && level != 0 => (None, None),
            0xb | NO_NUMBER if around_l3 => (Some(Served::L3), Some(true)),
            // CXL memory is a node without CPUs.
            9 => (Some(Served::Dram), Some(false)),
            // Kernels give Intel's "L3 miss, remote memory" the number of the L3 as well.
            _ if level & LEVEL_HIT != 0 && level & LEVEL_REMOTE_RAM != 0 => (Some(Served::Dram), Some(false)),
            _ if level & LEVEL_HIT != 0 && level & LEVEL_LOCAL_RAM != 0 => (Some(Served::Dram), Some(!remote)),
            1 | 7 | 0xc => cache(Served::L1),
            2 | 5 => cache(Served::L2),
            3 | 4 | 6 => cache(Served::L3),
            0xb => cache(Served::Peer),
            0xd | 0xe => memory,
            _ if level & LEVEL_HIT == 0 => (None, None),
            _ if level & LEVEL_REMOTE_CACHE != 0 => (Some(Served::Peer), Some(false)),
            _ if level & (LEVEL_L1 | LEVEL_FILL_BUFFER) != 0 => cache(Served::L1),
            _ if level & LEVEL_L2 != 0 => cache(Served::L2),
            _ if level & LEVEL_L3 != 0 => cache(Served::L3),
            _ => (None, None),
        };
        (kind != AccessKind::Unknown || served.is_some()).then_some(Self { kind, served, local })
    }
}

/// The registers of an IBS op sample: `PERF_SAMPLE_RAW` of `ibs_op`, for kernels before 6.2, which did not decode
/// them. Follows AMD's Processor Programming Reference and the kernel's amd-ibs.h. Not yet tested on hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IbsOp {
    /// What the processor reports.
    pub observed: Observed,
    /// Virtual address of the data.
    pub address: u64,
    /// Physical address of the data.
    pub physical: Option<u64>,
    /// Latency of the L1 miss, in core cycles; 0 for a hit.
    pub miss_cycles: u16,
}

/// Capability bit: data sources have five bits instead of three (Zen 4).
const IBS_ZEN4: u32 = 1 << 11;

impl IbsOp {
    /// Parses the registers. `None` if the op was neither a load nor a store, or has no address.
    pub fn parse(raw: Bytes<'_>) -> Option<Self> {
        let mut raw = raw;
        let capabilities = raw.u32()?;
        // Control, instruction address and branch data come first.
        raw.take_u64s(3)?;
        let (data2, data3, address, physical) = (raw.u64()?, raw.u64()?, raw.u64()?, raw.u64()?);
        let bit = |number: u32| data3 >> number & 1 == 1;
        let (load, store, l1_miss, l2_miss) = (bit(0), bit(1), bit(7), bit(20));
        let (has_address, has_physical) = (bit(17), bit(18));
        if !has_address {
            return None;
        }
        let kind = match (load, store) {
            (true, false) => AccessKind::Load,
            (false, true) => AccessKind::Store,
            (true, true) => AccessKind::Unknown,
            (false, false) => return None,
        };
        let remote = data2 >> 4 & 1 == 1;
        let five_bits = capabilities & IBS_ZEN4 != 0;
        let source = data2 & 7 | if five_bits { (data2 >> 6 & 3) << 3 } else { 0 };
        // The data source is valid for loads only.
        let (served, local) = match (five_bits, source) {
            _ if !l1_miss => (Some(Served::L1), Some(true)),
            _ if !l2_miss => (Some(Served::L2), Some(true)),
            _ if !load => (None, None),
            (true, 1) | (false, 2) => (Some(Served::L3), Some(true)),
            (true, 2 | 5) => (Some(Served::Peer), Some(!remote)),
            (false, 4) => (Some(Served::Peer), Some(false)),
            (_, 3) | (true, 6) => (Some(Served::Dram), Some(!remote)),
            // Memory of CXL and of devices is a node without CPUs.
            (true, 8 | 12) => (Some(Served::Dram), Some(false)),
            _ => (None, None),
        };
        Some(Self {
            observed: Observed { kind, served, local },
            address,
            physical: has_physical.then_some(physical),
            miss_cycles: (data3 >> 32) as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observed(value: u64) -> Option<(AccessKind, Option<Served>, Option<bool>)> {
        Observed::of_data_source(value).map(|seen| (seen.kind, seen.served, seen.local))
    }

    /// Values from processors, with their meaning as printed by `perf script -F data_src`.
    #[test]
    fn data_sources_are_those_of_the_kernel() {
        use AccessKind::{Load, Store};
        let all = [
            (0x6810_0142, Load, Some(Served::L1), Some(true)), // |OP LOAD|LVL L1 or L1 hit|SNP None|
            (0x6810_0242, Load, Some(Served::L1), Some(true)), // |OP LOAD|LVL LFB/MAB hit|
            (0x6810_0442, Load, Some(Served::L2), Some(true)), // |OP LOAD|LVL L2 hit|
            (0x6820_0842, Load, Some(Served::L3), Some(true)), // |OP LOAD|LVL L3 hit|SNP Hit|, no number
            (0x6890_0842, Load, Some(Served::Peer), None),     // |OP LOAD|LVL L3 hit|SNP HitM|
            (0x6810_1042, Load, Some(Served::Dram), Some(true)), // |OP LOAD|LVL Local RAM hit|
            (0x6810_2042, Load, Some(Served::Dram), Some(false)), // |OP LOAD|LVL Remote RAM (1 hop) hit|
            (0x6890_8042, Load, Some(Served::Peer), Some(false)), // |OP LOAD|LVL Remote Cache (1 hop) hit|SNP HitM|
            (0x0000_0144, Store, Some(Served::L1), Some(true)), // |OP STORE|LVL L1 hit|
            (0x0000_0184, Store, None, None),                  // |OP STORE|LVL L1 miss|
            (0x1a_0000_0042 | 1 << 43, Load, Some(Served::Dram), Some(true)), // RAM by number, on the same node
            (0x3a_0000_0042 | 2 << 43, Load, Some(Served::Dram), Some(false)), // RAM by number, remote
            (0x26_0000_0042 | 3 << 43, Load, Some(Served::Peer), Some(false)), // L3 of another package, Zen 4
            (0x16_0000_8842 | 1 << 43, Load, Some(Served::L3), Some(true)), // L3 or a core around it, before Zen 4
            (0x16_0080_8842 | 1 << 43, Load, Some(Served::L3), Some(true)), // the same, and modified
            (0x1e_0000_8842, Load, Some(Served::L3), Some(true)), // the same of Linux 6.2, without a number
            (0x36_0001_0042 | 2 << 43, Load, Some(Served::Peer), Some(false)), // another node's cache, before Zen 4
            (0x36_0000_8042 | 1 << 43, Load, Some(Served::Peer), Some(true)), // cores near by, Zen 4
            (0x26_0020_2042, Load, Some(Served::Dram), Some(false)), // L3 miss, remote memory, before Skylake
            (0x12_0000_0002, Load, Some(Served::Dram), Some(false)), // CXL
        ];
        for (value, kind, served, local) in all {
            assert_eq!(observed(value), Some((kind, served, local)), "{value:#x}");
        }
        assert_eq!(observed(0), None);
        assert_eq!(observed(1 | 1 << 5 | 1 << 19), None); // N/A throughout
    }

    fn ibs(capabilities: u32, data2: u64, data3: u64) -> Vec<u8> {
        let words = [0, 0x40_1000, 0, data2, data3, 0x7f00_0000_1000, 0x8_0000_1000];
        capabilities.to_le_bytes().into_iter().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    #[test]
    fn registers_of_instruction_based_sampling_are_read() {
        let addresses = 1 << 17 | 1 << 18;
        let dram = ibs(0x3ff, 3 | 1 << 4, 1 | 1 << 7 | 1 << 20 | addresses | 420 << 32);
        let op = IbsOp::parse(Bytes(&dram)).unwrap();
        let observed = Observed { kind: AccessKind::Load, served: Some(Served::Dram), local: Some(false) };
        assert_eq!((op.observed, op.address, op.physical), (observed, 0x7f00_0000_1000, Some(0x8_0000_1000)));
        assert_eq!(op.miss_cycles, 420);
        let hit = IbsOp::parse(Bytes(&ibs(0x3ff, 0, 2 | addresses))).unwrap();
        assert_eq!((hit.observed.kind, hit.observed.served), (AccessKind::Store, Some(Served::L1)));
        let served = |capabilities, source: u64, remote: u64| {
            let data2 = source & 7 | remote << 4 | (source >> 3) << 6;
            let raw = ibs(capabilities, data2, 1 | 1 << 7 | 1 << 20 | addresses);
            IbsOp::parse(Bytes(&raw)).map(|op| (op.observed.served, op.observed.local)).unwrap()
        };
        // Three bits: the L3 and the cores around it, memory, and a cache of another node.
        let before_zen_4 = [0, 1, 2, 3, 4].map(|source| served(0x3ff, source, 0));
        let nothing = (None, None);
        let [near, local] = [Served::L3, Served::Dram].map(|by| (Some(by), Some(true)));
        assert_eq!(before_zen_4, [nothing, nothing, near, local, (Some(Served::Peer), Some(false))]);
        // Five bits: the L3, near and far cores, memory, CXL memory (8) and device memory (12).
        let zen_4 = [1, 3, 8, 12].map(|source| served(IBS_ZEN4, source, 0));
        let elsewhere = (Some(Served::Dram), Some(false));
        assert_eq!(zen_4, [near, local, elsewhere, elsewhere]);
        assert_eq!(served(IBS_ZEN4, 5, 1), (Some(Served::Peer), Some(false)));
        // Neither load nor store; without an address; too short.
        assert_eq!(IbsOp::parse(Bytes(&ibs(0, 0, addresses))), None);
        assert_eq!(IbsOp::parse(Bytes(&ibs(0, 0, 1))), None);
        assert_eq!(IbsOp::parse(Bytes(&dram[..40])), None);
    }

    proptest! {
        #[test]
        fn any_value_is_understood_or_not(value: u64, raw: Vec<u8>) {
            let _ = (Observed::of_data_source(value), IbsOp::parse(Bytes(&raw)));
        }
    }
}
