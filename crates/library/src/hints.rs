//! Hints to the agents that place this program.

use crate::error::Error;
use linux::{GivenHint, Hint};

/// Gives a hint to `nearside agent` and `nearside place`, until it is dropped, the process ends, or it executes another
/// program. Processes that are forked meanwhile give it too. An agent that may place this process reads it within some
/// rounds; without an agent it has no effect. A request to the agent (`nearside agent place`) and agents that override
/// owners' choices beat it. A home on a node that does not exist is ignored. Needs no privileges.
pub fn hint(hint: Hint) -> Result<GivenHint, Error> {
    GivenHint::new(hint).map_err(|answer| Error::plain(format!("give the hint `{hint}`"), "memfd_create", &answer))
}
