//! The tables of symbols, with which a trace can be read on another machine.

use crate::FileIdentity;
use crate::error::ReadError;
use crate::image::{CodeLine, Image, ImageState, Named, Segment};
use crate::parquet_file::TableError;
use crate::rows::{hexadecimal, of_hexadecimal};
use crate::symbols::Symbols;
use crate::table::{Cells, Column, Kind, Row, Rows, column, optional};
use crate::table_folder::all;
use crate::writer::{WriteError, write_table};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of rows in a file.
const ROWS: usize = 1 << 16;

/// A mapped file. Other tables refer to it by its number.
pub(crate) struct ImageRow {
    image: u32,
    path: Arc<str>,
    file: FileIdentity,
    state: ImageState,
}

impl Row for ImageRow {
    const TABLE: &'static str = "images";
    const COLUMNS: &'static [Column] = &[
        column("image", Kind::U32),
        column("path", Kind::Text),
        optional("build_id", Kind::Text),
        column("inode", Kind::U64),
        column("state", Kind::Word(ImageState::WORDS)),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u32(self.image);
        rows.put_text(self.path.clone());
        rows.put_text(self.file.build_id.as_deref().map(hexadecimal));
        rows.put_u64(self.file.inode);
        rows.put_word(ImageState::ALL.iter().position(|state| *state == self.state).map(|state| state as u8));
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let (image, path) = (cells.u32()?, cells.text()?);
        let build_id = match cells.optional_text()? {
            Some(text) => Some(of_hexadecimal(&text)?),
            None => None,
        };
        let file = FileIdentity { build_id, inode: cells.u64()? };
        let state = *ImageState::ALL.get(usize::from(cells.word()?))?;
        Some(Self { image, path, file, state })
    }
}

/// A loaded segment of a mapped file.
pub(crate) struct SegmentRow {
    image: u32,
    segment: Segment,
}

impl Row for SegmentRow {
    const TABLE: &'static str = "segments";
    const COLUMNS: &'static [Column] = &[
        column("image", Kind::U32),
        column("offset_bytes", Kind::U64),
        column("file_bytes", Kind::U64),
        column("address", Kind::U64),
        column("memory_bytes", Kind::U64),
        column("executable", Kind::Bool),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u32(self.image);
        rows.put_u64(self.segment.offset);
        rows.put_u64(self.segment.file_bytes);
        rows.put_u64(self.segment.address);
        rows.put_u64(self.segment.memory_bytes);
        rows.put_bool(self.segment.executable);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let image = cells.u32()?;
        let (offset, file_bytes) = (cells.u64()?, cells.u64()?);
        let (address, memory_bytes, executable) = (cells.u64()?, cells.u64()?, cells.bool()?);
        Some(Self { image, segment: Segment { offset, file_bytes, address, memory_bytes, executable } })
    }
}

const SECTION: u8 = 0;
const VARIABLE: u8 = 1;

/// A section or a variable.
pub(crate) struct RangeRow {
    image: u32,
    kind: u8,
    range: Named,
}

impl Row for RangeRow {
    const TABLE: &'static str = "ranges";
    const COLUMNS: &'static [Column] = &[
        column("image", Kind::U32),
        column("kind", Kind::Word(&["section", "variable"])),
        column("name", Kind::Text),
        column("address", Kind::U64),
        column("bytes", Kind::U64),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u32(self.image);
        rows.put_word(self.kind);
        rows.put_text(self.range.name.clone());
        rows.put_u64(self.range.address);
        rows.put_u64(self.range.bytes);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let (image, kind, name) = (cells.u32()?, cells.word()?, cells.text()?);
        Some(Self { image, kind, range: Named { name, address: cells.u64()?, bytes: cells.u64()? } })
    }
}

/// A source line at an address. Rows of inlined code come before those of the function around it.
pub(crate) struct CodeRow {
    image: u32,
    address: u64,
    depth: u32,
    line: CodeLine,
}

impl Row for CodeRow {
    const TABLE: &'static str = "code";
    const COLUMNS: &'static [Column] = &[
        column("image", Kind::U32),
        column("address", Kind::U64),
        column("depth", Kind::U32),
        optional("function", Kind::Text),
        optional("source", Kind::Text),
        optional("line", Kind::U32),
        optional("function_address", Kind::U64),
    ];

    fn put(&self, rows: &mut Rows) {
        rows.put_u32(self.image);
        rows.put_u64(self.address);
        rows.put_u32(self.depth);
        rows.put_text(self.line.function.clone());
        rows.put_text(self.line.source.clone());
        rows.put_u32(self.line.line);
        rows.put_u64(self.line.begins);
    }

    fn take(cells: &mut Cells<'_>) -> Option<Self> {
        let (image, address, depth) = (cells.u32()?, cells.u64()?, cells.u32()?);
        let (function, source) = (cells.optional_text()?, cells.optional_text()?);
        let (line, begins) = (cells.optional_u32()?, cells.optional_u64()?);
        Some(Self { image, address, depth, line: CodeLine { function, source, line, begins } })
    }
}

/// Writes all tables of symbols.
pub(crate) fn write_symbols(trace: &Path, symbols: &Symbols) -> Result<(), WriteError> {
    let images = || symbols.images().iter().zip(0_u32..);
    let image = |(image, number): (&Image, u32)| ImageRow {
        image: number,
        path: image.path.clone(),
        file: image.file.clone(),
        state: image.state,
    };
    let segments = |(image, number): (&'_ Image, u32)| {
        image.segments.clone().into_iter().map(move |segment| SegmentRow { image: number, segment })
    };
    let ranges = |(image, number): (&'_ Image, u32)| {
        let of = move |kind| move |range| RangeRow { image: number, kind, range };
        let sections = image.sections.clone().into_iter().map(of(SECTION));
        sections.chain(image.variables.clone().into_iter().map(of(VARIABLE)))
    };
    let code = |(image, number): (&Image, u32)| {
        let lines =
            image.code.iter().flat_map(|(address, lines)| lines.iter().zip(0..).map(move |line| (*address, line)));
        let row = |(address, (line, depth)): (u64, (&CodeLine, u32))| CodeRow {
            image: number,
            address,
            depth,
            line: line.clone(),
        };
        lines.map(row).collect::<Vec<_>>()
    };
    write_all(trace, images().map(image))?;
    write_all(trace, images().flat_map(segments))?;
    write_all(trace, images().flat_map(ranges))?;
    write_all(trace, images().flat_map(code))
}

fn write_all<R: Row>(trace: &Path, rows: impl Iterator<Item = R>) -> Result<(), WriteError> {
    let rows: Vec<R> = rows.collect();
    for (rows, number) in rows.chunks(ROWS).zip(1..) {
        write_table(trace, number, rows)?;
    }
    Ok(())
}

/// Reads all tables of symbols.
pub(crate) fn read_symbols(trace: &Path, finished: bool) -> Result<Symbols, ReadError> {
    let mut images = Vec::new();
    for rows in all::<ImageRow>(trace, finished)? {
        for row in rows? {
            if row.image as usize != images.len() {
                return Err(ReadError::table(&trace.join(ImageRow::TABLE), TableError::Images));
            }
            images.push(Image::new(row.path, row.file, row.state));
        }
    }
    add(trace, finished, &mut images, |row: &SegmentRow| row.image, |image, row| image.segments.push(row.segment))?;
    add(
        trace,
        finished,
        &mut images,
        |row: &RangeRow| row.image,
        |image, row| {
            if row.kind == SECTION { image.sections.push(row.range) } else { image.variables.push(row.range) }
        },
    )?;
    add(
        trace,
        finished,
        &mut images,
        |row: &CodeRow| row.image,
        |image, row| {
            image.code.entry(row.address).or_default().push(row.line);
        },
    )?;
    for image in &mut images {
        // Sorted already, unless another program wrote the file.
        image.sections.sort_by_key(|range| range.address);
        image.variables.sort_by_key(|range| range.address);
    }
    Ok(Symbols::new(images))
}

fn add<R: Row>(
    trace: &Path,
    finished: bool,
    images: &mut [Image],
    number: impl Fn(&R) -> u32,
    put: impl Fn(&mut Image, R),
) -> Result<(), ReadError> {
    for rows in all::<R>(trace, finished)? {
        for row in rows? {
            let Some(image) = images.get_mut(number(&row) as usize) else {
                return Err(ReadError::table(&trace.join(R::TABLE), TableError::Images));
            };
            put(image, row);
        }
    }
    Ok(())
}
