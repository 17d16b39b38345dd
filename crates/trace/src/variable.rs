//! Finds one variable of a program or library by its name.

use crate::catch_panic::catch_panic;
use crate::elf::{Parsed, of_segment, of_symbol, open_elf};
use crate::{FileIdentity, Image, ImageState, MappedFile, Named};
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of a file that is searched, in bytes: its symbols are read into memory.
const MOST_BYTES: u64 = 512 << 20;
/// Maximum number of symbols that are compared.
const MOST_SYMBOLS: usize = 1 << 22;

/// A variable of a file, with what is needed to find it in processes that map the file.
#[derive(Clone, Debug)]
pub struct FileVariable {
    /// The file's segments.
    image: Image,
    variable: Named,
}

impl FileVariable {
    /// Finds a variable by its name, demangled for C++ and Rust, in a file with this inode; `None` if the file has none of
    /// that name, is another file, has more than 512 MiB, or cannot be read.
    pub fn find(path: &Path, inode: u64, name: &str) -> Option<Self> {
        let file = open_elf(path).ok()?;
        let metadata = file.metadata().ok()?;
        if metadata.ino() != inode || metadata.len() > MOST_BYTES {
            return None;
        }
        let shown: Arc<str> = path.to_string_lossy().into();
        let image = Image::new(shown, FileIdentity { build_id: None, inode }, ImageState::Read);
        catch_panic(|| Self::read(&file, image, name)).flatten()
    }

    fn read(file: &File, image: Image, name: &str) -> Option<Self> {
        let parts = ReadCache::new(file);
        let elf: Parsed<'_> = object::File::parse(&parts).ok()?;
        let all = elf.symbols().chain(elf.dynamic_symbols()).take(MOST_SYMBOLS);
        let mut variables = all.filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0);
        // Names of C are as they are written: most need not be demangled.
        let may_be = |symbol: &str| symbol == name || symbol.starts_with('_') || symbol.contains('$');
        let variable = variables.find_map(|symbol| {
            let named = symbol.name().is_ok_and(may_be).then(|| of_symbol(&symbol)).flatten()?;
            (*named.name == *name).then_some(named)
        })?;
        let segments = elf.segments().map(|segment| of_segment(&segment)).collect();
        Some(Self { image: Image { segments, ..image }, variable })
    }

    /// Its addresses in a process that maps the file so.
    pub fn range(&self, mapped: &MappedFile) -> Option<Range<u64>> {
        let start = mapped.start.wrapping_sub(self.image.address(mapped, mapped.start)?);
        let first = start.wrapping_add(self.variable.address);
        Some(first..first.checked_add(self.variable.bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: [u64; 1000] = [7; 1000];

    #[test]
    fn a_variable_is_where_it_is_named() {
        let program = std::env::current_exe().unwrap();
        let inode = std::fs::metadata(&program).unwrap().ino();
        let find = |inode, name: &str| FileVariable::find(&program, inode, name);
        let found = find(inode, "trace::variable::tests::TABLE").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = |line: &&str| line.ends_with(program.to_str().unwrap());
        let mapped = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let (start, end) = words[0].split_once('-').unwrap();
            MappedFile {
                start: hex(start),
                bytes: hex(end) - hex(start),
                offset: hex(words[2]),
                name: words[5].into(),
                file: None,
                executable: words[1].contains('x'),
            }
        };
        let ranges: Vec<_> = maps.lines().filter(own).map(|line| found.range(&mapped(line)).unwrap()).collect();
        let start = TABLE.as_ptr().addr() as u64;
        assert!(
            !ranges.is_empty() && ranges.iter().all(|range| *range == (start..start + 8000)),
            "{ranges:x?} {start:x}"
        );
        assert!(
            find(inode, "no_such_variable").is_none() && find(inode + 1, "trace::variable::tests::TABLE").is_none()
        );
    }
}
