//! The loop that puts pages and threads of running programs where a policy has them: it observes, has
//! [`placement`] decide, and acts, round by round.
//!
//! - [`Status`] is what it is doing at this moment, for whoever asks.

mod status;

pub use status::{ManagedProcess, Status};
