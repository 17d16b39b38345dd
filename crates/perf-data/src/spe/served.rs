//! The level that served an access, from its event bits and, for loads, from the processor's data source encoding.

use super::record::{Operation, SpeRecord};
use crate::data_source::{AccessKind, Observed, Served};

// Event bits.
const L1_ACCESS: u64 = 1 << 2;
const L1_MISS: u64 = 1 << 3;
const LLC_ACCESS: u64 = 1 << 8;
const LLC_MISS: u64 = 1 << 9;
const REMOTE: u64 = 1 << 10;
const L2_ACCESS: u64 = 1 << 19;
const L2_MISS: u64 = 1 << 20;
/// A fill was in progress.
const RECENTLY_FETCHED: u64 = 1 << 22;
/// Another core's cache held the line.
const SNOOPED: u64 = 1 << 23;

/// A processor's encoding of data sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    /// Neoverse and related cores, from their technical reference manuals.
    Arm,
    AmpereOne,
    /// `HiSilicon`'s HIP12.
    HiSilicon,
}

impl Numbering {
    /// The encoding of the processor with this main ID register (`MIDR_EL1`): implementer and part.
    fn for_processor(processor: u64) -> Option<Self> {
        Some(match (processor >> 24 & 0xff, processor >> 4 & 0xfff) {
            // Neoverse N1, V1, N2, V2; Cortex-X1C, X3, A720, X925, A725, A720AE; Microsoft's Cobalt 100, which is an
            // N2.
            (0x41, 0xd0c | 0xd40 | 0xd49 | 0xd4f | 0xd4c | 0xd4e | 0xd81 | 0xd85 | 0xd87 | 0xd89) | (0x6d, 0xd49) => {
                Self::Arm
            }
            (0xc0, 0xac4) => Self::AmpereOne,
            (0x48, 0xd06) => Self::HiSilicon,
            _ => return None,
        })
    }

    /// Decodes a data source, and whether it is on the CPU's node, if known. `remote` is the remote access bit of the
    /// events.
    fn meaning(self, number: u64, remote: bool) -> Option<(Served, Option<bool>)> {
        let memory = (Served::Dram, Some(!remote));
        let near = |served| (served, Some(true));
        let far = |served| (served, Some(false));
        Some(match (self, number) {
            (Self::Arm, 0x0) | (Self::AmpereOne, 0x8) | (Self::HiSilicon, 18) => near(Served::L1),
            (Self::Arm, 0x8) | (Self::AmpereOne, 0x9) | (Self::HiSilicon, 16 | 17) => near(Served::L2),
            (Self::Arm, 0xb) | (Self::AmpereOne, 0x3) | (Self::HiSilicon, 2 | 3) => near(Served::L3),
            // Another core, in the same cluster or in another one.
            (Self::Arm, 0x9 | 0xa | 0xc) | (Self::AmpereOne, 0x0) | (Self::HiSilicon, 0 | 1) => near(Served::Peer),
            // Another cluster, which may be a node of its own.
            (Self::HiSilicon, 4 | 5) => (Served::Peer, None),
            (Self::Arm, 0xd) | (Self::AmpereOne, 0x5) | (Self::HiSilicon, 6 | 7) => far(Served::Peer),
            (Self::Arm, 0xe) | (Self::AmpereOne, 0x7) => memory,
            (Self::HiSilicon, 8) => near(Served::Dram),
            (Self::HiSilicon, 9) => far(Served::Dram),
            _ => return None,
        })
    }
}

impl SpeRecord {
    /// What the processor with this main ID register reports about the access. `None` if the operation accessed no
    /// memory.
    pub fn observed(&self, processor: u64) -> Option<Observed> {
        let kind = match self.operation? {
            Operation::Load => AccessKind::Load,
            Operation::Store => AccessKind::Store,
        };
        // Data sources are valid for loads only.
        let number = self.source.filter(|_| kind == AccessKind::Load);
        let numbered = number.and_then(|number| Numbering::for_processor(processor)?.meaning(number, self.has(REMOTE)));
        let (served, local) = match numbered.or_else(|| self.by_events()) {
            Some((served, local)) => (Some(served), local),
            None => (None, None),
        };
        Some(Observed { kind, served, local })
    }

    fn has(&self, event: u64) -> bool {
        self.events & event != 0
    }

    /// The first cache level that hit. If no cache near the core did, memory served the access, unless another core
    /// was snooped.
    fn by_events(&self) -> Option<(Served, Option<bool>)> {
        let hit = |access, miss| self.has(access) && !self.has(miss);
        if hit(L1_ACCESS, L1_MISS) || self.has(RECENTLY_FETCHED) {
            Some((Served::L1, Some(true)))
        } else if hit(L2_ACCESS, L2_MISS) {
            Some((Served::L2, Some(true)))
        } else if self.has(SNOOPED) {
            Some((Served::Peer, self.has(REMOTE).then_some(false)))
        } else if hit(LLC_ACCESS, LLC_MISS) {
            Some((Served::L3, Some(!self.has(REMOTE))))
        } else if self.has(LLC_MISS) {
            Some((Served::Dram, Some(!self.has(REMOTE))))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEOVERSE_N1: u64 = 0x413f_d0c1;
    const AMPERE_ONE: u64 = 0xc00f_ac40;
    const HIP12: u64 = 0x480f_d060;
    const UNKNOWN: u64 = 0x410f_d080;

    fn observed(
        operation: Operation,
        source: Option<u64>,
        events: u64,
        processor: u64,
    ) -> (Option<Served>, Option<bool>) {
        let record = SpeRecord { operation: Some(operation), source, events, ..SpeRecord::default() };
        let observed = record.observed(processor).unwrap();
        (observed.served, observed.local)
    }

    #[test]
    fn each_processor_has_its_own_numbers() {
        let all = [
            (NEOVERSE_N1, 0x0, 0, Served::L1, Some(true)),
            (NEOVERSE_N1, 0xb, 0, Served::L3, Some(true)),
            (NEOVERSE_N1, 0xc, 0, Served::Peer, Some(true)),
            (NEOVERSE_N1, 0xd, 0, Served::Peer, Some(false)),
            (NEOVERSE_N1, 0xe, 0, Served::Dram, Some(true)),
            (NEOVERSE_N1, 0xe, REMOTE, Served::Dram, Some(false)),
            (AMPERE_ONE, 0x0, 0, Served::Peer, Some(true)),
            (AMPERE_ONE, 0x7, 0, Served::Dram, Some(true)),
            (HIP12, 5, 0, Served::Peer, None),
            (HIP12, 9, 0, Served::Dram, Some(false)),
        ];
        for (processor, number, events, served, local) in all {
            let found = observed(Operation::Load, Some(number), events, processor);
            assert_eq!(found, (Some(served), local), "{processor:#x} {number:#x}");
        }
    }

    #[test]
    fn events_tell_where_numbers_do_not() {
        let miss = L1_ACCESS | L1_MISS;
        let all = [
            (L1_ACCESS, Some(Served::L1), Some(true)),
            (miss | RECENTLY_FETCHED, Some(Served::L1), Some(true)),
            (miss | L2_ACCESS, Some(Served::L2), Some(true)),
            (miss | L2_ACCESS | L2_MISS | LLC_ACCESS, Some(Served::L3), Some(true)),
            (miss | LLC_ACCESS | LLC_MISS, Some(Served::Dram), Some(true)),
            (miss | LLC_ACCESS | LLC_MISS | REMOTE, Some(Served::Dram), Some(false)),
            (miss | LLC_ACCESS | LLC_MISS | SNOOPED | REMOTE, Some(Served::Peer), Some(false)),
            (miss, None, None),
            (0, None, None),
        ];
        for (events, served, local) in all {
            assert_eq!(observed(Operation::Load, Some(0xe), events, UNKNOWN), (served, local), "{events:#x}");
            // Data sources are ignored for stores and when unknown.
            assert_eq!(observed(Operation::Store, Some(0), events, NEOVERSE_N1), (served, local), "{events:#x}");
            assert_eq!(observed(Operation::Load, Some(0x77), events, NEOVERSE_N1), (served, local), "{events:#x}");
        }
        assert_eq!(SpeRecord::default().observed(NEOVERSE_N1), None);
    }
}
