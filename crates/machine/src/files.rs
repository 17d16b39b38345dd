//! The files of a system: below a folder, or in an archive that is read without unpacking it.

use crate::bounded::{self, TooLong};
use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{EntryType, GnuHeader, PaxExtensions};

/// Limit of an archive's length when it is unpacked. A saved /sys of 8,192 CPUs has about a million files, each padded
/// to a page.
const MOST_UNPACKED: u64 = 8 << 30;
/// Files with more text than this are no settings of the kernel, and are skipped.
const MOST_IN_FILE: u64 = 64 << 10;
/// Memory of the decoder of xz, KiB: that of `xz -9` with its dictionary of 64 MiB.
const MOST_XZ_KIB: u32 = 96 << 10;
/// More symbolic links in one path than Linux follows.
const MOST_LINKS: usize = 40;

/// Where the files of a system are.
#[derive(Debug)]
pub(crate) enum Files {
    /// Below this folder.
    Folder(PathBuf),
    /// In an archive, below a folder of it.
    Archive {
        /// The archive.
        archive: Archive,
        /// The folder in it.
        root: PathBuf,
    },
}

impl Files {
    /// The text of a file.
    pub fn text(&self, path: &str) -> io::Result<String> {
        match self {
            Self::Folder(root) => bounded::text(root.join(path)),
            Self::Archive { archive, root } => archive.text(&root.join(path)),
        }
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, path: &str) -> bool {
        match self {
            Self::Folder(root) => root.join(path).exists(),
            Self::Archive { archive, root } => archive.has(&root.join(path)),
        }
    }

    /// The names in a folder; none if it cannot be read.
    pub fn names(&self, folder: &str) -> Vec<String> {
        match self {
            Self::Folder(root) => {
                let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Self::Archive { archive, root } => archive.names(&root.join(folder)),
        }
    }
}

/// The small text files and the links of an archive.
#[derive(Debug, Default)]
pub struct Archive(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
enum Entry {
    File(String),
    /// The target, from the top of the archive.
    Link(PathBuf),
}

impl Archive {
    /// Whether a file begins as an archive that [`Archive::read`] knows does: tar, alone or packed by gzip, bzip2 or
    /// xz.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&[0x1f, 0x8b])
            || bytes.starts_with(b"BZh")
            || bytes.starts_with(b"\xfd7zXZ\0")
            || bytes.get(257..262) == Some(b"ustar")
    }

    /// Reads an archive into memory.
    pub fn read(bytes: &[u8]) -> io::Result<Self> {
        let unpacked: Box<dyn Read + '_> = match bytes {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(bytes)),
            [b'B', b'Z', b'h', ..] => Box::new(MultiBzDecoder::new(bytes)),
            [0xfd, b'7', ..] => Box::new(XzReader::new_mem_limit(bytes, true, MOST_XZ_KIB)),
            _ => Box::new(bytes),
        };
        Self::read_tar(unpacked, MOST_UNPACKED)
    }

    fn read_tar(unpacked: impl Read, most: u64) -> io::Result<Self> {
        let mut archive = Self::default();
        let mut kept = 0;
        let mut tar = tar::Archive::new(Limited { inner: unpacked, left: most, most });
        let mut long = LongNames::default();
        // Raw, as tar would read names of any length into memory.
        for entry in tar.entries()?.raw(true) {
            let mut entry = entry?;
            if long.read(&mut entry)? {
                continue;
            }
            let LongNames { path, target } = std::mem::take(&mut long);
            let Some(path) = normal(&path.map_or_else(|| entry.path().map(Cow::into_owned), Ok)?) else { continue };
            let target = || match target {
                Some(target) => Ok(Some(target)),
                None => entry.link_name().map(|target| target.map(Cow::into_owned)),
            };
            let link = |target: &Path| path.parent().and_then(|folder| normal(&folder.join(target)));
            let content = match entry.header().entry_type() {
                EntryType::Symlink => target()?.and_then(|target| link(&target)).map(Entry::Link),
                EntryType::Link => target()?.and_then(|target| normal(&target)).map(Entry::Link),
                EntryType::Regular => text_of(&mut entry)?.map(Entry::File),
                _ => None,
            };
            let Some(content) = content else { continue };
            kept +=
                path.as_os_str().len() as u64 + if let Entry::File(text) = &content { text.len() as u64 } else { 0 };
            if kept > bounded::MOST_BYTES {
                return Err(TooLong(bounded::MOST_BYTES).into());
            }
            archive.0.insert(path, content);
        }
        Ok(archive)
    }

    /// The folder that has `devices/system`, as /sys does: the first in the order of names.
    pub fn sysfs(&self) -> Option<PathBuf> {
        self.0.keys().find_map(|path| {
            let root = path.ancestors().find(|folder| folder.ends_with("devices/system"))?;
            root.ancestors().nth(2).map(Path::to_owned)
        })
    }

    /// The path without links in it.
    fn resolved(&self, path: &Path) -> Option<PathBuf> {
        let mut path = normal(path)?;
        for _ in 0..MOST_LINKS {
            let parts: Vec<&Path> = path.ancestors().collect();
            let link = parts.into_iter().rev().find_map(|part| match self.0.get(part)? {
                Entry::Link(target) => Some((part, target)),
                Entry::File(_) => None,
            });
            let Some((part, target)) = link else { return Some(path) };
            path = target.join(path.strip_prefix(part).ok()?);
        }
        None
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        match self.resolved(path).and_then(|path| self.0.get(&path)) {
            Some(Entry::File(text)) => Ok(text.clone()),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    /// What is in a folder, with its path from there.
    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> {
        let all = self.0.range(folder.to_owned()..).map(|(path, _)| path);
        all.map_while(move |path| path.strip_prefix(folder).ok()).filter(|path| !path.as_os_str().is_empty())
    }

    fn has(&self, path: &Path) -> bool {
        let Some(path) = self.resolved(path) else { return false };
        self.0.contains_key(&path) || self.below(&path).next().is_some()
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let Some(folder) = self.resolved(folder) else { return Vec::new() };
        let first = |path: &Path| path.iter().next().and_then(|name| name.to_str().map(str::to_owned));
        let mut names: Vec<String> = self.below(&folder).filter_map(first).collect();
        names.dedup();
        names
    }
}

/// Names of the next entry that are too long for its header.
#[derive(Default)]
struct LongNames {
    path: Option<PathBuf>,
    target: Option<PathBuf>,
}

impl LongNames {
    /// Reads an entry if it has such names, or nothing that concerns one file.
    fn read(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
        let kind = entry.header().entry_type();
        let name = |bytes: &[u8]| Some(PathBuf::from(OsStr::from_bytes(bytes.strip_suffix(b"\0").unwrap_or(bytes))));
        match kind {
            EntryType::GNULongName => self.path = name(&short(entry)?),
            EntryType::GNULongLink => self.target = name(&short(entry)?),
            EntryType::XHeader => {
                let bytes = short(entry)?;
                // Values with line ends, such as attributes, are no records for this reader.
                for record in PaxExtensions::new(&bytes).flatten() {
                    match record.key_bytes() {
                        b"path" => self.path = name(record.value_bytes()),
                        b"linkpath" => self.target = name(record.value_bytes()),
                        // What follows would be read from its middle.
                        b"size" => return Err(refused("a file of more than 8 GiB")),
                        _ => {}
                    }
                }
            }
            EntryType::XGlobalHeader => {}
            EntryType::GNUSparse if entry.header().as_gnu().is_some_and(GnuHeader::is_extended) => {
                return Err(refused("a sparse file of many parts, as of `tar --sparse`"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("it has {what}: save only /sys/devices/system, without it"))
}

/// The bytes of an entry that has names.
fn short(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    entry.take(MOST_IN_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_IN_FILE { Err(TooLong(MOST_IN_FILE).into()) } else { Ok(bytes) }
}

/// A path from the top of the archive, without `.` and `..`. `None` for one that leaves the archive.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(normal)
}

/// The text of a file of an archive without the zeros that tar fills kernel files with, which are shorter than they
/// claim to be. `None` if it is not text, or long.
fn text_of(entry: &mut impl Read) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    entry.take(MOST_IN_FILE + 1).read_to_end(&mut bytes)?;
    let short = bytes.len() as u64 <= MOST_IN_FILE;
    Ok(String::from_utf8(bytes).ok().filter(|_| short).map(|text| text.trim_end_matches('\0').to_owned()))
}

/// A reader that fails beyond its limit instead of ending there, as tar would take the end for that of the archive.
struct Limited<R> {
    inner: R,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or(TooLong(self.most))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tar(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn file(builder: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, path, bytes).unwrap();
    }

    fn link(builder: &mut tar::Builder<Vec<u8>>, path: &str, target: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, path, target).unwrap();
    }

    #[test]
    fn files_links_and_names_of_an_archive() {
        let bytes = tar(|tar| {
            file(tar, "m/sys/devices/system/cpu/cpu0/online", b"1\n\0\0\0");
            file(tar, "m/sys/devices/system/cpu/binary", b"\xff\xfe");
            file(tar, "m/sys/devices/system/node/online", b"0");
            link(tar, "m/sys/devices/system/node/node0/cpu0", "../../cpu/cpu0");
            link(tar, "m/sys/devices/system/node/out", "../../../../../../etc");
            link(tar, "m/sys/devices/system/node/circle", "circle");
            file(tar, "m/proc/meminfo", b"MemTotal: 1 kB");
        });
        assert!(Archive::is_one(&bytes));
        let archive = Archive::read(&bytes).unwrap();
        let root = archive.sysfs().unwrap();
        assert_eq!(root, Path::new("m/sys"));
        let files = Files::Archive { archive, root };
        assert_eq!(files.text("devices/system/node/node0/cpu0/online").unwrap(), "1\n");
        assert_eq!(files.text("../proc/meminfo").unwrap(), "MemTotal: 1 kB");
        assert!(files.has("devices/system/node/node0") && files.has("devices/system/node/node0/cpu0"));
        assert_eq!(files.names("devices/system/node/node0/cpu0"), ["online"]);
        assert_eq!(files.names("devices/system/node"), ["circle", "node0", "online"]);
        for missing in ["devices/system/cpu/binary", "devices/system/node/out/passwd", "devices/system/node/circle"] {
            assert_eq!(files.text(missing).unwrap_err().kind(), ErrorKind::NotFound, "{missing}");
        }
    }

    #[test]
    fn what_is_unpacked_has_a_limit() {
        let bytes = tar(|tar| file(tar, "long", &vec![b'x'; 100_000]));
        assert!(Archive::read_tar(&bytes[..], 1 << 20).unwrap().0.is_empty(), "too long for a setting");
        assert_eq!(Archive::read_tar(&bytes[..], 50_000).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn long_names_are_read_and_endless_ones_refused() {
        let (folder, target) = ("long/".repeat(60), "target/".repeat(30));
        let path = format!("{folder}file");
        let archived = |archive: &Archive| {
            assert_eq!(archive.text(Path::new(&path)).unwrap(), "1");
            assert!(matches!(&archive.0[Path::new("link")], Entry::Link(to) if *to == Path::new(&target)));
        };
        archived(&Archive::read(&tar(|tar| (file(tar, &path, b"1"), link(tar, "link", &target)).1)).unwrap());
        let pax = tar(|tar| {
            // A value with a line end is not understood, and does not matter.
            tar.append_pax_extensions([("path", path.as_bytes()), ("SCHILY.xattr.user.a", b"1\n2")]).unwrap();
            file(tar, "short", b"1");
            tar.append_pax_extensions([("linkpath", target.as_bytes()), ("mtime", b"1")]).unwrap();
            link(tar, "link", "short");
        });
        archived(&Archive::read(&pax).unwrap());
        for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
            let bytes = tar(|tar| {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(1 << 20);
                tar.append_data(&mut header, "name", &vec![b'a'; 1 << 20][..]).unwrap();
            });
            assert_eq!(Archive::read(&bytes).unwrap_err().kind(), ErrorKind::FileTooLarge, "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000), magic in 0..4_usize) {
            let magic: &[u8] = [&b""[..], &[0x1f, 0x8b, 8], b"BZh9", b"\xfd7zXZ\0"][magic];
            let _ = Archive::read(&[magic, &bytes].concat());
        }
    }
}
