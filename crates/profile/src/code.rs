//! Places in code and call chains, each kept once.

use crate::ids::{ChainId, CodeId, FileId};
use crate::symbols::{File, Function, Symbols};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A place in code.
#[derive(Clone, Debug)]
pub struct Code {
    /// The file; none where no mapping was known at the address.
    pub file: Option<FileId>,
    /// Where in the file, bytes; without a file the address.
    pub offset: u64,
    /// It is a return address: the instruction before it is meant.
    pub calls: bool,
    /// The function, where symbols name it. What it is inlined into is a further place, after it in chains.
    pub function: Option<Function>,
}

/// Everything that samples and objects name of code.
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

    /// Asks for the names of all functions. The places that are there have those that are inlined innermost: what they are
    /// inlined into are further places, after them in each chain.
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
