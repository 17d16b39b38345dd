//! Every number of a description, with its bounds and its source: the input of the rules about numbers.

use crate::description::Machine;
use crate::source::Source;
use std::fmt;

/// A table of the machine file that holds numbers.
pub(crate) struct Table<'a> {
    /// Its path: `cache[1]`.
    pub path: String,
    pub source: Option<&'a Source>,
    /// The names of all numbers that it can have.
    pub fields: &'static [&'static str],
    /// The numbers that it has.
    pub numbers: Vec<Number<'a>>,
}

pub(crate) struct Number<'a> {
    pub field: &'static str,
    pub values: Values<'a>,
    pub bounds: Bounds,
}

pub(crate) enum Values<'a> {
    One(f64),
    List(&'a [f64]),
    Matrix(&'a [Vec<f64>]),
    Distances(&'a [Vec<u32>]),
}

impl Values<'_> {
    /// Calls `visit` with each value and its index suffix: nothing, `[3]` or `[3][4]`.
    pub fn for_each(&self, mut visit: impl FnMut(Place, f64)) {
        match self {
            Self::One(value) => visit(Place::Whole, *value),
            Self::List(values) => values.iter().enumerate().for_each(|(i, &value)| visit(Place::Item(i), value)),
            Self::Matrix(rows) => {
                for (i, row) in rows.iter().enumerate() {
                    row.iter().enumerate().for_each(|(j, &value)| visit(Place::Cell(i, j), value));
                }
            }
            Self::Distances(rows) => {
                for (i, row) in rows.iter().enumerate() {
                    row.iter().enumerate().for_each(|(j, &value)| visit(Place::Cell(i, j), f64::from(value)));
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Place {
    Whole,
    Item(usize),
    Cell(usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Item(i) => write!(f, "[{i}]"),
            Self::Cell(i, j) => write!(f, "[{i}][{j}]"),
        }
    }
}

/// The range of a number. Wide enough for any existing or near-future machine; narrow enough to catch a wrong unit.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    least: f64,
    most: f64,
    unit: &'static str,
}

impl Bounds {
    const fn new(least: f64, most: f64, unit: &'static str) -> Self {
        Self { least, most, unit }
    }

    /// False for NaN too.
    pub fn holds(self, value: f64) -> bool {
        value >= self.least && value <= self.most
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.unit.is_empty() { "" } else { " " };
        write!(f, "from {} to {}{space}{}", brief(self.least), brief(self.most), self.unit)
    }
}

/// Numbers of firmware. Those that no machine has are left out: they are mistakes of the firmware, or of a saved system.
pub(crate) struct Checked {
    what: &'static str,
    bounds: Bounds,
    left_out: usize,
    /// One of those that were left out.
    example: f64,
}

impl Checked {
    /// `what` names them in the plural.
    pub fn new(what: &'static str, bounds: Bounds) -> Self {
        Self { what, bounds, left_out: 0, example: 0.0 }
    }

    /// The number, if a machine may have it.
    pub fn take(&mut self, number: f64) -> Option<f64> {
        if self.bounds.holds(number) {
            return Some(number);
        }
        (self.left_out, self.example) = (self.left_out + 1, number);
        None
    }

    /// What was left out.
    pub fn warning(&self) -> Option<String> {
        let Self { what, bounds, left_out, example } = self;
        (*left_out > 0)
            .then(|| format!("{what} are left out: they must be {bounds}, not {example} ({left_out} in all)"))
    }
}

/// A limit as a reader of machine files would write it: long numbers as powers of ten or two.
fn brief(limit: f64) -> String {
    let (tens, twos) = (limit.abs().log10(), limit.abs().log2());
    match () {
        () if limit.abs() < 1e5 => limit.to_string(),
        () if tens.fract() == 0.0 => format!("1e{tens}"),
        () if twos.fract() == 0.0 => format!("2^{twos}"),
        () => limit.to_string(),
    }
}

/// Intel's and AMD's first processors with such masks have 4 classes, most others 16.
const CLASSES: Bounds = Bounds::new(2.0, 16.0, "classes");
const LEAST_WAYS: Bounds = Bounds::new(1.0, 32.0, "ways");
const CLOCK: Bounds = Bounds::new(1e6, 1e11, "Hz");
const INSTRUCTIONS_PER_CYCLE: Bounds = Bounds::new(0.01, 100.0, "");
const LINES: Bounds = Bounds::new(1.0, 65_536.0, "lines");
/// Cores have some 8 to 24 buffers for loads that miss.
const LOAD_LINES: Bounds = Bounds::new(1.0, 64.0, "lines");
/// From a floppy's speed to a hundred terabytes per second: excludes megabytes given as bytes.
pub(crate) const BANDWIDTH: Bounds = Bounds::new(1e6, 1e14, "bytes/s");
/// From the speed of a punched tape.
pub(crate) const DISK_BANDWIDTH: Bounds = Bounds::new(100.0, 1e14, "bytes/s");
/// Up to ten seconds, which is longer than a slow disk takes to start.
pub(crate) const DISK_LATENCY: Bounds = Bounds::new(0.01, 1e10, "ns");
/// From a hundredth of a nanosecond to ten milliseconds: excludes seconds or picoseconds given as nanoseconds.
pub(crate) const LATENCY: Bounds = Bounds::new(0.01, 1e7, "ns");
/// The firmware's table has bytes: 0 to 9 are reserved, 255 means unreachable (ACPI 6.5, 5.2.17).
const DISTANCE: Bounds = Bounds::new(10.0, 255.0, "");
/// Architectures have at most 57 bits of physical address.
const MEMORY: Bounds = Bounds::new(0.0, (1_u64 << 57) as f64, "bytes");
/// Relative to the idle latency: curves of real machines have up to 0.14 and 0.19.
const LOADED: Bounds = Bounds::new(0.0, 10.0, "");
const WRITE_COST: Bounds = Bounds::new(0.1, 10.0, "lines read");
const PROBES: Bounds = Bounds::new(1e4, 1e12, "a second");
const INSTRUCTIONS: Bounds = Bounds::new(1.0, 65_536.0, "instructions");
const TLB_LEVEL: Bounds = Bounds::new(1.0, 2.0, "");
const TLB_ENTRIES: Bounds = Bounds::new(1.0, 65_536.0, "pages");
pub(crate) const CACHE_LEVEL: Bounds = Bounds::new(1.0, 8.0, "");
pub(crate) const CACHE_SIZE: Bounds = Bounds::new(64.0, (1_u64 << 40) as f64, "bytes");
const CACHE_WAYS: Bounds = Bounds::new(0.0, 65_536.0, "ways");
pub(crate) const CACHE_LINE: Bounds = Bounds::new(8.0, 65_536.0, "bytes");

/// Every table of a machine that can hold numbers.
pub(crate) fn tables(machine: &Machine) -> Vec<Table<'_>> {
    let mut tables = Vec::new();
    if let Some(core) = &machine.core {
        const FIELDS: &[&str] = &[
            "clock_hz",
            "instructions_per_cycle",
            "stream_bandwidth_bytes_per_s",
            "stream_lines",
            "store_lines",
            "load_lines",
            "reorder_instructions",
        ];
        let numbers = vec![
            one("clock_hz", core.clock_hz, CLOCK),
            one("instructions_per_cycle", core.instructions_per_cycle, INSTRUCTIONS_PER_CYCLE),
            one("stream_bandwidth_bytes_per_s", core.stream_bandwidth_bytes_per_s, BANDWIDTH),
            one("stream_lines", f64::from(core.stream_lines), LINES),
            one("store_lines", f64::from(core.store_lines), LINES),
            one("load_lines", core.load_lines.map(f64::from), LOAD_LINES),
            one("reorder_instructions", core.reorder_instructions.map(f64::from), INSTRUCTIONS),
        ];
        tables.push(table("core".to_owned(), core.source.as_ref(), FIELDS, numbers));
    }
    if let Some(coherence) = &machine.coherence {
        const FIELDS: &[&str] = &["line_ns", "sibling_ns", "directory_ns", "probes.answer_ns", "probes.per_second"];
        let probes = coherence.probes.as_ref();
        let numbers = vec![
            one("line_ns", coherence.line_ns, LATENCY),
            one("sibling_ns", coherence.sibling_ns, LATENCY),
            one("directory_ns", coherence.directory_ns, LATENCY),
            one("probes.answer_ns", probes.map(|probes| probes.answer_ns), LATENCY),
            one("probes.per_second", probes.map(|probes| probes.per_second), PROBES),
        ];
        tables.push(table("coherence".to_owned(), coherence.source.as_ref(), FIELDS, numbers));
    }
    if let Some(control) = &machine.control {
        const FIELDS: &[&str] = &["classes", "least_ways", "bandwidth_step_bytes_per_s"];
        let numbers = vec![
            one("classes", f64::from(control.classes), CLASSES),
            one("least_ways", control.least_ways.map(f64::from), LEAST_WAYS),
            one("bandwidth_step_bytes_per_s", control.bandwidth_step_bytes_per_s, BANDWIDTH),
        ];
        tables.push(table("control".to_owned(), control.source.as_ref(), FIELDS, numbers));
    }
    if let Some(disk) = &machine.disk {
        let numbers = vec![
            one("latency_ns", disk.latency_ns, DISK_LATENCY),
            one("bandwidth_bytes_per_s", disk.bandwidth_bytes_per_s, DISK_BANDWIDTH),
        ];
        tables.push(table("disk".to_owned(), disk.source.as_ref(), &["latency_ns", "bandwidth_bytes_per_s"], numbers));
    }
    if let Some(latency) = &machine.latency {
        const FIELDS: &[&str] = &["by_hops_ns", "matrix_ns", "loaded_rise", "loaded_slope"];
        let (list, matrix) = (&latency.by_hops_ns, &latency.matrix_ns);
        let list = Number { field: "by_hops_ns", values: Values::List(list), bounds: LATENCY };
        let matrix = Number { field: "matrix_ns", values: Values::Matrix(matrix), bounds: LATENCY };
        let numbers = vec![
            (!latency.by_hops_ns.is_empty()).then_some(list),
            (!latency.matrix_ns.is_empty()).then_some(matrix),
            one("loaded_rise", latency.loaded_rise, LOADED),
            one("loaded_slope", latency.loaded_slope, LOADED),
        ];
        tables.push(table("latency".to_owned(), latency.source.as_ref(), FIELDS, numbers));
    }
    if let Some(distances) = &machine.distances {
        let matrix = Number { field: "matrix", values: Values::Distances(&distances.matrix), bounds: DISTANCE };
        tables.push(table("distances".to_owned(), distances.source.as_ref(), &["matrix"], vec![Some(matrix)]));
    }
    tables.extend(arrays(machine));
    tables
}

/// The tables of which a file has several.
fn arrays(machine: &Machine) -> Vec<Table<'_>> {
    let mut tables = Vec::new();
    for (index, node) in machine.nodes.iter().enumerate() {
        const FIELDS: &[&str] = &["memory_bytes", "bandwidth_bytes_per_s", "write_cost"];
        let numbers = vec![
            one("memory_bytes", node.memory_bytes as f64, MEMORY),
            one("bandwidth_bytes_per_s", node.bandwidth_bytes_per_s, BANDWIDTH),
            one("write_cost", node.write_cost, WRITE_COST),
        ];
        tables.push(table(format!("node[{index}]"), node.source.as_ref(), FIELDS, numbers));
    }
    for (index, cache) in machine.caches.iter().enumerate() {
        const FIELDS: &[&str] = &["level", "size_bytes", "ways", "line_bytes", "latency_ns"];
        let numbers = vec![
            one("level", f64::from(cache.level), CACHE_LEVEL),
            one("size_bytes", cache.size_bytes as f64, CACHE_SIZE),
            one("ways", f64::from(cache.ways), CACHE_WAYS),
            one("line_bytes", f64::from(cache.line_bytes), CACHE_LINE),
            one("latency_ns", cache.latency_ns, LATENCY),
        ];
        tables.push(table(format!("cache[{index}]"), cache.source.as_ref(), FIELDS, numbers));
    }
    for (index, tlb) in machine.tlbs.iter().enumerate() {
        const FIELDS: &[&str] = &["level", "entries", "ways", "latency_ns"];
        let numbers = vec![
            one("level", f64::from(tlb.level), TLB_LEVEL),
            one("entries", f64::from(tlb.entries), TLB_ENTRIES),
            one("ways", f64::from(tlb.ways), TLB_ENTRIES),
            one("latency_ns", tlb.latency_ns, LATENCY),
        ];
        tables.push(table(format!("tlb[{index}]"), tlb.source.as_ref(), FIELDS, numbers));
    }
    for (index, link) in machine.links.iter().enumerate() {
        const FIELDS: &[&str] = &["bandwidth_bytes_per_s", "latency_ns"];
        let numbers = vec![
            one("bandwidth_bytes_per_s", link.bandwidth_bytes_per_s, BANDWIDTH),
            one("latency_ns", link.latency_ns, LATENCY),
        ];
        tables.push(table(format!("link[{index}]"), link.source.as_ref(), FIELDS, numbers));
    }
    tables
}

/// A number that may be missing.
fn one<'a>(field: &'static str, value: impl Into<Option<f64>>, bounds: Bounds) -> Option<Number<'a>> {
    value.into().map(|value| Number { field, values: Values::One(value), bounds })
}

fn table<'a>(
    path: String,
    source: Option<&'a Source>,
    fields: &'static [&'static str],
    numbers: Vec<Option<Number<'a>>>,
) -> Table<'a> {
    Table { path, source, fields, numbers: numbers.into_iter().flatten().collect() }
}
