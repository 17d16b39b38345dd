//! The range of each number of a machine file, for its manual.

use crate::description::Machine;
use crate::numbers::tables;

/// The range of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// Its table: `core`, `node`.
    pub table: String,
    /// Its name in the table: `clock_hz`, `probes.answer_ns`.
    pub field: &'static str,
    /// The range with its unit, as in the message about a number outside it.
    pub range: String,
}

/// A file with each number once: bounds belong to numbers. As a machine it breaks rules.
const EVERY_NUMBER: &str = r#"
name = ""
core = { clock_hz = 1, instructions_per_cycle = 1, stream_bandwidth_bytes_per_s = 1, stream_lines = 1, store_lines = 1, load_lines = 1, reorder_instructions = 1 }
coherence = { line_ns = 1, sibling_ns = 1, directory_ns = 1, probes = { answer_ns = 1, per_second = 1 } }
control = { classes = 1, least_ways = 1, bandwidth_step_bytes_per_s = 1 }
disk = { latency_ns = 1, bandwidth_bytes_per_s = 1 }
latency = { by_hops_ns = [1], matrix_ns = [[1]], loaded_rise = 1, loaded_slope = 1 }
distances = { matrix = [[1]] }
node = [{ id = 0, memory_bytes = 1, bandwidth_bytes_per_s = 1, write_cost = 1 }]
cache = [{ level = 1, kind = "data", size_bytes = 1, ways = 1, line_bytes = 1, latency_ns = 1, shared_by = "core" }]
tlb = [{ level = 1, pages = [], entries = 1, ways = 1, latency_ns = 1 }]
link = [{ nodes = [0, 0], bandwidth_bytes_per_s = 1, latency_ns = 1 }]
"#;

/// The range of every number that a machine file can have, but for those that number something.
pub fn number_ranges() -> Vec<NumberRange> {
    // A test keeps the text a file.
    let Ok(machine) = toml::from_str::<Machine>(EVERY_NUMBER) else { return Vec::new() };
    let mut found = Vec::new();
    for table in tables(&machine) {
        let name = table.path.split('[').next().unwrap_or_default();
        found.extend(table.numbers.iter().map(|number| NumberRange {
            table: name.to_owned(),
            field: number.field,
            range: number.bounds.to_string(),
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_each_table_has_a_range() {
        let machine: Machine = toml::from_str(EVERY_NUMBER).unwrap();
        let tables = tables(&machine);
        assert_eq!(tables.len(), 10);
        for table in &tables {
            let found: Vec<&str> = table.numbers.iter().map(|number| number.field).collect();
            assert_eq!(found, table.fields, "{}", table.path);
        }
        let ranges = number_ranges();
        assert_eq!(ranges.len(), tables.iter().map(|table| table.fields.len()).sum::<usize>());
        assert!(ranges.iter().any(|range| range.table == "cache"
            && range.field == "line_bytes"
            && range.range == "from 8 to 65536 bytes"));
    }
}
