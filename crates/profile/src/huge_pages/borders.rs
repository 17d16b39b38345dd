//! Where the users of an object's memory change within huge pages: at these places small pages are needed, in any run of
//! the program.

use super::{HugePage, Sharing};
use crate::ids::{CodeId, FileId, ObjectId};
use crate::profile::Profile;
use crate::statistics::Confidence;
use machine::{HUGE_PAGE, NodeId, SMALL_PAGE};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Expected accesses from which on their absence is no chance: 5 in 100,000.
const FEWEST_EXPECTED: f64 = 10.0;

/// Where a program counts the parts of an object from, which matters when another run aligns it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Anchor {
    /// The object's first address: the program accesses what is before the first huge page.
    Start,
    /// The first huge page: it does not, so it aligns its memory itself.
    FirstHugePage,
    /// There are too few samples to know.
    Unknown,
}

/// An object of which nodes use different parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectBorders {
    /// The object.
    pub object: ObjectId,
    /// Its falsely shared huge pages that small pages surely improve.
    pub huge_pages: u64,
    /// Where the program counts these from.
    pub anchor: Anchor,
    /// Offsets in the object where another node's part begins, ascending.
    pub borders: Vec<u64>,
}

/// The objects with such pages, with the borders of all their parts: those between huge pages are within some when the
/// program runs again, if the object is aligned otherwise then.
pub fn borders(profile: &Profile, pages: &[HugePage]) -> Vec<ObjectBorders> {
    let mut objects: BTreeMap<ObjectId, Vec<&HugePage>> = BTreeMap::new();
    for page in pages.iter().filter(|page| page.is_huge) {
        if let Some(&object) = page.objects.first() {
            objects.entry(object).or_default().push(page);
        }
    }
    let of_object = |(id, pages): (ObjectId, Vec<&HugePage>)| {
        let object = profile.objects().get(id.index())?;
        let huge_pages = pages.iter().filter(|page| is_to_be_small(page)).count() as u64;
        // Objects may begin and end within a huge page: the mark of any part of it is enough.
        let offset =
            |address: u64| address.saturating_sub(object.start).clamp(1, object.bytes.saturating_sub(1).max(1));
        let borders: BTreeSet<u64> = changes(&pages).into_iter().map(offset).collect();
        let (anchor, borders) = (Anchor::Unknown, borders.into_iter().collect());
        (object.bytes > 0 && huge_pages > 0).then_some(ObjectBorders { object: id, huge_pages, anchor, borders })
    };
    let mut found: Vec<ObjectBorders> = objects.into_iter().filter_map(of_object).collect();
    find_anchors(profile, &mut found);
    found
}

fn find_anchors(profile: &Profile, found: &mut [ObjectBorders]) {
    // Accesses to each object, and to the part of it before its first huge page.
    let mut accesses = vec![(0_u64, 0_u64); found.len()];
    for access in profile.accesses() {
        let Ok(at) = found.binary_search_by_key(&access.object, |of| of.object) else { continue };
        let start = profile.objects().get(access.object.index()).map_or(0, |object| object.start);
        accesses[at].0 += 1;
        accesses[at].1 += u64::from(access.address < start.next_multiple_of(HUGE_PAGE));
    }
    for (of, (all, before)) in found.iter_mut().zip(accesses) {
        let Some(object) = profile.objects().get(of.object.index()) else { continue };
        let bytes_before = object.start.next_multiple_of(HUGE_PAGE) - object.start;
        of.anchor = anchor(all, before, bytes_before as f64 / object.bytes.max(1) as f64);
    }
}

/// `share_before` is the share of the object's memory before its first huge page.
fn anchor(all: u64, before: u64, share_before: f64) -> Anchor {
    match before {
        0 if all as f64 * share_before >= FEWEST_EXPECTED => Anchor::FirstHugePage,
        0 => Anchor::Unknown,
        _ => Anchor::Start,
    }
}

/// Whether small pages surely save something.
fn is_to_be_small(page: &HugePage) -> bool {
    page.is_falsely_shared()
        && page.confidence >= Confidence::Medium
        && page.saving.is_none_or(|saving| saving.low_ns > 0.0)
}

/// Addresses where the owner changes: within pages that are to be small, and between these and those of one owner.
fn changes(pages: &[&HugePage]) -> Vec<u64> {
    let mut found = Vec::new();
    // The end of the last part and its node.
    let mut before: Option<(u64, NodeId)> = None;
    for page in pages {
        if !is_to_be_small(page) && page.sharing != Sharing::OneOwner {
            before = None;
            continue;
        }
        for owner in &page.owners {
            let start = page.address + owner.first_page * SMALL_PAGE;
            if before.is_some_and(|(end, node)| end == start && node != owner.node) {
                found.push(start);
            }
            before = Some((start + owner.pages * SMALL_PAGE, owner.node));
        }
        if page.owners.is_empty() {
            before = None;
        }
    }
    found
}

/// The code that allocates an object, as another run recognises it: the return addresses in the file of its
/// allocation site, and the number of frames of the chain that they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFrames {
    /// The file.
    pub file: FileId,
    /// Offsets in it, innermost first.
    pub offsets: Vec<u64>,
    /// Frames of the whole chain.
    pub frames: u64,
}

impl Profile {
    /// The frames of an object's allocation site; none if its code is not known.
    pub fn site_frames(&self, object: ObjectId) -> Option<SiteFrames> {
        let chain = self.chain(self.objects().get(object.index())?.site);
        let allocating = self.site(self.site_of(object)?)?.code?;
        let file = self.code(allocating)?.file?;
        let place = |code: &CodeId| self.code(*code).map(|code| (code.file, code.offset));
        // Functions that are inlined into others have their addresses.
        let mut places: Vec<_> = chain.iter().filter_map(place).collect();
        places.dedup();
        let of_file = places.iter().filter(|(of, _)| *of == Some(file));
        Some(SiteFrames { file, offsets: of_file.map(|(_, offset)| *offset).collect(), frames: places.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Owner;
    use super::*;
    use crate::ids::ProcessId;

    const START: u64 = 0x6000_0000;

    /// A huge page of object 0 with these parts: pages and nodes.
    fn page(number: u64, sharing: Sharing, parts: &[(u64, u32)]) -> HugePage {
        let mut first_page = 0;
        let owner = |&(pages, node): &(u64, u32)| {
            first_page += pages;
            Owner { first_page: first_page - pages, pages, node: NodeId(node), samples: 20, of_node: 20 }
        };
        HugePage {
            process: ProcessId(0),
            address: START + number * HUGE_PAGE,
            is_huge: true,
            objects: vec![ObjectId(0)],
            samples: 40,
            stands_for: 1,
            remote_samples: 10,
            contended_line_samples: 0,
            sharing,
            confidence: Confidence::High,
            p_value: 0.0,
            held: 1.0,
            owners: parts.iter().map(owner).collect(),
            misplaced_pages: 10,
            lies_on: vec![NodeId(0)],
            saving: None,
        }
    }

    #[test]
    fn what_is_never_accessed_before_the_first_huge_page_is_left_by_alignment() {
        assert_eq!(anchor(1000, 0, 0.1), Anchor::FirstHugePage);
        assert_eq!((anchor(1000, 2, 0.1), anchor(50, 0, 0.1)), (Anchor::Start, Anchor::Unknown));
        assert_eq!(anchor(1000, 0, 0.0), Anchor::Unknown, "it begins with a huge page");
    }

    #[test]
    fn borders_are_within_pages_to_be_small_and_between_neighbours_with_owners() {
        let pages = [
            page(0, Sharing::OneOwner, &[(512, 0)]),
            page(1, Sharing::OneOwner, &[(512, 1)]),
            page(2, Sharing::FalselyShared, &[(100, 1), (412, 0)]),
            page(3, Sharing::TrulyShared, &[(512, 1)]),
            page(4, Sharing::FalselyShared, &[(512 - 8, 0), (8, 2)]),
            // Not adjacent to the last one.
            page(7, Sharing::OneOwner, &[(512, 1)]),
        ];
        let at = |page: u64, small: u64| START + page * HUGE_PAGE + small * SMALL_PAGE;
        assert_eq!(changes(&pages.iter().collect::<Vec<_>>()), [at(1, 0), at(2, 100), at(4, 504)]);
        let doubtful = HugePage { confidence: Confidence::Low, ..pages[2].clone() };
        assert_eq!(changes(&[&pages[1], &doubtful]), []);
    }
}
