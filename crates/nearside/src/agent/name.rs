//! Names of users and groups as numbers.

use std::error::Error;
use uzers::{get_group_by_name, get_user_by_name};

/// The number of a user, from its name or its number.
pub fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| get_user_by_name(name).map(|user| user.uid()))
}

/// What the configuration names, or this.
pub fn owner(name: Option<&str>, default: u32) -> Result<u32, Box<dyn Error>> {
    let known = |name| user(name).ok_or_else(|| format!("there is no user `{name}`, who is to own the socket"));
    Ok(name.map_or(Ok(default), known)?)
}

/// Likewise of a group.
pub fn group(name: Option<&str>, default: u32) -> Result<u32, Box<dyn Error>> {
    let number = |name: &str| name.parse().ok().or_else(|| get_group_by_name(name).map(|group| group.gid()));
    let known = |name| number(name).ok_or_else(|| format!("there is no group `{name}`, which is to use the socket"));
    Ok(name.map_or(Ok(default), known)?)
}
