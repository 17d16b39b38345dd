//! Names of users and groups as numbers.

use uzers::{get_group_by_name, get_user_by_name};

/// The number of a user, from its name or its number.
pub fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| get_user_by_name(name).map(|user| user.uid()))
}

/// Likewise of a group.
pub fn group(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| get_group_by_name(name).map(|group| group.gid()))
}
