//! The agent's control socket: access control, protocol, and both ends.
//!
//! A Unix socket with an owner and a group. A connection carries requests and answers in turn, each a line of JSON:
//! [`Request`] and [`Answer`]. Requests that are too long, too slow or invalid are refused with the reason, and the
//! connection is closed. No client can stop the agent or block other clients for long.

mod client;
mod clients;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use client::{AskError, ask};
pub use protocol::{Answer, Explanation, Request, answer};
pub use server::{Access, ControlError, Listener, Server};
pub(crate) use server::{accept, no_slot};
