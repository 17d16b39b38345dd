//! Requested parts of a measurement that are missing.

use machine::chain;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;

/// A requested part that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The part.
    pub what: String,
    /// The reason and the remedy.
    pub why: String,
}

impl Missing {
    /// Creates an entry from texts or errors.
    pub fn new(what: impl fmt::Display, why: impl Into<Box<dyn Error>>) -> Self {
        Self { what: format!("{what}"), why: chain(why.into().as_ref()) }
    }
}
