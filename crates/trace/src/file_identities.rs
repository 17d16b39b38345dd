//! Identities of mapped files. The kernel and programs report mappings by path, and a path may name another file
//! later.

use crate::catch_panic::catch_panic;
use crate::elf::{is_elf, open_regular};
use crate::{Event, FileIdentity, What};
use object::{Object, ReadCache};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Identities of mapped files. Each file is read once.
#[derive(Debug, Default)]
pub struct FileIdentities {
    known: HashMap<(Arc<str>, u64, i64), FileIdentity>,
}

impl FileIdentities {
    /// Adds the identity of the mapped file if its source did not give one. Leaves the event unchanged if the path is
    /// not a regular file or cannot be read.
    pub fn complete(&mut self, event: &mut Event) {
        let What::Mapped { name, file: Some(file), .. } = &mut event.what else { return };
        if file.build_id.is_none()
            && let Some(found) = self.of(name)
            && [0, found.inode].contains(&file.inode)
        {
            *file = found;
        }
    }

    /// The identity of the file at an absolute path, as it is now; none if it is not a regular file or cannot be read.
    pub fn of(&mut self, name: &Arc<str>) -> Option<FileIdentity> {
        let path = Path::new(&**name);
        let metadata = path.metadata().ok().filter(|metadata| path.is_absolute() && metadata.is_file())?;
        let key = (name.clone(), metadata.ino(), metadata.mtime());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        // The path may name another file by now.
        let file = open_regular(path).ok()?;
        let build_id = if is_elf(&file).unwrap_or(false) { build_id(file) } else { None };
        let identity = FileIdentity { build_id, inode: metadata.ino() };
        self.known.insert(key, identity.clone());
        Some(identity)
    }
}

/// Reads the build ID from the file's notes.
fn build_id(file: File) -> Option<Arc<[u8]>> {
    catch_panic(|| {
        let parts = ReadCache::new(file);
        let elf = object::File::parse(&parts).ok()?;
        elf.build_id().ok().flatten().filter(|id| id.len() <= 20).map(Arc::from)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{Pid, Tid};

    fn mapped(name: &str, inode: u64) -> Event {
        let what = What::Mapped {
            start: 0x1000,
            bytes: 0x1000,
            offset: 0,
            name: name.into(),
            file: Some(FileIdentity { build_id: None, inode }),
            executable: true,
        };
        Event { time_ns: 1, pid: Pid(1), tid: Tid(1), cpu: None, what }
    }

    fn completed(name: &str, inode: u64) -> FileIdentity {
        let mut event = mapped(name, inode);
        FileIdentities::default().complete(&mut event);
        let What::Mapped { file: Some(file), .. } = event.what else { panic!("{event:?}") };
        file
    }

    #[test]
    fn a_mapped_file_is_known_by_what_is_in_it() {
        let program = std::env::current_exe().unwrap();
        let (name, inode) = (program.to_str().unwrap(), program.metadata().unwrap().ino());
        assert_eq!(completed(name, 0).inode, inode);
        assert_eq!(completed(name, inode), completed(name, 0));
        let other = FileIdentity { build_id: None, inode: inode + 1 };
        assert_eq!(completed(name, inode + 1), other, "another file has its name now");
        for name in ["/dev/null", "relative", "/no/such/file", "[vdso]"] {
            assert_eq!(completed(name, 0), FileIdentity { build_id: None, inode: 0 }, "{name}");
        }
        let shell = completed("/bin/sh", 0);
        assert!(shell.build_id.is_some_and(|id| !id.is_empty()));
    }
}
