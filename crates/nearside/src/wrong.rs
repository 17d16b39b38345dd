//! What was asked wrongly, in ways that the command line's own grammar cannot tell.

use std::error::Error;

/// Ends nearside with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(Box<dyn Error>);

impl Wrong {
    /// What is wrong, as an error of any kind.
    pub fn because(why: impl Into<Box<dyn Error>>) -> Box<dyn Error> {
        Box::new(Self(why.into()))
    }
}
