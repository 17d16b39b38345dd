//! The runs of a campaign as one table, for other tools.

use explore::{Campaign, Cell, Results, UnitOutcome};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

/// A run in each row.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTable {
    /// The names of columns with texts: `cell`, the axes, `host`, `failed`.
    pub text_columns: Vec<String>,
    /// The names of columns with numbers: `round`, `seconds`, `wall_seconds`, the metrics.
    pub number_columns: Vec<String>,
    /// The values of each row, in that order.
    pub rows: Vec<(Vec<String>, Vec<Option<f64>>)>,
}

impl RunTable {
    /// The runs of some cells.
    pub fn new(campaign: &Campaign, results: &Results, cells: &[&Cell]) -> Self {
        let metrics: BTreeSet<String> = cells
            .iter()
            .flat_map(|cell| results.measured(&cell.id))
            .flat_map(|run| run.metrics.keys().cloned())
            .collect();
        let axes = campaign.axes.iter().map(|axis| axis.name.clone());
        let text_columns =
            ["cell".to_owned()].into_iter().chain(axes).chain(["host", "failed"].map(str::to_owned)).collect();
        let fixed = ["round", "seconds", "wall_seconds"].map(str::to_owned);
        let number_columns = fixed.into_iter().chain(metrics.iter().cloned()).collect();
        let row = |cell: &&Cell, unit: &explore::Unit| {
            let (why, run) = match &unit.outcome {
                UnitOutcome::Measured(run) => (String::new(), Some(run)),
                UnitOutcome::Failed { why, .. } => (why.clone(), None),
            };
            let labels = campaign.labels(cell).map(|(_, label)| label.to_owned());
            let texts = [cell.name.clone()]
                .into_iter()
                .chain(labels)
                .chain([unit.host.clone().unwrap_or_default(), why])
                .collect();
            let fixed = [Some(f64::from(unit.round)), run.map(|run| run.seconds), run.map(|run| run.wall_seconds)];
            let metrics = metrics.iter().map(|name| run?.metric(name));
            (texts, fixed.into_iter().chain(metrics).collect())
        };
        let rows = cells.iter().flat_map(|cell| results.units(&cell.id).iter().map(|unit| row(cell, unit))).collect();
        Self { text_columns, number_columns, rows }
    }

    /// As RFC 4180 has it.
    pub fn to_csv(&self) -> String {
        let quoted = |text: &String| {
            if text.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.clone()
            }
        };
        let number = |number: &Option<f64>| number.map_or_else(String::new, |number| number.to_string());
        let names: Vec<String> = self.text_columns.iter().chain(&self.number_columns).map(quoted).collect();
        let row = |(texts, numbers): &(Vec<String>, Vec<Option<f64>>)| {
            texts.iter().map(quoted).chain(numbers.iter().map(number)).collect::<Vec<_>>().join(",")
        };
        let lines = [names.join(",")].into_iter().chain(self.rows.iter().map(row));
        lines.flat_map(|line| [line, "\r\n".to_owned()]).collect()
    }

    /// As Parquet, with the same columns.
    pub fn write_parquet(&self, to: impl Write + Send) -> Result<()> {
        let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
        let mut file = SerializedFileWriter::new(to, Arc::new(self.schema()?), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for column in 0..self.text_columns.len() {
            let text = |(texts, _): &(Vec<String>, _)| ByteArray::from(texts[column].as_str());
            let values: Vec<ByteArray> = self.rows.iter().map(text).collect();
            if let Some(mut writer) = group.next_column()? {
                writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                writer.close()?;
            }
        }
        for column in 0..self.number_columns.len() {
            let numbers: Vec<Option<f64>> = self.rows.iter().map(|(_, numbers)| numbers[column]).collect();
            let values: Vec<f64> = numbers.iter().copied().flatten().collect();
            let levels: Vec<i16> = numbers.iter().map(|number| i16::from(number.is_some())).collect();
            if let Some(mut writer) = group.next_column()? {
                writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
                writer.close()?;
            }
        }
        group.close()?;
        file.close()?;
        Ok(())
    }

    fn schema(&self) -> Result<Type> {
        let text = |name: &String| {
            let column = Type::primitive_type_builder(name, Physical::BYTE_ARRAY);
            column.with_repetition(Repetition::REQUIRED).with_logical_type(Some(LogicalType::String)).build()
        };
        let number = |name: &String| {
            Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::OPTIONAL).build()
        };
        let columns = self.text_columns.iter().map(text).chain(self.number_columns.iter().map(number));
        let columns = columns.map(|column| column.map(Arc::new)).collect::<Result<_>>()?;
        Type::group_type_builder("run").with_fields(columns).build()
    }
}
