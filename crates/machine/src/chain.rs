//! An error and its causes as one text, with the system's answers about files in plain words.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

/// An error and its causes: `message: cause: cause`. Errors of this project print a cause or return it as their source,
/// never both, so nothing is repeated. Use it wherever an error ends as text: in a message, a note, a log or JSON.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let text = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().map_or_else(|| error.to_string(), system_words)
    };
    let texts: Vec<String> = successors(Some(error), |error| (*error).source()).map(text).collect();
    texts.join(": ")
}

/// What the system answered, without its number if the answer is about the file that was named: no C programmer needs
/// to be asked what it means. Other errors, and those that are not the system's, say what they say.
pub fn system_words(error: &io::Error) -> String {
    let words = match (error.raw_os_error(), error.kind()) {
        (None, _) => return error.to_string(),
        (_, ErrorKind::NotFound) => "there is no such file or folder",
        (_, ErrorKind::IsADirectory) => "it is a folder, and a file is needed",
        (_, ErrorKind::NotADirectory) => "a part of its path is a file, and a folder is needed",
        (_, ErrorKind::StorageFull) => "the disk is full",
        (_, ErrorKind::ReadOnlyFilesystem) => "its file system is read-only",
        _ => return error.to_string(),
    };
    words.to_owned()
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
        let expected =
            "cannot simulate: cannot read the machine file /nowhere/my.toml: there is no such file or folder";
        assert_eq!(chain(&Outer(Transparent(missing))), expected);
    }

    #[test]
    fn answers_about_files_are_in_plain_words_and_others_are_the_systems() {
        for (number, words) in [(2, "no such file"), (20, "is a file"), (21, "is a folder"), (28, "disk is full")] {
            let text = system_words(&io::Error::from_raw_os_error(number));
            assert!(text.contains(words) && !text.contains("os error"), "{number}: {text}");
        }
        let refused = io::Error::from_raw_os_error(1);
        assert_eq!(system_words(&refused), refused.to_string());
        let own = io::Error::new(ErrorKind::NotFound, "there is no port");
        assert_eq!(system_words(&own), "there is no port");
    }
}
