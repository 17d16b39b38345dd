//! What another user of the machine tries against what root runs, each in a loop: the promises of SECURITY.md, attacked.
//! The tests run each some times, `make torture` runs each 2,000 times.
//!
//! Attackers are threads with another user's credentials: as fast as a process can be, and without one's start.

mod ground;
mod journal_folder;
mod log_file;
mod mapped_file;
mod other_user;
mod rings_folder;
mod silent_clients;
mod socket_path;

pub use ground::{Agent, Ground, Start, load_user};
pub use other_user::{OTHER, while_another_user};

use std::io;

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name, after the finding of the review that it repeats.
    pub name: &'static str,
    /// What is tried.
    pub tries: &'static str,
    /// Tries it this many times.
    pub run: fn(&Ground, usize) -> io::Result<Tally>,
}

/// The result of an attack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often it was tried.
    pub tried: usize,
    /// What the attacker reached, a sentence each.
    pub won: Vec<String>,
    /// Tries in which the attacked program did its work all the same: an attack that always keeps it from working shows
    /// less.
    pub worked: usize,
}

/// All of them.
pub const ATTACKS: [Attack; 6] = [
    Attack {
        name: "D1 journal folder",
        tries: "exchange the journal's folder while an agent starts",
        run: journal_folder::run,
    },
    Attack {
        name: "D2 socket path",
        tries: "put a link into the socket's place while an agent starts",
        run: socket_path::run,
    },
    Attack { name: "D3 rings", tries: "report objects of other processes to root's recording", run: rings_folder::run },
    Attack {
        name: "D4 silent clients",
        tries: "keep root from the agent with silent connections",
        run: silent_clients::run,
    },
    Attack { name: "D5 log file", tries: "make the log a pipe or a link while an agent starts", run: log_file::run },
    Attack {
        name: "D16 mapped file",
        tries: "exchange a mapped file by a pipe while it is opened",
        run: mapped_file::run,
    },
];

/// An error of this module's own.
fn failed(why: impl Into<String>) -> io::Error {
    io::Error::other(why.into())
}
