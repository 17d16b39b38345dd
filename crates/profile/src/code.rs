//! Code locations and call chains, each stored once.

use crate::ids::{ChainId, CodeId, FileId};
use crate::symbols::{File, Function, Symbols};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A code location.
#[derive(Clone, Debug)]
pub struct Code {
    /// The file; none if no mapping was known at the address.
    pub file: Option<FileId>,
    /// Offset in the file, bytes; without a file the address.
    pub offset: u64,
    /// Whether it is a return address, which stands for the call instruction before it.
    pub calls: bool,
    /// The function, if symbols name it. The functions that it is inlined into are further locations, after it in
    /// chains.
    pub function: Option<Function>,
}

/// All code locations of samples and objects.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub files: Vec<File>,
    pub places: Vec<Code>,
    pub chains: Vec<Arc<[CodeId]>>,
    file_ids: FxHashMap<File, FileId>,
    code_ids: FxHashMap<(Option<FileId>, u64, bool), CodeId>,
    chain_ids: FxHashMap<Arc<[CodeId]>, ChainId>,
}

impl Codes {
    pub fn new() -> Self {
        let empty: Arc<[CodeId]> = Arc::new([]);
        Self {
            files: Vec::new(),
            places: Vec::new(),
            chains: vec![empty.clone()],
            file_ids: FxHashMap::default(),
            code_ids: FxHashMap::default(),
            chain_ids: std::iter::once((empty, ChainId::UNKNOWN)).collect(),
        }
    }

    pub fn file(&mut self, file: &File) -> FileId {
        if let Some(&id) = self.file_ids.get(file) {
            return id;
        }
        let id = FileId(self.files.len() as u32);
        self.files.push(file.clone());
        self.file_ids.insert(file.clone(), id);
        id
    }

    pub fn code(&mut self, file: Option<FileId>, offset: u64, calls: bool) -> CodeId {
        let codes = &mut self.places;
        *self.code_ids.entry((file, offset, calls)).or_insert_with(|| {
            codes.push(Code { file, offset, calls, function: None });
            CodeId(codes.len() as u32 - 1)
        })
    }

    pub fn chain(&mut self, codes: &[CodeId]) -> ChainId {
        if let Some(&id) = self.chain_ids.get(codes) {
            return id;
        }
        let (chain, id) = (Arc::<[CodeId]>::from(codes), ChainId(self.chains.len() as u32));
        self.chains.push(chain.clone());
        self.chain_ids.insert(chain, id);
        id
    }

    /// Looks up the names of all functions. Existing locations get the innermost inlined function; those that it is
    /// inlined into become further locations, after them in each chain.
    pub fn name(&mut self, symbols: &dyn Symbols) {
        let mut outer: FxHashMap<CodeId, Vec<CodeId>> = FxHashMap::default();
        for number in 0..self.places.len() {
            let Code { file: Some(file), offset, calls, .. } = self.places[number] else { continue };
            let Some(of) = self.files.get(file.index()) else { continue };
            let mut functions = symbols.functions(of, offset.saturating_sub(u64::from(calls))).into_iter();
            self.places[number].function = functions.next();
            for function in functions {
                outer.entry(CodeId(number as u32)).or_default().push(CodeId(self.places.len() as u32));
                self.places.push(Code { function: Some(function), ..self.places[number].clone() });
            }
        }
        for chain in self.chains.iter_mut().filter(|chain| chain.iter().any(|code| outer.contains_key(code))) {
            let whole = |code: &CodeId| std::iter::once(*code).chain(outer.get(code).cloned().unwrap_or_default());
            *chain = chain.iter().flat_map(whole).collect();
        }
    }
}
