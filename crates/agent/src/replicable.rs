//! Which pages of files a process may have private copies of: those it maps read-only, that other processes map too,
//! and whose file is not open for writing.

use linux::{Mapping, Pagemap, Process, is_open_for_writing};
use machine::SMALL_PAGE;
use std::time::{Duration, Instant};

/// Mappings are read again after this multiple of the time that reading them took.
const PAUSE_FACTOR: u32 = 500;

/// The mappings of a process whose pages may be copied.
#[derive(Debug, Default)]
pub(crate) struct Replicable {
    /// Ascending.
    mappings: Vec<Known>,
    pagemap: Option<Pagemap>,
    /// When the mappings may be read again.
    next: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    mapping: Mapping,
    /// Whether it was present at the previous read: the dynamic loader maps a program or library piece by piece.
    stayed: bool,
    /// Whether no process has its file open for writing; none until this was first needed.
    unwritten: Option<bool>,
}

impl Replicable {
    /// Reads the mappings again when due. Not called for each page: where reading the clock is a system call, as in the
    /// lab, that would take as long as all else here.
    pub fn refresh(&mut self, process: &Process) {
        if self.next.is_none_or(|next| next <= Instant::now()) {
            self.look(process);
        }
    }

    /// Whether the process may have a copy of the page at an address.
    pub fn contain(&mut self, process: &Process, page: u64) -> bool {
        let Some(known) = self.find(page) else { return false };
        let is_unwritten = || process.mapped_file(&known.mapping).and_then(|file| is_open_for_writing(&file));
        let unwritten = *known.unwritten.get_or_insert_with(|| is_unwritten().is_ok_and(|written| !written));
        unwritten && self.is_shared(process, page)
    }

    /// Reads the mappings again. A mapping that has changed does not count as stable.
    pub fn look(&mut self, process: &Process) {
        let began = Instant::now();
        let before = std::mem::take(&mut self.mappings);
        let was_there = |mapping: &Mapping| {
            let index = before.binary_search_by_key(&mapping.range.start, |known| known.mapping.range.start);
            index.is_ok_and(|index| before[index].mapping == *mapping)
        };
        let mappings = process.mappings().unwrap_or_default().into_iter().filter(Mapping::may_have_copies);
        self.mappings =
            mappings.map(|mapping| Known { stayed: was_there(&mapping), mapping, unwritten: None }).collect();
        self.next = Some(Instant::now() + (began.elapsed() * PAUSE_FACTOR).max(Duration::from_millis(1)));
    }

    fn find(&mut self, page: u64) -> Option<&mut Known> {
        let after = self.mappings.partition_point(|known| known.mapping.range.start <= page);
        let known = self.mappings.get_mut(after.checked_sub(1)?)?;
        (known.stayed && known.mapping.range.contains(&page)).then_some(known)
    }

    /// Whether the page is the file's, and mapped by other processes too.
    fn is_shared(&mut self, process: &Process, page: u64) -> bool {
        let pagemap = match &mut self.pagemap {
            Some(pagemap) => pagemap,
            none => match Pagemap::new(process) {
                Ok(pagemap) => none.insert(pagemap),
                Err(_) => return false,
            },
        };
        let entry = pagemap.read(&(page..page + SMALL_PAGE)).ok().and_then(|mut entries| entries.next());
        entry.is_some_and(|entry| entry.is_present() && entry.is_file_or_shared() && !entry.is_exclusive())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::{FileWords, Pid};
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn a_shared_read_only_page_may_be_copied_once_its_mapping_is_stable() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 2 * SMALL_PAGE as usize]).unwrap();
        let path = file.into_temp_path();
        let open = || std::fs::File::open(&path).unwrap();
        let map = |bytes| FileWords::map(open(), bytes).unwrap();
        // The kernel counts mappings of any process, also of this one: the second page has one.
        let (words, others) = (map(2 * SMALL_PAGE as usize), map(SMALL_PAGE as usize));
        assert_ne!(words.sum() + others.sum(), 0);
        let process = Process::open(Pid(std::process::id())).unwrap();
        let page = words.address();
        let mut replicable = Replicable::default();
        replicable.refresh(&process);
        assert!(!replicable.contain(&process, page), "it was not there before");
        let mut may = |address| {
            replicable.look(&process);
            replicable.contain(&process, address)
        };
        if is_open_for_writing(&open()).is_ok() {
            assert!(may(page));
        }
        assert!(!may(page + SMALL_PAGE), "no other process maps it");
        let heap = Box::new(7);
        assert!(!may(std::ptr::from_ref(&*heap) as u64));
        let _writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!may(page), "it could be written");
    }
}
