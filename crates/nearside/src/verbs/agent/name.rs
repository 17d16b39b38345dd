//! User and group names resolved to ids.

use uzers::{get_group_by_name, get_user_by_name};

/// The id of a user, given by name or number.
pub fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| get_user_by_name(name).map(|user| user.uid()))
}

/// The id of a group, given by name or number.
pub fn group(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| get_group_by_name(name).map(|group| group.gid()))
}
