//! Which huge pages nodes share falsely: each node uses its own parts, so that as small pages all could be local.
//!
//! [`layout`] sorts accesses by 2 MiB block, [`segments`] cuts each block where its users change, [`verdict`] tests
//! these cuts over all blocks of a flow, [`fine_grain`] looks below their resolution, and [`saving`] weighs what small
//! pages would save against what they cost. Successive accesses are no evidence: threads sweep their parts in bursts,
//! so that most successions within a falsely shared page are of one node.

mod borders;
mod by_object;
mod fine_grain;
mod layout;
mod saving;
mod segments;
mod significance;
mod verdict;

pub use borders::{Anchor, ObjectBorders, SiteFrames, borders};
pub(crate) use by_object::owned;
pub use by_object::{ObjectHugePages, SharingCounts};
pub(crate) use layout::may_have_huge_pages;
pub use saving::Saving;
pub use verdict::{Owner, Sharing};

use crate::flow::Flow;
use crate::ids::{ObjectId, ProcessId};
use crate::pages::hexadecimal;
use crate::statistics::Confidence;
use layout::Block;
use machine::{NodeId, SMALL_PAGE};
use queueing::Distances;
use serde::Serialize;
use verdict::Judged;

/// Small pages of a 2 MiB block.
pub(crate) const PAGES: u64 = machine::HUGE_PAGE / SMALL_PAGE;
/// Fewer samples of a block are not enough for a verdict.
pub const FEWEST_OF_BLOCK: u64 = 16;
/// From this number of samples on, 95 % of the falsely shared blocks with a minority of a quarter are found.
pub const ENOUGH_OF_BLOCK: u64 = 32;

/// An aligned 2 MiB block of memory, who uses its parts, and what that calls for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HugePage {
    /// Its process.
    pub process: ProcessId,
    /// Its first address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Whether it is a huge page: the kernel placed it as one, or all its observed physical addresses are consistent
    /// with one. Otherwise it is not known.
    pub is_huge: bool,
    /// The accessed objects in it, that with the most samples first.
    pub objects: Vec<ObjectId>,
    /// Samples that were judged.
    pub samples: u64,
    /// Recorded samples that each of them stands for: one, unless there are more than 2 million.
    pub stands_for: u64,
    /// Those of them that went to another node.
    pub remote_samples: u64,
    /// Samples of single lines that several nodes contend for, such as locks: these were not judged.
    pub contended_line_samples: u64,
    /// The verdict.
    pub sharing: Sharing,
    /// The confidence in it: high from 32 samples on, medium from 16.
    pub confidence: Confidence,
    /// Probability of cuts as clear as these if all parts of the block had the same users.
    pub p_value: f64,
    /// The share of samples from the node that uses each part most, 0 to 1.
    pub held: f64,
    /// The parts, by first page.
    pub owners: Vec<Owner>,
    /// Small pages that lie on another node than their owner's, as far as the sampled ones show.
    pub misplaced_pages: u64,
    /// The nodes that its memory was seen on.
    pub lies_on: Vec<NodeId>,
    /// What small pages on their owners' nodes would save; none if the machine's latencies are not known.
    pub saving: Option<Saving>,
}

impl HugePage {
    /// Whether small pages would be local where this one, as a whole, cannot be.
    pub fn is_falsely_shared(&self) -> bool {
        self.sharing == Sharing::FalselyShared
    }

    /// The node that uses nearly all of it, if it lies elsewhere: it belongs there as a whole.
    pub fn remote_owner(&self) -> Option<NodeId> {
        let owner = self.owners.first().filter(|_| self.sharing == Sharing::OneOwner)?.node;
        self.lies_on.iter().any(|node| *node != owner).then_some(owner)
    }

    /// The node that an address of it belongs on.
    pub fn owner_of(&self, address: u64) -> Option<NodeId> {
        let page = address.checked_sub(self.address)? / SMALL_PAGE;
        let after = self.owners.partition_point(|owner| owner.first_page <= page);
        let owner = after.checked_sub(1).and_then(|at| self.owners.get(at))?;
        (page < owner.first_page + owner.pages).then_some(owner.node)
    }
}

impl Flow<'_> {
    /// The 2 MiB blocks that are accessed, by process and address.
    pub fn huge_pages(&self) -> Vec<HugePage> {
        let blocks = layout::blocks(self);
        let mut judged = verdict::judge(&blocks);
        fine_grain::refine(&blocks, &mut judged);
        let distances = Distances::new(self.profile().machine());
        blocks.iter().zip(&judged).map(|(block, judged)| self.huge_page(block, judged, &distances)).collect()
    }

    fn huge_page(&self, block: &Block, judged: &Judged, distances: &Distances) -> HugePage {
        let nodes = &self.profile().machine().nodes;
        let is_judged = judged.sharing != Sharing::Unknown;
        let mut lies_on: Vec<NodeId> = block.uses.iter().filter_map(|used| Some(nodes.get(used.lies()?)?.id)).collect();
        lies_on.sort_unstable();
        lies_on.dedup();
        HugePage {
            process: block.process,
            address: block.address,
            is_huge: block.is_huge,
            objects: block.objects.clone(),
            samples: block.uses.len() as u64,
            stands_for: block.stands_for,
            remote_samples: block.remote_samples,
            contended_line_samples: block.contended_line_samples,
            sharing: judged.sharing,
            confidence: verdict::confidence(block.uses.len() as u64),
            p_value: judged.p_value,
            held: judged.held,
            owners: judged.parts.iter().filter_map(|part| part.owner(nodes)).collect(),
            misplaced_pages: saving::misplaced(block, judged),
            lies_on,
            saving: is_judged.then(|| saving::saving(block, judged, distances)).flatten(),
        }
    }
}
