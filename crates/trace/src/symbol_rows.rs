//! The tables of symbols, with which a trace can be read on another machine.

use crate::FileIdentity;
use crate::error::{ReadError, WriteError};
use crate::image::{CodeLine, Image, ImageState, Named, Segment};
use crate::parquet_file::TableError;
use crate::symbols::Symbols;
use crate::table::{Row, table, words};
use crate::table_folder::{all, write_table};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of rows in a file.
const ROWS: usize = 1 << 16;

/// A mapped file. Other tables refer to it by its number.
pub(crate) struct ImageRow {
    image: u32,
    path: Arc<str>,
    build_id: Option<Arc<[u8]>>,
    inode: u64,
    state: ImageState,
}

table!(ImageRow in "images" {
    image: u32 = "image",
    path: Arc<str> = "path",
    build_id: Option<Arc<[u8]>> = "build_id",
    inode: u64 = "inode",
    state: ImageState = "state",
});

/// A loaded segment of a mapped file.
pub(crate) struct SegmentRow {
    image: u32,
    segment: Segment,
}

table!(SegmentRow in "segments" {
    image: u32 = "image",
    ..segment: Segment {
        offset: u64 = "offset_bytes",
        file_bytes: u64 = "file_bytes",
        address: u64 = "address",
        memory_bytes: u64 = "memory_bytes",
        executable: bool = "executable",
    }
});

#[derive(Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
enum RangeKind {
    Section,
    Variable,
}

words!(RangeKind);

/// A section or a variable.
pub(crate) struct RangeRow {
    image: u32,
    kind: RangeKind,
    range: Named,
}

table!(RangeRow in "ranges" {
    image: u32 = "image",
    kind: RangeKind = "kind",
    ..range: Named {
        name: Arc<str> = "name",
        address: u64 = "address",
        bytes: u64 = "bytes",
    }
});

/// A source line at an address. Rows of inlined code come before those of the function around it.
pub(crate) struct CodeRow {
    image: u32,
    address: u64,
    depth: u32,
    line: CodeLine,
}

table!(CodeRow in "code" {
    image: u32 = "image",
    address: u64 = "address",
    depth: u32 = "depth",
    ..line: CodeLine {
        function: Option<Arc<str>> = "function",
        source: Option<Arc<str>> = "source",
        line: Option<u32> = "line",
        begins: Option<u64> = "function_address",
    }
});

/// Writes all tables of symbols.
pub(crate) fn write_symbols(trace: &Path, symbols: &Symbols) -> Result<(), WriteError> {
    let images = || symbols.images().iter().zip(0_u32..);
    let image = |(image, number): (&Image, u32)| ImageRow {
        image: number,
        path: image.path.clone(),
        build_id: image.file.build_id.clone(),
        inode: image.file.inode,
        state: image.state,
    };
    let segments = |(image, number): (&'_ Image, u32)| {
        image.segments.clone().into_iter().map(move |segment| SegmentRow { image: number, segment })
    };
    let ranges = |(image, number): (&'_ Image, u32)| {
        let of = move |kind| move |range| RangeRow { image: number, kind, range };
        let sections = image.sections.clone().into_iter().map(of(RangeKind::Section));
        sections.chain(image.variables.clone().into_iter().map(of(RangeKind::Variable)))
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
            let file = FileIdentity { build_id: row.build_id, inode: row.inode };
            images.push(Image::new(row.path, file, row.state));
        }
    }
    add(trace, finished, &mut images, |row: &SegmentRow| row.image, |image, row| image.segments.push(row.segment))?;
    add(
        trace,
        finished,
        &mut images,
        |row: &RangeRow| row.image,
        |image, row| {
            if row.kind == RangeKind::Section {
                image.sections.push(row.range);
            } else {
                image.variables.push(row.range);
            }
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
