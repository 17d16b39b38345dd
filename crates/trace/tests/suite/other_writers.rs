//! Tables that another program has written anew, such as pandas or `DuckDB`: with other compression.

use crate::storage::{sample, writer};
use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArrayType, DataType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use trace::{Record, Trace};

/// Copies what is left of a column.
fn copy<T: DataType>(mut from: ColumnReaderImpl<T>, to: &mut SerializedColumnWriter<'_>, optional: bool) {
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    from.read_records(usize::MAX, Some(&mut definitions), Some(&mut repetitions), &mut values).unwrap();
    let levels = |all: Vec<i16>| (!all.is_empty()).then_some(all);
    // A required column has no levels.
    let definitions = if optional && definitions.is_empty() { vec![1; values.len()] } else { definitions };
    let (definitions, repetitions) = (levels(definitions), levels(repetitions));
    to.typed::<T>().write_batch(&values, definitions.as_deref(), repetitions.as_deref()).unwrap();
}

/// How a table is written anew.
#[derive(Clone, Copy)]
struct Anew {
    compression: Compression,
    /// With a column of strings first, and one of numbers last; none of nearside's is required any more.
    as_pandas: bool,
}

/// A column that no table of a trace has.
fn added(name: &str, physical: Physical) -> TypePtr {
    Arc::new(Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL).build().unwrap())
}

/// The schema of a table with additional columns around its own, which are all optional.
fn as_pandas(schema: &Type) -> TypePtr {
    let own = schema.get_fields().iter().map(|field| {
        let info = field.get_basic_info();
        let same = Type::primitive_type_builder(field.name(), field.get_physical_type());
        let same = same.with_logical_type(info.logical_type_ref().cloned());
        Arc::new(same.with_repetition(Repetition::OPTIONAL).build().unwrap())
    });
    let first = std::iter::once(added("a remark", Physical::BYTE_ARRAY));
    let all = first.chain(own).chain([added("celsius", Physical::DOUBLE)]).collect();
    Arc::new(Type::group_type_builder("schema").with_fields(all).build().unwrap())
}

/// Writes a table anew.
fn rewrite(path: &Path, Anew { compression, as_pandas: with_more }: Anew) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
    let schema = if with_more { as_pandas(&schema) } else { schema };
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for group in 0..reader.num_row_groups() {
        let from = reader.get_row_group(group).unwrap();
        let rows = usize::try_from(from.metadata().num_rows()).unwrap();
        let mut to = writer.next_row_group().unwrap();
        if with_more {
            let mut to = to.next_column().unwrap().unwrap();
            to.typed::<ByteArrayType>().write_batch(&[], Some(&vec![0; rows]), None).unwrap();
            to.close().unwrap();
        }
        for column in 0..from.num_columns() {
            let mut to = to.next_column().unwrap().unwrap();
            match from.get_column_reader(column).unwrap() {
                ColumnReader::BoolColumnReader(from) => copy(from, &mut to, with_more),
                ColumnReader::Int32ColumnReader(from) => copy(from, &mut to, with_more),
                ColumnReader::Int64ColumnReader(from) => copy(from, &mut to, with_more),
                ColumnReader::FloatColumnReader(from) => copy(from, &mut to, with_more),
                ColumnReader::DoubleColumnReader(from) => copy(from, &mut to, with_more),
                ColumnReader::ByteArrayColumnReader(from) => copy(from, &mut to, with_more),
                _ => panic!("a column of another type"),
            }
            to.close().unwrap();
        }
        if with_more {
            let mut to = to.next_column().unwrap().unwrap();
            to.typed::<DoubleType>().write_batch(&vec![21.5; rows], Some(&vec![1; rows]), None).unwrap();
            to.close().unwrap();
        }
        to.close().unwrap();
    }
    fs::write(path, writer.into_inner().unwrap()).unwrap();
}

#[test]
fn tables_with_the_usual_compressions_of_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 100);
    (0..50).for_each(|time| writer.sample(sample(time)).unwrap());
    writer.finish().unwrap();
    let read = || Trace::open(folder.path()).unwrap().records().unwrap().collect::<Result<Vec<Record>, _>>();
    let own = read().unwrap();
    for compression in [Compression::SNAPPY, Compression::LZ4_RAW, Compression::UNCOMPRESSED] {
        rewrite(&folder.path().join("samples/000001.parquet"), Anew { compression, as_pandas: false });
        assert_eq!(read().unwrap(), own, "{compression}");
    }
}

#[test]
fn columns_that_others_added_are_ignored_and_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), 10);
    (0..30).for_each(|time| writer.sample(sample(time)).unwrap());
    writer.finish().unwrap();
    let own: Vec<Record> = Trace::open(folder.path()).unwrap().records().unwrap().map(Result::unwrap).collect();
    for number in 1..=3 {
        let path = folder.path().join(format!("samples/{number:06}.parquet"));
        rewrite(&path, Anew { compression: Compression::SNAPPY, as_pandas: true });
    }
    let trace = Trace::open(folder.path()).unwrap();
    let read: Vec<Record> = trace.records().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, own);
    let version = env!("CARGO_PKG_VERSION");
    let note = format!(
        "the tables, written by nearside {version}, have columns that nearside {version} does not know, and ignores: \
         samples.a remark, samples.celsius"
    );
    assert_eq!(trace.about().notes, [note]);
}
