//! An error and its causes as one text.

use std::error::Error;
use std::iter::successors;

/// An error and its causes: `message: cause: cause`. Errors of this project print a cause or return it as their source,
/// never both, so nothing is repeated. Use it wherever an error ends as text: in a message, a note, a log or JSON.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = successors(Some(error), |error| (*error).source()).map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, MachineError};
    use std::io;
    use std::path::Path;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot simulate")]
    struct Outer(#[source] Transparent);

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Transparent(MachineError);

    #[test]
    fn causes_follow_their_error_once() {
        let missing = Machine::load(Path::new("/nowhere/my.toml")).expect_err("there is no such file");
        let system = io::Error::from_raw_os_error(2).to_string();
        let expected = format!("cannot simulate: cannot read the machine file /nowhere/my.toml: {system}");
        assert_eq!(chain(&Outer(Transparent(missing))), expected);
    }
}
