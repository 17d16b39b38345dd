//! Writes and reads rows as a Parquet file with one row group.

use crate::catch_panic::catch_panic;
use crate::checked_file::CheckedFile;
use crate::table::{Column, Kind, Row, Rows, Values};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, Length, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, SchemaDescriptor, Type, TypePtr};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Maximum number of rows in a file. A file that claims more is corrupt, and would exhaust memory.
const MAX_ROWS: i64 = 1 << 20;
/// Maximum size of a column chunk, in bytes. Paths are the longest values.
const MAX_CHUNK_BYTES: i64 = 256 << 20;
/// Maximum length of names and paths, in bytes. Longer ones are cut when written: C++ names have no limit.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Columns whose values hardly repeat, for which a dictionary would only cost time.
const WITHOUT_DICTIONARY: &[&str] = &["time_ns", "address", "physical_address", "latency_ns"];

/// Why a file is not a table of a trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error("it is not a complete Parquet file: {0}")]
    Parquet(String),
    #[error("it cannot be read")]
    Read(#[from] std::io::Error),
    #[error("it has other columns than a table of {table}: {what}")]
    Columns { table: &'static str, what: String },
    #[error("it claims {0}, which exceeds the limits of a trace")]
    TooLarge(String),
    #[error("its rows are not in time order, or start before the range it gives")]
    Order,
    #[error("its call chains are not numbered consecutively")]
    Stacks,
    #[error("it refers to files that table images lacks or orders differently")]
    Images,
    #[error("its row {row} is invalid")]
    Row { row: usize },
    #[error("column {0} has an empty required cell, an unknown word, or too long a text")]
    Value(&'static str),
}

/// As text, because this error repeats its causes.
impl From<ParquetError> for TableError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error.to_string())
    }
}

/// Encodes rows as a Parquet file.
pub(crate) fn encode<R: Row>(rows: &[R]) -> Result<Vec<u8>, ParquetError> {
    let mut writer = TableWriter::new::<R>(Vec::new())?;
    writer.write(rows)?;
    writer.finish()
}

/// Writes rows as a Parquet file, group by group.
pub(crate) struct TableWriter<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> TableWriter<W> {
    pub fn new<R: Row>(to: W) -> Result<Self, ParquetError> {
        let schema = schema(R::TABLE, R::COLUMNS)?;
        Ok(Self(SerializedFileWriter::new(to, schema, Arc::new(properties()))?))
    }

    /// Writes a row group.
    pub fn write<R: Row>(&mut self, rows: &[R]) -> Result<(), ParquetError> {
        let columns = Rows::new(rows).columns;
        let mut group = self.0.next_row_group()?;
        for (column, values) in R::COLUMNS.iter().zip(columns) {
            let Some(mut to) = group.next_column()? else { break };
            write_column(&mut to, column, values)?;
            to.close()?;
        }
        group.close().map(drop)
    }

    pub fn finish(self) -> Result<W, ParquetError> {
        self.0.into_inner()
    }
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("nearside ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_max_row_group_row_count(None)
        // LZ4 costs the recorded machine the least time, and needs no C compiler.
        .set_compression(Compression::LZ4_RAW);
    for name in WITHOUT_DICTIONARY {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*name), false);
    }
    // Successive times are close together.
    properties.set_column_encoding(ColumnPath::from("time_ns"), Encoding::DELTA_BINARY_PACKED).build()
}

fn schema(table: &str, columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = types(column.kind);
        let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(column.name, physical);
        Ok(Arc::new(field.with_logical_type(logical).with_repetition(repetition).build()?))
    });
    let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
    Ok(Arc::new(Type::group_type_builder(table).with_fields(fields).build()?))
}

fn types(kind: Kind) -> (Physical, Option<LogicalType>) {
    match kind {
        Kind::U32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
        Kind::U64 => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::F32 => (Physical::FLOAT, None),
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Text | Kind::Word(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    }
}

fn write_column(to: &mut SerializedColumnWriter<'_>, column: &Column, values: Values) -> Result<(), ParquetError> {
    macro_rules! write {
        ($writer:ident, $values:expr, $convert:expr) => {{
            let levels: Option<Vec<i16>> =
                column.optional.then(|| $values.iter().map(|value| i16::from(value.is_some())).collect());
            let present: Vec<_> = $values.into_iter().flatten().map($convert).collect();
            $writer.write_batch(&present, levels.as_deref(), None)?;
        }};
    }
    match (to.untyped(), values) {
        (ColumnWriter::Int32ColumnWriter(writer), Values::U32(values)) => write!(writer, values, u32::cast_signed),
        (ColumnWriter::Int64ColumnWriter(writer), Values::U64(values)) => write!(writer, values, u64::cast_signed),
        (ColumnWriter::FloatColumnWriter(writer), Values::F32(values)) => write!(writer, values, |value| value),
        (ColumnWriter::BoolColumnWriter(writer), Values::Bool(values)) => write!(writer, values, |value| value),
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Text(values)) => {
            write!(writer, values, |text: Arc<str>| ByteArray::from(shortened(&text).as_bytes().to_vec()));
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), Values::Word(values)) => {
            let Kind::Word(words) = column.kind else { return Err(mismatch(column)) };
            let words: Vec<ByteArray> =
                words.iter().map(|word| ByteArray::from(Bytes::from_static(word.as_bytes()))).collect();
            write!(writer, values, |word| words.get(usize::from(word)).cloned().unwrap_or_default());
        }
        _ => return Err(mismatch(column)),
    }
    Ok(())
}

fn mismatch(column: &Column) -> ParquetError {
    ParquetError::General(format!("column {} has values of another type", column.name))
}

/// A file with the columns of a table, whose rows are not read yet.
pub(crate) struct TableFile {
    reader: SerializedFileReader<CheckedFile>,
    columns: &'static [Column],
    /// Where each of the columns is in the file.
    places: Vec<Place>,
    rows: usize,
}

/// Where a column is in a file.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its number among the file's columns; `None` if the file lacks it, so that all its cells are empty.
    number: Option<usize>,
    /// Whether its cells may be empty. Programs such as pandas declare this of all columns.
    optional: bool,
}

impl TableFile {
    /// Reads the footer, and rejects files that are not of this table.
    pub fn open<R: Row>(file: File) -> Result<Self, TableError> {
        let file = CheckedFile::new(file)?;
        let length = file.len();
        let reader = catch_panic(|| SerializedFileReader::new(file)).unwrap_or_else(contradictory)?;
        let (places, rows) = check(reader.metadata(), length, R::TABLE, R::COLUMNS)?;
        Ok(Self { reader, columns: R::COLUMNS, places, rows })
    }

    /// The names of the columns that the table does not have: a newer version or another program added them.
    pub fn unknown_columns(&self) -> impl Iterator<Item = &str> {
        let fields = self.reader.metadata().file_metadata().schema_descr().root_schema().get_fields();
        let names = fields.iter().map(|field| field.name());
        names.filter(|name| self.columns.iter().all(|column| column.name != *name))
    }

    /// The range of the first column, if it is a `u64` and the file has statistics.
    pub fn range_of_first(&self) -> Option<RangeInclusive<u64>> {
        let chunks = self.reader.metadata().row_groups().first()?.columns();
        let Some(Statistics::Int64(range)) = chunks.get(self.places.first()?.number?)?.statistics() else {
            return None;
        };
        Some(range.min_opt()?.cast_unsigned()..=range.max_opt()?.cast_unsigned())
    }

    /// Number of rows.
    #[cfg(feature = "sql")]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Reads all rows.
    pub fn read<R: Row>(&self) -> Result<Vec<R>, TableError> {
        let rows = Rows::from_columns(self.columns(0..self.columns.len())?);
        let row = |row| R::take(&mut rows.cells(row)).ok_or(TableError::Row { row });
        (0..self.rows).map(row).collect()
    }

    /// Reads columns by index.
    pub fn columns(&self, numbers: impl IntoIterator<Item = usize>) -> Result<Vec<Values>, TableError> {
        let read = || numbers.into_iter().map(|number| self.column(number)).collect();
        catch_panic(read).unwrap_or_else(|| contradictory().map_err(TableError::from))
    }

    fn column(&self, number: usize) -> Result<Values, TableError> {
        let (Some(column), Some(place)) = (self.columns.get(number), self.places.get(number)) else {
            return contradictory().map_err(TableError::from);
        };
        // Without rows there may be no row group.
        let Some(number) = place.number.filter(|_| self.rows > 0) else {
            return Ok(Values::without_any(column.kind, self.rows));
        };
        let found = Column { optional: place.optional, ..*column };
        read_column(self.reader.get_row_group(0)?.get_column_reader(number)?, &found, self.rows)
    }
}

fn contradictory<T>() -> Result<T, ParquetError> {
    Err(ParquetError::General("its metadata are inconsistent".to_owned()))
}

/// Finds a column of a table in a file. Older versions did not write all those that may be empty.
fn place(file: &SchemaDescriptor, column: &Column, table: &'static str) -> Result<Place, TableError> {
    let wrong = |what: String| TableError::Columns { table, what };
    let mut all = file.columns().iter().enumerate();
    let named = all.find(|(_, found)| found.path().parts() == [column.name]);
    let Some((number, found)) = named else {
        let absent = Place { number: None, optional: true };
        return if column.optional { Ok(absent) } else { Err(wrong(format!("{} is missing", column.name))) };
    };
    if found.max_rep_level() != 0 || found.physical_type() != types(column.kind).0 {
        return Err(wrong(format!("{} has values of another type", column.name)));
    }
    Ok(Place { number: Some(number), optional: found.max_def_level() > 0 })
}

/// Checks that the file can be read, and returns the places of the columns and the number of rows.
fn check(
    metadata: &ParquetMetaData,
    length: u64,
    table: &'static str,
    columns: &[Column],
) -> Result<(Vec<Place>, usize), TableError> {
    let found = metadata.file_metadata().schema_descr();
    let places = columns.iter().map(|column| place(found, column, table)).collect::<Result<Vec<_>, _>>()?;
    let rows = match metadata.row_groups() {
        [] => return Ok((places, 0)),
        [group] => group.num_rows(),
        groups => return Err(TableError::TooLarge(format!("{} row groups", groups.len()))),
    };
    if !(0..=MAX_ROWS).contains(&rows) {
        return Err(TableError::TooLarge(format!("{rows} rows")));
    }
    // Columns of others are never read.
    for group in metadata.row_groups() {
        for number in places.iter().filter_map(|place| place.number) {
            match group.columns().get(number) {
                Some(chunk) => check_chunk(chunk, length)?,
                None => return contradictory().map_err(TableError::from),
            }
        }
    }
    Ok((places, rows as usize))
}

/// Checks the position and size of a chunk, which Parquet's reader trusts.
fn check_chunk(chunk: &ColumnChunkMetaData, length: u64) -> Result<(), TableError> {
    let size = |what: &str, bytes: i64, most: i64| {
        if (0..=most).contains(&bytes) { Ok(()) } else { Err(TableError::TooLarge(format!("{bytes} bytes of {what}"))) }
    };
    let most = i64::try_from(length).unwrap_or(i64::MAX);
    size("a column", chunk.uncompressed_size(), MAX_CHUNK_BYTES)?;
    size("a compressed column", chunk.compressed_size(), most)?;
    let offsets = [Some(chunk.data_page_offset()), chunk.dictionary_page_offset(), chunk.index_page_offset()];
    for offset in offsets.into_iter().flatten() {
        size("data before a page", offset, most)?;
    }
    // The data follow the dictionary, and the size covers both.
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    size("data before a column", start, most - chunk.compressed_size())?;
    Ok(())
}

fn read_column(reader: ColumnReader, column: &Column, rows: usize) -> Result<Values, TableError> {
    let wrong = || TableError::Value(column.name);
    Ok(match (reader, column.kind) {
        (ColumnReader::Int32ColumnReader(reader), Kind::U32) => {
            Values::U32(read(reader, column, rows, |value| Some(value.cast_unsigned()))?)
        }
        (ColumnReader::Int64ColumnReader(reader), Kind::U64) => {
            Values::U64(read(reader, column, rows, |value| Some(value.cast_unsigned()))?)
        }
        (ColumnReader::FloatColumnReader(reader), Kind::F32) => Values::F32(read(reader, column, rows, Some)?),
        (ColumnReader::BoolColumnReader(reader), Kind::Bool) => Values::Bool(read(reader, column, rows, Some)?),
        (ColumnReader::ByteArrayColumnReader(reader), Kind::Text) => {
            let mut texts = Texts::default();
            Values::Text(read(reader, column, rows, |text| texts.shared(text.data()))?)
        }
        (ColumnReader::ByteArrayColumnReader(reader), Kind::Word(words)) => {
            let number = |word: ByteArray| words.iter().position(|known| known.as_bytes() == word.data());
            Values::Word(read(reader, column, rows, |word| number(word).map(|number| number as u8))?)
        }
        _ => return Err(wrong()),
    })
}

/// Texts of a column. Equal ones are stored once, because a file may repeat one in every row.
#[derive(Default)]
struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// Returns `None` if the text is too long, or not UTF-8.
    fn shared(&mut self, bytes: &[u8]) -> Option<Arc<str>> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX_TEXT_BYTES)?;
        let text = std::str::from_utf8(bytes).ok()?;
        if let Some(known) = self.0.get(text) {
            return Some(known.clone());
        }
        let new: Arc<str> = text.into();
        self.0.insert(new.clone());
        Some(new)
    }
}

/// Cuts a text to the maximum length.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn read<T: DataType, V>(
    mut reader: ColumnReaderImpl<T>,
    column: &Column,
    rows: usize,
    mut convert: impl FnMut(T::T) -> Option<V>,
) -> Result<Vec<Option<V>>, TableError> {
    let wrong = || TableError::Value(column.name);
    let (mut present, mut levels) = (Vec::with_capacity(rows), Vec::new());
    let mut done = 0;
    while done < rows {
        let (records, ..) =
            reader.read_records(rows - done, column.optional.then_some(&mut levels), None, &mut present)?;
        if records == 0 {
            return Err(wrong());
        }
        done += records;
    }
    let mut present = present.into_iter().map(|value| convert(value).ok_or_else(wrong));
    let mut next = || present.next().unwrap_or_else(|| Err(wrong())).map(Some);
    if column.optional {
        levels.iter().take(rows).map(|level| if *level > 0 { next() } else { Ok(None) }).collect()
    } else {
        (0..rows).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::table;
    use crate::{Count, Counter};
    use machine::NodeId;

    #[test]
    fn equal_texts_are_kept_once_and_those_that_are_too_long_are_not() {
        let mut texts = Texts::default();
        let [first, second] = [(); 2].map(|()| texts.shared(b"/a/path").unwrap());
        assert!(Arc::ptr_eq(&first, &second) && &*first == "/a/path");
        assert_eq!(texts.shared(&[0xff]), None);
        assert_eq!(texts.shared(&vec![b'x'; MAX_TEXT_BYTES]).map(|text| text.len()), Some(MAX_TEXT_BYTES));
        assert_eq!(texts.shared(&vec![b'x'; MAX_TEXT_BYTES + 1]), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("/a/path"), "/a/path");
        let long = "x".to_owned() + &"\u{e4}".repeat(MAX_TEXT_BYTES);
        assert_eq!(shortened(&long).len(), MAX_TEXT_BYTES - 1);
    }

    /// As format 5 had it.
    struct OldCount {
        time_ns: u64,
        counter: Counter,
        from: Option<NodeId>,
        to: Option<NodeId>,
        value: u64,
    }

    table!(OldCount in "counts" {
        time_ns: u64 = "time_ns",
        counter: Counter = "counter",
        from: Option<NodeId> = "from_node",
        to: Option<NodeId> = "to_node",
        value: u64 = "value",
    });

    /// Parquet files of these rows, read as those of a table of today.
    fn read_as_count<R: Row>(rows: &[R]) -> Result<Vec<Count>, TableError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&encode(rows).unwrap()).unwrap();
        TableFile::open::<Count>(file)?.read()
    }

    #[test]
    fn a_column_that_an_older_version_did_not_write_is_empty() {
        let (time_ns, counter, from, to, value) = (7, Counter::MemoryAccesses, Some(NodeId(1)), None, 9);
        let old = [(); 3].map(|()| OldCount { time_ns, counter, from, to, value });
        let new = Count { time_ns, counter, from, to, cpu: None, value };
        assert_eq!(read_as_count(&old).unwrap(), [new; 3]);
        assert_eq!(read_as_count::<OldCount>(&[]).unwrap(), []);
        // One that every row has cannot be missing.
        let sample = crate::rows::Frame { stack: crate::StackId(1), depth: 0, address: 5 };
        let error = read_as_count(&[sample]).unwrap_err().to_string();
        assert!(error.contains("time_ns is missing"), "{error}");
    }
}
