//! SQL queries on the tables of a trace, through DataFusion. Rows are read file by file, and only the requested
//! columns. Damaged and unfinished traces are treated as elsewhere in nearside.

use crate::error::ReadError;
use crate::parquet_file::{TableError, TableFile};
use crate::rows::Frame;
use crate::symbol_rows::{CodeRow, ImageRow, RangeRow, SegmentRow};
use crate::table::{Column, Kind, Row, Values};
use crate::table_folder::each;
use crate::{Count, Event, Sample, Trace};
use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures::{StreamExt, stream};
use machine::{chain, size};
use parquet::errors::ParquetError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The schema of all tables, as named in `information_schema`.
const SCHEMA: &str = "trace";

/// The query that lists tables and columns.
pub const COLUMNS: &str = "\
SELECT table_name AS \"table\", column_name AS \"column\", data_type AS type, is_nullable = 'YES' AS optional
FROM information_schema.columns WHERE table_schema = 'trace' ORDER BY table_name, ordinal_position";

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The trace is not a folder, and has no tables.
    #[error(
        "a perf.data file has no tables: `nearside report` reads it, and `nearside record` writes traces with tables"
    )]
    PerfData,
    /// Threads could not be created.
    #[error("cannot start the threads for queries")]
    Threads(#[from] io::Error),
    /// The query would do more than read.
    #[error("a trace is read-only, and queries write nothing: {0}")]
    Writes(String),
    /// The query is not valid SQL, or names an unknown table or column.
    #[error("{what}\n  the tables are {tables}; `nearside sql TRACE` lists their columns")]
    Query {
        /// The error.
        what: String,
        /// The names of all tables.
        tables: String,
    },
    /// The query needs more memory than it may have.
    #[error(
        "the query needs more than {} of memory, its limit for a trace of this size on this host: --max-memory {}G allows \
         more ({what})",
        size::rounded(*most_bytes), most_bytes.saturating_mul(2).div_ceil(1 << 30)
    )]
    Memory {
        /// The limit.
        most_bytes: u64,
        /// The part of the query that asked for more.
        what: String,
    },
    /// The query failed while it ran.
    #[error("the query failed: {0}")]
    Failed(String),
}

/// The tables of a trace, as a database. Tables that the trace lacks are empty.
pub struct Database {
    context: SessionContext,
    names: Vec<&'static str>,
    runtime: Runtime,
    /// What queries may take, in bytes.
    most_bytes: u64,
}

/// The rows of a result, as they arrive.
pub struct Answer<'a> {
    database: &'a Database,
    rows: SendableRecordBatchStream,
}

/// A batch of result rows.
pub struct Batch(RecordBatch);

impl Database {
    /// Opens the tables of a trace. What queries keep of them, such as to sort or to join, takes at most this much memory,
    /// in bytes.
    pub fn new(trace: &Trace, most_bytes: u64) -> Result<Self, SqlError> {
        let failed = |error: DataFusionError| SqlError::Failed(message(&error));
        let folder = trace.folder().ok_or(SqlError::PerfData)?;
        let config =
            SessionConfig::new().with_default_catalog_and_schema("nearside", SCHEMA).with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, Arc::new(bounded(most_bytes).map_err(failed)?));
        let mut names = Vec::new();
        for (name, table) in tables(folder, trace.about().complete) {
            names.push(name);
            context.register_table(name, Arc::new(table)).map_err(failed)?;
        }
        Ok(Self { context, names, runtime: Runtime::new()?, most_bytes })
    }

    /// Plans a query. Data are read when the answer is consumed, and never written.
    pub fn query(&self, sql: &str) -> Result<Answer<'_>, SqlError> {
        let wrong = |error: DataFusionError| SqlError::Query { what: message(&error), tables: self.names.join(", ") };
        self.runtime.block_on(async {
            let plan = self.context.state().create_logical_plan(sql).await.map_err(wrong)?;
            let reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
            reads.verify_plan(&plan).map_err(|error| SqlError::Writes(message(&error)))?;
            let frame = self.context.execute_logical_plan(plan).await.map_err(wrong)?;
            let rows = frame.execute_stream().await.map_err(wrong)?;
            Ok(Answer { database: self, rows })
        })
    }

    fn failure(&self, error: &DataFusionError) -> SqlError {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(what) => {
                SqlError::Memory { most_bytes: self.most_bytes, what: what.clone() }
            }
            _ => SqlError::Failed(message(error)),
        }
    }
}

/// What limits the memory of queries. They write no files in its place: an interrupt would leave these behind.
fn bounded(most_bytes: u64) -> DataFusionResult<RuntimeEnv> {
    let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
    let no_files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let pool = Arc::new(GreedyMemoryPool::new(most_bytes));
    RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(no_files).build()
}

impl Answer<'_> {
    /// The names of the columns.
    pub fn columns(&self) -> Vec<String> {
        self.rows.schema().fields().iter().map(|field| field.name().clone()).collect()
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<Batch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.database.runtime.block_on(self.rows.next())?;
        Some(batch.map(Batch).map_err(|error| self.database.failure(&error)))
    }
}

impl Batch {
    /// The cells of each row as text; empty cells are `-`.
    pub fn texts(&self) -> Result<Vec<Vec<String>>, SqlError> {
        let options = FormatOptions::new().with_null("-");
        let columns = self.0.columns().iter();
        let cells: Vec<ArrayFormatter> = columns
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<_, _>>()
            .map_err(|error| unprintable(&error))?;
        let text = |row| cells.iter().map(|cell| cell.value(row).try_to_string()).collect();
        (0..self.0.num_rows()).map(text).collect::<Result<_, _>>().map_err(|error| unprintable(&error))
    }

    /// Each row as a JSON object.
    pub fn json(&self) -> Result<Vec<String>, SqlError> {
        let mut lines = Vec::new();
        let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut lines);
        writer.write(&self.0).and_then(|()| writer.finish()).map_err(|error| unprintable(&error))?;
        Ok(String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect())
    }
}

fn unprintable(error: &ArrowError) -> SqlError {
    SqlError::Failed(format!("cannot print a value: {error}"))
}

/// The root cause of an error, without the layers that passed it on.
fn message(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::External(error) => chain(error.as_ref()),
        error => error.strip_backtrace(),
    }
}

/// All tables of a trace, with their names.
fn tables(trace: &Path, finished: bool) -> [(&'static str, Table); 8] {
    [
        Table::named::<Sample>(trace, finished),
        Table::named::<Event>(trace, finished),
        Table::named::<Frame>(trace, finished),
        Table::named::<Count>(trace, finished),
        Table::named::<ImageRow>(trace, finished),
        Table::named::<SegmentRow>(trace, finished),
        Table::named::<RangeRow>(trace, finished),
        Table::named::<CodeRow>(trace, finished),
    ]
}

/// A table of a trace as a DataFusion table provider.
#[derive(Clone, Debug)]
struct Table {
    trace: PathBuf,
    finished: bool,
    /// The schema of all its columns.
    schema: SchemaRef,
    read: fn(&Scan) -> Result<Batches, ReadError>,
}

/// The batches of a table, file by file.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ReadError>> + Send>;

/// A scan of some columns of a table.
#[derive(Debug)]
struct Scan {
    table: Table,
    columns: Vec<usize>,
    /// The schema of these columns.
    schema: SchemaRef,
}

impl Table {
    fn named<R: Row + 'static>(trace: &Path, finished: bool) -> (&'static str, Self) {
        let field = |column: &Column| Field::new(column.name, data_type(column.kind), column.optional);
        let schema = Arc::new(Schema::new(R::COLUMNS.iter().map(field).collect::<Vec<_>>()));
        (R::TABLE, Self { trace: trace.to_owned(), finished, schema, read: Scan::batches::<R> })
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        columns: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let columns = columns.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        let scan = Scan { table: self.clone(), columns, schema: schema.clone() };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?))
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _task: Arc<TaskContext>) -> SendableRecordBatchStream {
        let external = |error: ReadError| DataFusionError::External(Box::new(error));
        let batches = match (self.table.read)(self) {
            Ok(batches) => stream::iter(batches.map(move |batch| batch.map_err(external))).left_stream(),
            Err(error) => stream::iter([Err(external(error))]).right_stream(),
        };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

impl Scan {
    fn batches<R: Row + 'static>(&self) -> Result<Batches, ReadError> {
        let (columns, schema) = (self.columns.clone(), self.schema.clone());
        let read = move |file: &TableFile| batch(file, R::COLUMNS, &columns, &schema);
        Ok(Box::new(each::<R, _, _>(&self.table.trace, self.table.finished, read)?))
    }
}

/// Converts some columns of a file to Arrow.
fn batch(file: &TableFile, all: &[Column], columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch, TableError> {
    let values = file.columns(columns.iter().copied())?;
    let kinds = columns.iter().filter_map(|column| all.get(*column)).map(|column| column.kind);
    let arrays = values.into_iter().zip(kinds).map(|(values, kind)| array(values, kind)).collect();
    // A batch without columns, as for count(*), has to carry its number of rows.
    let rows = RecordBatchOptions::new().with_row_count(Some(file.rows()));
    let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &rows);
    batch.map_err(|error| ParquetError::External(Box::new(error)).into())
}

fn data_type(kind: Kind) -> DataType {
    match kind {
        Kind::U32 => DataType::UInt32,
        Kind::U64 => DataType::UInt64,
        Kind::F32 => DataType::Float32,
        Kind::Bool => DataType::Boolean,
        Kind::Text | Kind::Word(_) => DataType::Utf8,
    }
}

fn array(values: Values, kind: Kind) -> ArrayRef {
    match values {
        Values::U32(values) => Arc::new(UInt32Array::from(values)),
        Values::U64(values) => Arc::new(UInt64Array::from(values)),
        Values::F32(values) => Arc::new(Float32Array::from(values)),
        Values::Bool(values) => Arc::new(BooleanArray::from(values)),
        Values::Text(values) => Arc::new(StringArray::from_iter(values)),
        Values::Word(values) => {
            let Kind::Word(words) = kind else { return Arc::new(StringArray::new_null(values.len())) };
            let word = |word: Option<u8>| word.and_then(|word| words.get(usize::from(word)).copied());
            Arc::new(values.into_iter().map(word).collect::<StringArray>())
        }
    }
}
