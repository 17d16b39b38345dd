//! Objects of a trace that has no samples: nothing tells which of them matter but how large they are.

use profile::{ObjectId, Profile, SiteId};
use std::cmp::Reverse;

/// The objects that nothing was seen accessing as no access was seen at all, the largest first; none of a trace that has
/// samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen(Vec<ObjectId>);

impl Unseen {
    /// Those of a trace that this holds for.
    pub fn of(profile: &Profile, is_wanted: impl Fn(ObjectId) -> bool) -> Self {
        if !profile.is_empty() {
            return Self::default();
        }
        let all = profile.objects().iter().zip((0..).map(ObjectId));
        let mut wanted: Vec<(u64, ObjectId)> =
            all.filter(|(_, id)| is_wanted(*id)).map(|(object, id)| (object.bytes, id)).collect();
        wanted.sort_by_key(|(bytes, id)| (Reverse(*bytes), *id));
        Self(wanted.into_iter().map(|(_, id)| id).collect())
    }

    /// Those of one site.
    pub fn of_site(profile: &Profile, site: SiteId) -> Self {
        Self::of(profile, |object| profile.site_of(object) == Some(site))
    }

    /// None of them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.0.iter().copied()
    }
}
