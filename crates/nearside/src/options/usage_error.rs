//! Errors of usage that the command line's grammar cannot detect.

use std::error::Error;

/// Makes nearside exit with code 2.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct UsageError(Box<dyn Error>);

impl UsageError {
    /// The message, as an error of any kind.
    pub fn boxed(why: impl Into<Box<dyn Error>>) -> Box<dyn Error> {
        Box::new(Self(why.into()))
    }
}
