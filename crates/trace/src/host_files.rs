//! Symbols from the files of this machine. Each file is read when it is first needed.

use crate::elf::Elf;
use crate::image::{CodeLine, Image, ImageState, Named};
use crate::memory_limit::MemoryLimit;
use crate::{About, FileIdentity};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// The files of this machine, as far as they are the mapped ones: for traces that carry no symbols.
pub struct HostFiles {
    root: PathBuf,
    began_unix_s: u64,
    opened: RefCell<HashMap<(Arc<str>, FileIdentity), Opened>>,
    memory: Rc<MemoryLimit>,
}

type Opened = Result<Elf, ImageState>;

impl HostFiles {
    /// The files mapped by a recording.
    pub fn new(about: &About) -> Self {
        let memory = Rc::new(MemoryLimit::new());
        Self { root: Path::new("/").to_owned(), began_unix_s: about.began_unix_s, opened: RefCell::default(), memory }
    }

    /// Looks up the code at an offset of a file, and passes the image and the code lines, innermost inlined function
    /// first, to `take`.
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

    /// Passes the image of a file, and a function that finds the variable at an address, to `look`.
    pub fn data<T>(
        &self,
        path: &Arc<str>,
        file: &FileIdentity,
        look: impl FnOnce(&Image, &dyn Fn(u64) -> Option<Named>) -> Option<T>,
    ) -> Option<T> {
        self.look(path, file, |elf| look(&elf.image, &|address| elf.variable(address).cloned()))
    }

    /// The files looked up so far, and whether each could be read.
    pub fn states(&self) -> Vec<(Arc<str>, ImageState)> {
        let state = |opened: &Opened| opened.as_ref().map_or_else(|state| *state, Elf::state);
        let mut states: Vec<_> =
            self.opened.borrow().iter().map(|((path, _), opened)| (path.clone(), state(opened))).collect();
        states.sort_by(|(a, _), (b, _)| a.cmp(b));
        states
    }

    fn look<T>(&self, path: &Arc<str>, file: &FileIdentity, look: impl FnOnce(&Elf) -> Option<T>) -> Option<T> {
        let mut opened = self.opened.borrow_mut();
        let open = || Elf::open(&self.root, path, file, self.began_unix_s, &self.memory);
        let elf = opened.entry((path.clone(), file.clone())).or_insert_with(open);
        elf.as_ref().ok().and_then(look)
    }
}
