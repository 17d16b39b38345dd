//! Huge pages by the object that is accessed most in them, and what curing the falsely shared ones would give.

use super::{HugePage, Saving, Sharing};
use crate::gain::{Gain, Placement, gain};
use crate::ids::{ObjectId, ProcessId};
use crate::profile::{Access, Profile};
use crate::view::View;
use machine::HUGE_PAGE;
use queueing::Distances;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a cure takes, as measured in the lab with Linux 6.12, ns: to split a huge page, to move a small page, and to
/// mark a mapping's part so that the kernel does not join it again.
const SPLIT_NS: f64 = 350_000.0;
const MOVE_NS: f64 = 5_000.0;
const MARK_NS: f64 = 40_000.0;
/// The least speedup that is worth a cure.
const WORTH: f64 = 1.01;

/// The huge pages of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectHugePages {
    /// The object with the most samples in them.
    pub object: ObjectId,
    /// Their number, and how they are shared.
    pub huge_pages: SharingCounts,
    /// Small pages of the falsely shared ones that lie on another node than their owner's.
    pub misplaced_pages: u64,
    /// What small pages would save in the falsely shared ones; none if the machine's latencies are not known.
    pub saving: Option<Saving>,
    /// The expected gain of that; none without such pages, or if latencies are not known.
    pub gain: Option<Gain>,
    /// What the cure takes, ns.
    pub cost_ns: f64,
    /// After what time like the recorded one the saving exceeds the cost, s; none if it never does.
    pub pays_after_s: Option<f64>,
}

/// Numbers of huge pages by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of Sharing")]
pub struct SharingCounts {
    pub all: u64,
    pub falsely_shared: u64,
    pub truly_shared: u64,
    /// One owner, on another node than the page.
    pub remote_owner: u64,
    /// One owner, on the page's node.
    pub local_owner: u64,
    pub mixed: u64,
    pub drifting: u64,
    pub padding_needed: u64,
    pub unknown: u64,
}

impl SharingCounts {
    fn add(&mut self, page: &HugePage) {
        self.all += 1;
        *match page.sharing {
            Sharing::Unknown => &mut self.unknown,
            Sharing::OneOwner if page.remote_owner().is_some() => &mut self.remote_owner,
            Sharing::OneOwner => &mut self.local_owner,
            Sharing::FalselyShared => &mut self.falsely_shared,
            Sharing::TrulyShared => &mut self.truly_shared,
            Sharing::Mixed => &mut self.mixed,
            Sharing::Drifting => &mut self.drifting,
            Sharing::PaddingNeeded => &mut self.padding_needed,
        } += 1;
    }

    /// All together.
    pub fn sum<'a>(counts: impl IntoIterator<Item = &'a Self>) -> Self {
        counts.into_iter().fold(Self::default(), |sum, next| Self {
            all: sum.all + next.all,
            falsely_shared: sum.falsely_shared + next.falsely_shared,
            truly_shared: sum.truly_shared + next.truly_shared,
            remote_owner: sum.remote_owner + next.remote_owner,
            local_owner: sum.local_owner + next.local_owner,
            mixed: sum.mixed + next.mixed,
            drifting: sum.drifting + next.drifting,
            padding_needed: sum.padding_needed + next.padding_needed,
            unknown: sum.unknown + next.unknown,
        })
    }
}

impl ObjectHugePages {
    /// Whether a cure is worthwhile: it surely saves time, and as far as known at least 1 %.
    pub fn is_worth_a_cure(&self) -> bool {
        self.huge_pages.falsely_shared > 0
            && self.saving.is_none_or(|saving| saving.low_ns > 0.0)
            && self.gain.is_none_or(|gain| gain.speedup >= WORTH)
    }
}

impl View<'_> {
    /// The huge pages among these, by object, those with the most to save first.
    pub fn huge_pages_by_object(&self, pages: &[HugePage]) -> Vec<ObjectHugePages> {
        let mut objects: BTreeMap<ObjectId, Vec<&HugePage>> = BTreeMap::new();
        for page in pages.iter().filter(|page| page.is_huge) {
            if let Some(&object) = page.objects.first() {
                objects.entry(object).or_default().push(page);
            }
        }
        let mut rows: Vec<_> = objects.into_iter().map(|(object, pages)| self.object_row(object, &pages)).collect();
        let saved = |row: &ObjectHugePages| row.saving.map_or(0.0, |saving| saving.ns);
        rows.sort_by(|a, b| {
            let falsely = |row: &ObjectHugePages| row.huge_pages.falsely_shared;
            saved(b).total_cmp(&saved(a)).then(falsely(b).cmp(&falsely(a))).then(a.object.cmp(&b.object))
        });
        rows
    }

    fn object_row(&self, object: ObjectId, pages: &[&HugePage]) -> ObjectHugePages {
        let mut counts = SharingCounts::default();
        for page in pages {
            counts.add(page);
        }
        let falsely: Vec<&HugePage> = pages.iter().copied().filter(|page| page.is_falsely_shared()).collect();
        let savings: Option<Vec<Saving>> = falsely.iter().map(|page| page.saving).collect();
        let saving = savings.map(|all| all.into_iter().fold(Saving::default(), Saving::plus));
        let misplaced_pages = falsely.iter().map(|page| page.misplaced_pages).sum();
        let cost_ns = falsely.len() as f64 * (SPLIT_NS + MARK_NS) + misplaced_pages as f64 * MOVE_NS;
        let span_ns = self.span_ns().map_or(0, |(first, last)| last - first) as f64;
        let saved_ns = saving.map(|saving| saving.ns).filter(|ns| *ns > 0.0 && !falsely.is_empty());
        ObjectHugePages {
            object,
            huge_pages: counts,
            misplaced_pages,
            saving,
            gain: if falsely.is_empty() { None } else { self.gain_of_splitting(&falsely) },
            cost_ns,
            pays_after_s: saved_ns.map(|saved_ns| cost_ns / saved_ns * span_ns / 1e9),
        }
    }

    /// The expected gain if the parts of these huge pages lay with their owners.
    pub fn gain_of_splitting(&self, pages: &[&HugePage]) -> Option<Gain> {
        let blocks: BTreeSet<(ProcessId, u64)> =
            pages.iter().map(|page| (page.process, page.address / HUGE_PAGE)).collect();
        let process = |access: &Access| self.profile().threads()[access.thread.index()].process;
        let flow = self.flow_where(|access| blocks.contains(&(process(access), access.address / HUGE_PAGE)));
        let distances = Distances::new(self.profile().machine());
        gain(self, &flow, &distances, owned(self.profile(), pages.iter().copied()), &Placement::Local)
    }
}

/// Whether an access is to a part of these huge pages that its node owns; what others use of it stays where it is.
pub(crate) fn owned<'a>(
    profile: &'a Profile,
    pages: impl Iterator<Item = &'a HugePage>,
) -> impl Fn(&Access) -> bool + 'a {
    let pages: FxHashMap<(ProcessId, u64), &HugePage> =
        pages.map(|page| ((page.process, page.address / HUGE_PAGE), page)).collect();
    move |access| {
        let process = profile.threads()[access.thread.index()].process;
        let page = pages.get(&(process, access.address / HUGE_PAGE));
        page.is_some_and(|page| page.owner_of(access.address) == access.from)
    }
}
