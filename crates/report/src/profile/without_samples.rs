//! Objects of a trace without samples, ranked by size because accesses are not known.

use profile::{ObjectId, Profile, SiteId};
use std::cmp::Reverse;

/// All objects, largest first, if the trace has no samples at all; otherwise empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WithoutSamples(Vec<ObjectId>);

impl WithoutSamples {
    /// The objects that `is_wanted` selects.
    pub fn new(profile: &Profile, is_wanted: impl Fn(ObjectId) -> bool) -> Self {
        if !profile.is_empty() {
            return Self::default();
        }
        let all = profile.objects().iter().zip((0..).map(ObjectId));
        let mut wanted: Vec<(u64, ObjectId)> =
            all.filter(|(_, id)| is_wanted(*id)).map(|(object, id)| (object.bytes, id)).collect();
        wanted.sort_by_key(|(bytes, id)| (Reverse(*bytes), *id));
        Self(wanted.into_iter().map(|(_, id)| id).collect())
    }

    /// The objects of one site.
    pub fn of_site(profile: &Profile, site: SiteId) -> Self {
        Self::new(profile, |object| profile.site_of(object) == Some(site))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.0.iter().copied()
    }
}
