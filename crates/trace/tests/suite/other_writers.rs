//! Tables that another program has written anew, such as pandas or `DuckDB`: with other compression.

use crate::storage::{sample, writer};
use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use trace::{Record, Trace};

/// Copies what is left of a column.
fn copy<T: DataType>(mut from: ColumnReaderImpl<T>, to: &mut SerializedColumnWriter<'_>) {
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    from.read_records(usize::MAX, Some(&mut definitions), Some(&mut repetitions), &mut values).unwrap();
    let levels = |all: Vec<i16>| (!all.is_empty()).then_some(all);
    let (definitions, repetitions) = (levels(definitions), levels(repetitions));
    to.typed::<T>().write_batch(&values, definitions.as_deref(), repetitions.as_deref()).unwrap();
}

/// Writes a table anew.
fn rewrite(path: &Path, compression: Compression) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for group in 0..reader.num_row_groups() {
        let from = reader.get_row_group(group).unwrap();
        let mut to = writer.next_row_group().unwrap();
        for column in 0..from.num_columns() {
            let mut to = to.next_column().unwrap().unwrap();
            match from.get_column_reader(column).unwrap() {
                ColumnReader::BoolColumnReader(from) => copy(from, &mut to),
                ColumnReader::Int32ColumnReader(from) => copy(from, &mut to),
                ColumnReader::Int64ColumnReader(from) => copy(from, &mut to),
                ColumnReader::FloatColumnReader(from) => copy(from, &mut to),
                ColumnReader::DoubleColumnReader(from) => copy(from, &mut to),
                ColumnReader::ByteArrayColumnReader(from) => copy(from, &mut to),
                _ => panic!("a column of another type"),
            }
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
        rewrite(&folder.path().join("samples/000001.parquet"), compression);
        assert_eq!(read().unwrap(), own, "{compression}");
    }
}
