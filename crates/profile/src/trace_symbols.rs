//! Symbols stored in a trace, or those of this machine's files for a trace without symbols.

use crate::symbols::{Data, File, Function, SourceLine, Symbols};
use trace::{CodeLine, HostFiles, Image, Named};

fn image<'a>(symbols: &'a trace::Symbols, file: &File) -> Option<&'a Image> {
    symbols.image_of_file(&file.name, file.identity.as_ref()?)
}

impl Symbols for trace::Symbols {
    fn functions(&self, file: &File, offset: u64) -> Vec<Function> {
        let of = |image: &Image| Some(functions(image, image.code(image.address_of_offset(offset, true)?), offset));
        image(self, file).and_then(of).unwrap_or_default()
    }

    fn data(&self, file: &File, offset: u64) -> Option<Data> {
        let image = image(self, file)?;
        data(image, |address| image.variable(address).cloned(), offset)
    }
}

impl Symbols for HostFiles {
    fn functions(&self, file: &File, offset: u64) -> Vec<Function> {
        let of = |identity| self.code(&file.name, identity, offset, |image, code| functions(image, code, offset));
        file.identity.as_ref().and_then(of).unwrap_or_default()
    }

    fn data(&self, file: &File, offset: u64) -> Option<Data> {
        HostFiles::data(self, &file.name, file.identity.as_ref()?, |image, variable| data(image, variable, offset))
    }
}

fn functions(image: &Image, code: &[CodeLine], offset: u64) -> Vec<Function> {
    let function = |code: &CodeLine| {
        let line = code.source.clone().zip(code.line).map(|(file, line)| SourceLine { file, line });
        let start = code.begins.and_then(|address| image.offset_of_address(address)).unwrap_or(offset);
        Some(Function { name: code.function.clone()?, start, line })
    };
    code.iter().filter_map(function).collect()
}

fn data(image: &Image, variable: impl Fn(u64) -> Option<Named>, offset: u64) -> Option<Data> {
    let place = |address: u64| {
        let variable = variable(address);
        let is_variable = variable.is_some();
        let range = variable.or_else(|| image.section(address).cloned())?;
        // The distance to the range's start is the same in the file and in memory.
        let start = offset.checked_sub(address - range.address)?;
        Some(Data { name: range.name, variable: is_variable, start, bytes: range.bytes })
    };
    // Code may also be read as data.
    [false, true].into_iter().find_map(|executable| place(image.address_of_offset(offset, executable)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trace::{CodeLine, FileIdentity, ImageState, Named, Segment};

    #[test]
    fn places_in_files_have_the_names_that_the_trace_has() {
        let identity = FileIdentity { build_id: Some(Arc::from([1, 2])), inode: 3 };
        let mut image = Image::new("/bin/x".into(), identity.clone(), ImageState::Read);
        let segment = |offset, file_bytes, address, memory_bytes, executable| Segment {
            offset,
            file_bytes,
            address,
            memory_bytes,
            executable,
        };
        image.segments =
            vec![segment(0x1000, 0x500, 0x40_1000, 0x500, true), segment(0x2000, 0x100, 0x40_3000, 0x1000, false)];
        let named = |name: &str, address, bytes| Named { name: name.into(), address, bytes };
        image.sections = vec![named(".text", 0x40_1000, 0x500), named(".bss", 0x40_3100, 0xf00)];
        image.variables = vec![named("table", 0x40_3200, 0x100)];
        let line = |function: &str| CodeLine {
            function: Some(function.into()),
            source: Some("x.c".into()),
            line: Some(7),
            begins: Some(0x40_1010),
        };
        image.code.insert(0x40_1020, vec![line("inlined"), line("main")]);
        let symbols = trace::Symbols::new(vec![image]);
        let file = File { name: "/bin/x".into(), identity: Some(identity) };
        let source = SourceLine { file: "x.c".into(), line: 7 };
        let function = |name: &str| Function { name: name.into(), start: 0x1010, line: Some(source.clone()) };
        assert_eq!(symbols.functions(&file, 0x1020), [function("inlined"), function("main")]);
        assert_eq!(symbols.functions(&file, 0x1021), []);
        let data = |name: &str, variable, start, bytes| Some(Data { name: name.into(), variable, start, bytes });
        assert_eq!(symbols.data(&file, 0x2210), data("table", true, 0x2200, 0x100));
        assert_eq!(symbols.data(&file, 0x2f00), data(".bss", false, 0x2100, 0xf00));
        assert_eq!(symbols.data(&file, 0x1100), data(".text", false, 0x1000, 0x500));
        let other = File { identity: Some(FileIdentity { build_id: None, inode: 3 }), ..file };
        assert_eq!((symbols.functions(&other, 0x1020), symbols.data(&other, 0x2210)), (Vec::new(), None));
    }
}
