//! Why objects cannot be recorded.

use std::io;
use std::path::PathBuf;

/// Why objects cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The folder could not be created.
    #[error("cannot create a folder for the objects of programs in {}", place.display())]
    Folder {
        /// The parent folder.
        place: PathBuf,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// The library was not found.
    #[error("there is no {library}: searched for {}; set {variable} to its path",
        places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "))]
    NoLibrary {
        /// Its file name.
        library: &'static str,
        /// The environment variable that can have its path.
        variable: &'static str,
        /// The paths searched.
        places: Vec<PathBuf>,
    },
    /// The library's path cannot be in `LD_PRELOAD`, and a link to it could not be created.
    #[error("cannot load {}: its path has a space, colon or dollar sign, which LD_PRELOAD cannot have, and no link to it \
        could be created in {}; install nearside elsewhere", library.display(), place.display())]
    Link {
        /// The library.
        library: PathBuf,
        /// The folder for the link.
        place: PathBuf,
        /// The system's error.
        #[source]
        why: io::Error,
    },
    /// The options are out of range.
    #[error(
        "cannot record objects: rings have 64 KiB to 1 GiB, a power of two; threads are 1 to 65536, frames 1 to 48"
    )]
    Options,
    /// The programs' files could not be read.
    #[error("cannot read the objects of programs in {}", place.display())]
    Read {
        /// The folder.
        place: PathBuf,
        /// The system's error.
        #[source]
        why: io::Error,
    },
}
