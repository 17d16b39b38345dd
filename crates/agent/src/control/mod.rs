//! The agent's control socket: who may use it, what is asked and answered, and both ends of it.
//!
//! A Unix socket of its owner and a group. A connection carries requests and answers in turn, each a line of JSON:
//! [`Request`] and [`Answer`]. What is too long, too slow, or no request is told and the connection closed; no client
//! can stop the agent or keep others from it for long.

mod client;
mod clients;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use client::{AskError, ask};
pub use protocol::{Answer, Explanation, Request, answer};
pub use server::{Access, ControlError, Listener, Server};
