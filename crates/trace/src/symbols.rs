//! Symbols of the mapped files, for the addresses that occurred.

use crate::address_space::{AddressSpaces, MappedFile};
use crate::elf::Elf;
use crate::image::Image;
use crate::memory_limit::MemoryLimit;
use crate::{FileIdentity, Record, StackId, Stacks, What};
use machine::Pid;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Symbols of the mapped files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    images: Vec<Image>,
    by_file: HashMap<(Arc<str>, FileIdentity), usize>,
}

impl Symbols {
    /// Symbols of these files.
    pub fn new(images: Vec<Image>) -> Self {
        let key = |(number, image): (usize, &Image)| ((image.path.clone(), image.file.clone()), number);
        let by_file = images.iter().enumerate().map(key).collect();
        Self { images, by_file }
    }

    /// All files.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// The file of a mapping.
    pub fn image(&self, mapped: &MappedFile) -> Option<&Image> {
        self.image_of_file(&mapped.name, mapped.file.as_ref()?)
    }

    /// The file with this path and identity.
    pub fn image_of_file(&self, path: &Arc<str>, file: &FileIdentity) -> Option<&Image> {
        self.images.get(*self.by_file.get(&(path.clone(), file.clone()))?)
    }

    /// The file of a mapping, and an address of the process converted to one of the file.
    pub fn locate(&self, mapped: &MappedFile, address: u64) -> Option<(&Image, u64)> {
        let image = self.image(mapped)?;
        Some((image, image.address(mapped, address)?))
    }
}

/// Addresses that occurred in mapped files, collected record by record.
#[derive(Debug, Default)]
pub(crate) struct Occurrences {
    spaces: AddressSpaces,
    /// Index by the mapping's address in memory, which is stable while it is kept here.
    number: HashMap<usize, usize>,
    mapped: Vec<Occurred>,
    seen_code: HashSet<(Pid, u64)>,
    seen_stacks: HashSet<(Pid, StackId)>,
}

/// A mapping, and the addresses that occurred in it.
type Occurred = (Arc<MappedFile>, Addresses);

/// The addresses that occurred in a mapping.
#[derive(Clone, Debug, Default)]
struct Addresses {
    instructions: BTreeSet<u64>,
    returns: BTreeSet<u64>,
    data: BTreeSet<u64>,
}

impl Occurrences {
    /// Takes a record.
    pub fn take(&mut self, record: &Record, stacks: &Stacks) {
        match record {
            Record::Sample(sample) => {
                if self.seen_code.insert((sample.pid, sample.instruction)) {
                    self.add(sample.pid, sample.instruction, |addresses| &mut addresses.instructions);
                }
                self.add(sample.pid, sample.address, |addresses| &mut addresses.data);
                if let Some(stack) = sample.stack {
                    self.add_stack(sample.pid, stack, stacks);
                }
            }
            Record::Event(event) => {
                self.spaces.take(event);
                match event.what {
                    What::Allocated { stack, .. } | What::Announced { stack, .. } | What::Counted { stack, .. } => {
                        self.add_stack(event.pid, stack, stacks);
                    }
                    // The same addresses may mean something else from now on.
                    What::Mapped { .. }
                    | What::Unmapped { .. }
                    | What::Remapped { .. }
                    | What::Named { exec: true, .. } => {
                        self.seen_code.clear();
                        self.seen_stacks.clear();
                    }
                    _ => {}
                }
            }
        }
    }

    fn add_stack(&mut self, pid: Pid, stack: StackId, stacks: &Stacks) {
        if self.seen_stacks.insert((pid, stack)) {
            for address in stacks.chain(stack) {
                self.add(pid, *address, |addresses| &mut addresses.returns);
            }
        }
    }

    fn add(&mut self, pid: Pid, address: u64, to: impl FnOnce(&mut Addresses) -> &mut BTreeSet<u64>) {
        let Some(mapped) = self.spaces.find(pid, address).filter(|mapped| mapped.file.is_some()) else { return };
        let number = *self.number.entry(Arc::as_ptr(mapped) as usize).or_insert_with(|| {
            self.mapped.push((mapped.clone(), Addresses::default()));
            self.mapped.len() - 1
        });
        if let Some((_, addresses)) = self.mapped.get_mut(number) {
            to(addresses).insert(address);
        }
    }

    /// Looks up all addresses in the files below `root`. Each must be the mapped file: see [`ImageState::Changed`].
    /// `began_unix_s` is when the recording began.
    pub fn resolve(self, root: &Path, began_unix_s: u64) -> Symbols {
        let mut by_file: HashMap<(Arc<str>, FileIdentity), Vec<Occurred>> = HashMap::new();
        for (mapped, addresses) in self.mapped {
            if let Some(file) = mapped.file.clone() {
                by_file.entry((mapped.name.clone(), file)).or_default().push((mapped, addresses));
            }
        }
        let memory = Rc::new(MemoryLimit::new());
        let read = |((path, file), mapped): ((Arc<str>, FileIdentity), Vec<_>)| match Elf::open(
            root,
            &path,
            &file,
            began_unix_s,
            &memory,
        ) {
            Ok(elf) => resolve(elf, &mapped),
            Err(state) => Image::new(path, file, state),
        };
        let mut images: Vec<Image> = by_file.into_iter().map(read).collect();
        images
            .sort_by(|a, b| (&a.path, &a.file.build_id, a.file.inode).cmp(&(&b.path, &b.file.build_id, b.file.inode)));
        Symbols::new(images)
    }
}

fn resolve(mut elf: Elf, mapped: &[Occurred]) -> Image {
    let mut data = BTreeSet::new();
    for (mapped, addresses) in mapped {
        let image = elf.image.clone();
        let of_file = |address: &u64| image.address(mapped, *address);
        data.extend(addresses.data.iter().filter_map(of_file));
        for address in addresses.returns.iter().filter_map(of_file) {
            elf.keep_code(address, true);
        }
        for address in addresses.instructions.iter().filter_map(of_file) {
            elf.keep_code(address, false);
        }
    }
    elf.keep_variables(data.into_iter());
    elf.image.state = elf.state();
    elf.image
}
