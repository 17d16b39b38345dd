//! Sites: objects that the same code allocates, or that have the same name in several processes.

use crate::code::Codes;
use crate::ids::{ChainId, CodeId, FileId, SiteId};
use crate::object::{Object, ObjectKind, SmallObjects};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Functions that allocate for others: the code that called them is the site.
const WRAPPERS: [&str; 33] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "strdup",
    "strndup",
    "__strdup",
    "__strndup",
    "__GI___strdup",
    "__GI___strndup",
    "mmap",
    "mmap64",
    "mremap",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xstrdup",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_slice_alloc",
    "g_slice_alloc0",
    "numa_alloc",
    "numa_alloc_local",
    "numa_alloc_onnode",
    "numa_alloc_interleaved",
];
/// The same, by prefixes of names: the C++ standard library.
const CPP_BEGINNINGS: [&str; 4] = ["operator new", "std::", "__gnu_cxx::", "__cxxabiv1::"];
/// The same for Rust's standard library and its dependencies.
const RUST_BEGINNINGS: [&str; 6] = ["std::", "alloc::", "core::", "__rust_", "__rustc", "hashbrown::"];
/// The same, by source paths of these libraries, where they were compiled into the program.
const LIBRARY_SOURCES: [&str; 3] = ["/include/c++/", "/rustc/", "/library/alloc/src/"];
/// The same, by file name without version: the preload library that reports objects, and C++ libraries.
const WRAPPER_FILES: [&str; 4] = ["libnearside_preload.so", "libstdc++.so", "libc++.so", "libc++abi.so"];

/// The source of objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The kind of the objects.
    pub kind: ObjectKind,
    /// The allocating code; none if not known or not allocated.
    pub code: Option<CodeId>,
    /// The name, if not allocated.
    pub name: Option<Arc<str>>,
    /// The file that contains it or is mapped.
    pub file: Option<FileId>,
}

/// Assigns sites, each once.
pub(crate) struct Sites {
    /// The allocating code, by chain.
    allocating: Vec<Option<CodeId>>,
    /// The sites of allocated objects, by chain: there may be a million objects.
    of_chain: Vec<Option<SiteId>>,
    all: Vec<Site>,
    ids: HashMap<Site, SiteId>,
}

impl Sites {
    /// No sites yet. `wrappers` are further functions that allocate for others.
    pub fn new(codes: &Codes, wrappers: &[String]) -> Self {
        let is_wrapper = |code: &CodeId| {
            let place = &codes.places[code.index()];
            let function = place.function.as_ref();
            let name = function.map_or("", |function| &function.name);
            let source = function.and_then(|function| function.line.as_ref()).map_or("", |line| &line.file);
            let file = place.file.map_or("", |file| file_name(&codes.files[file.index()].name));
            WRAPPER_FILES.iter().any(|library| file.starts_with(library))
                || LIBRARY_SOURCES.iter().any(|library| source.contains(library))
                || is_known_wrapper(name)
                || wrappers.iter().any(|wrapper| wrapper == name || wrapper == qualified(name).0)
        };
        let allocating = |chain: &Arc<[CodeId]>| chain.iter().find(|code| !is_wrapper(code)).or(chain.last()).copied();
        Self {
            allocating: codes.chains.iter().map(allocating).collect(),
            of_chain: vec![None; codes.chains.len()],
            all: Vec::new(),
            ids: HashMap::new(),
        }
    }

    /// The site of an object.
    pub fn of(&mut self, object: &Object) -> SiteId {
        if object.kind == ObjectKind::Heap {
            return self.of_allocated(object.site);
        }
        // A name is one site, wherever the program gives it.
        let code = self.allocating[object.site.index()].filter(|_| object.kind != ObjectKind::Region);
        self.id(Site { kind: object.kind, code, name: object.name.clone(), file: object.file })
    }

    fn of_allocated(&mut self, chain: ChainId) -> SiteId {
        if let Some(site) = self.of_chain[chain.index()] {
            return site;
        }
        let code = self.allocating[chain.index()];
        let site = self.id(Site { kind: ObjectKind::Heap, code, name: None, file: None });
        self.of_chain[chain.index()] = Some(site);
        site
    }

    fn id(&mut self, site: Site) -> SiteId {
        *self.ids.entry(site).or_insert_with_key(|site| {
            self.all.push(site.clone());
            SiteId(self.all.len() as u32 - 1)
        })
    }

    /// Allocations that were only counted, by site, the most bytes first.
    pub fn of_counted(&mut self, counted: &BTreeMap<ChainId, (u64, u64)>) -> Vec<SmallObjects> {
        let mut small: BTreeMap<SiteId, SmallObjects> = BTreeMap::new();
        for (&chain, &(objects, bytes)) in counted {
            let site = self.of_allocated(chain);
            let of_site = small.entry(site).or_insert(SmallObjects { site, chain, objects: 0, bytes: 0 });
            of_site.objects = of_site.objects.saturating_add(objects);
            of_site.bytes = of_site.bytes.saturating_add(bytes);
        }
        let mut small: Vec<SmallObjects> = small.into_values().collect();
        small.sort_by_key(|small| Reverse(small.bytes));
        small
    }

    /// All sites.
    pub fn into_all(self) -> Vec<Site> {
        self.all
    }
}

fn is_known_wrapper(function: &str) -> bool {
    let (name, has_parameters) = qualified(function);
    // Only C++ names include parameters.
    let beginnings = if has_parameters { &CPP_BEGINNINGS[..] } else { &RUST_BEGINNINGS };
    let begins = |beginning: &&str| name.trim_start_matches('<').starts_with(*beginning);
    // A class may have its own.
    let is_of_class = has_parameters && name.contains("::operator new");
    WRAPPERS.contains(&name) || is_of_class || beginnings.iter().any(begins)
}

/// The name of a function with its namespaces, without return type and parameters, and whether it has parameters.
pub(crate) fn qualified(function: &str) -> (&str, bool) {
    let (mut begin, mut depth) = (0, 0_usize);
    let ends = |at: usize| function[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    for (at, character) in function.char_indices() {
        match character {
            // An operator's own name may contain any of these characters.
            'o' if depth == 0 && function[at..].starts_with("operator") && !ends(at) => {
                let parameters = function[at..].rfind('(').map(|from| at + from);
                return (&function[begin..parameters.unwrap_or(function.len())], parameters.is_some());
            }
            '(' if depth == 0 && !function[at..].starts_with("(anonymous") => return (&function[begin..at], true),
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => begin = at + 1,
            _ => {}
        }
    }
    (&function[begin..], false)
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_libraries_are_distinguished_from_similar_names() {
        for wrapper in [
            "malloc",
            "__GI___strdup",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::align_val_t)",
            "std::vector<int, std::allocator<int> >::reserve(unsigned long)",
            "int* std::vector<int>::_M_allocate_and_copy<int const*>(unsigned long, int const*, int const*)",
            "void std::vector<int>::_M_realloc_insert<int>(int&&)",
            "__gnu_cxx::new_allocator<(anonymous namespace)::Row>::allocate(unsigned long, void const*)",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "<alloc::string::String as core::clone::Clone>::clone",
            "std::sys::alloc::unix::alloc",
            "__rust_alloc",
        ] {
            assert!(is_known_wrapper(wrapper), "{wrapper}");
        }
        for own in [
            "core::load()",
            "alloc::pool(int)",
            "std::vector<char, std::allocator<char> > make<char>(int)",
            "std::string mks<int>(int)",
            "Matrix::operator()(std::size_t) const",
            "std::ostream& operator<<(std::ostream&, Row const&)",
            "(anonymous namespace)::fill(std::vector<int>&)",
            "main::{lambda(std::string)#1}::operator()(std::string) const",
            "app::core::load",
            "make",
            "",
        ] {
            assert!(!is_known_wrapper(own), "{own}");
        }
    }
}
