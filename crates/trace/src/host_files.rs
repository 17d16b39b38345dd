//! What the files of this machine say of addresses, each file read when something in it is first asked for.

use crate::elf::Elf;
use crate::image::{CodeLine, Image, ImageState, Named};
use crate::{About, FileIdentity};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of this machine, as far as they are those that were mapped: for traces that have no symbols with them.
#[derive(Default)]
pub struct HostFiles {
    root: PathBuf,
    began_unix_s: u64,
    opened: RefCell<HashMap<(Arc<str>, FileIdentity), Opened>>,
}

type Opened = Result<Elf, ImageState>;

impl HostFiles {
    /// Those that a recording had mapped.
    pub fn of(about: &About) -> Self {
        Self { root: Path::new("/").to_owned(), began_unix_s: about.began_unix_s, opened: RefCell::default() }
    }

    /// What of a file's code is at an offset, what is inlined first; and its image.
    pub fn code<T>(
        &self,
        path: &Arc<str>,
        file: &FileIdentity,
        offset: u64,
        take: impl FnOnce(&Image, &[CodeLine]) -> T,
    ) -> Option<T> {
        self.look(path, file, |elf| {
            let address = elf.image.address_of_offset(offset, true)?;
            Some(take(&elf.image, &elf.code(address)))
        })
    }

    /// What looks for data of a file gets its image, and what tells the variable at an address.
    pub fn data<T>(
        &self,
        path: &Arc<str>,
        file: &FileIdentity,
        look: impl FnOnce(&Image, &dyn Fn(u64) -> Option<Named>) -> Option<T>,
    ) -> Option<T> {
        self.look(path, file, |elf| look(&elf.image, &|address| elf.variable(address).cloned()))
    }

    /// Each file that was asked for, and whether it could be read.
    pub fn states(&self) -> Vec<(Arc<str>, ImageState)> {
        let state = |opened: &Opened| opened.as_ref().map_or_else(|state| *state, |_| ImageState::Read);
        let mut states: Vec<_> =
            self.opened.borrow().iter().map(|((path, _), opened)| (path.clone(), state(opened))).collect();
        states.sort_by(|(a, _), (b, _)| a.cmp(b));
        states
    }

    fn look<T>(&self, path: &Arc<str>, file: &FileIdentity, look: impl FnOnce(&Elf) -> Option<T>) -> Option<T> {
        let mut opened = self.opened.borrow_mut();
        let open = || Elf::open(&self.root, path, file, self.began_unix_s);
        let elf = opened.entry((path.clone(), file.clone())).or_insert_with(open);
        elf.as_ref().ok().and_then(look)
    }
}
