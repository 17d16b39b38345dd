//! Samples joined with what they were attributed to: one table for other tools, which need no knowledge of lifetimes.

use crate::parquet_file::TableWriter;
use crate::table::table;
use crate::{AccessKind, Served, Source};
use machine::{CpuId, NodeId, Pid, Tid};
use std::io::{self, Write};
use std::sync::Arc;

/// Rows that are held in memory and become one row group.
const ROWS: usize = 1 << 18;

/// A sample with its thread, code and object. The first fields are those of [`Sample`](crate::Sample).
#[derive(Clone, Debug, PartialEq)]
pub struct JoinedSample {
    /// Time, ns.
    pub time_ns: u64,
    /// The CPU.
    pub cpu: CpuId,
    /// The CPU's node.
    pub from: Option<NodeId>,
    /// The node that the line came from or went to.
    pub node: Option<NodeId>,
    /// Whether it went to the memory or caches of another node; none if it did not leave the core's caches, or if its
    /// node is not known.
    pub remote: Option<bool>,
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub process: Option<Arc<str>>,
    /// The thread.
    pub tid: Tid,
    /// Its last name.
    pub thread: Option<Arc<str>>,
    /// Virtual address of the data.
    pub address: u64,
    /// Physical address of the data.
    pub physical: Option<u64>,
    /// Load or store.
    pub kind: AccessKind,
    /// The level that served it.
    pub served: Option<Served>,
    /// Latency, ns.
    pub latency_ns: Option<f32>,
    /// Whether the kernel made the access itself.
    pub kernel: bool,
    /// Number of accesses that it stands for.
    pub weight: f32,
    /// The source of the sample.
    pub source: Source,
    /// The function of the instruction.
    pub function: Option<Arc<str>>,
    /// The file of code.
    pub image: Option<Arc<str>>,
    /// The line of source, as `matrix.c:455`.
    pub line: Option<Arc<str>>,
    /// Number of the object, as in `nearside report`.
    pub object: u32,
    /// Its kind.
    pub object_kind: Arc<str>,
    /// Its first address; 0 for all stacks of a process.
    pub object_address: u64,
    /// Its largest size, bytes; 0 if it has no range.
    pub object_bytes: u64,
    /// When it began, ns.
    pub object_from_ns: u64,
    /// The thread that allocated it.
    pub allocated_by: Option<Tid>,
    /// Number of its site.
    pub site: u32,
    /// The site's label.
    pub site_label: Arc<str>,
}

table!(JoinedSample in "joined_samples" {
    time_ns: u64 = "time_ns",
    cpu: CpuId = "cpu",
    from: Option<NodeId> = "from_node",
    node: Option<NodeId> = "node",
    remote: Option<bool> = "remote",
    pid: Pid = "pid",
    process: Option<Arc<str>> = "process",
    tid: Tid = "tid",
    thread: Option<Arc<str>> = "thread",
    address: u64 = "address",
    physical: Option<u64> = "physical_address",
    kind: AccessKind = "kind",
    served: Option<Served> = "served",
    latency_ns: Option<f32> = "latency_ns",
    kernel: bool = "kernel",
    weight: f32 = "weight",
    source: Source = "source",
    function: Option<Arc<str>> = "function",
    image: Option<Arc<str>> = "image",
    line: Option<Arc<str>> = "line",
    object: u32 = "object",
    object_kind: Arc<str> = "object_kind",
    object_address: u64 = "object_address",
    object_bytes: u64 = "object_bytes",
    object_from_ns: u64 = "object_from_ns",
    allocated_by: Option<Tid> = "allocated_by_tid",
    site: u32 = "site",
    site_label: Arc<str> = "site_label",
});

/// Writes samples as one Parquet file, with a row group for each quarter of a million.
pub fn write_joined_samples(to: impl Write + Send, samples: impl IntoIterator<Item = JoinedSample>) -> io::Result<()> {
    let mut writer = TableWriter::new::<JoinedSample>(to).map_err(io::Error::other)?;
    let mut samples = samples.into_iter();
    loop {
        let rows: Vec<JoinedSample> = samples.by_ref().take(ROWS).collect();
        if rows.is_empty() {
            return writer.finish().map(drop).map_err(io::Error::other);
        }
        writer.write(&rows).map_err(io::Error::other)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::fs::File;

    #[test]
    fn all_rows_are_written_in_groups() {
        let sample = |time_ns| JoinedSample {
            time_ns,
            cpu: CpuId(3),
            from: Some(NodeId(1)),
            node: None,
            remote: None,
            pid: Pid(7),
            process: None,
            tid: Tid(8),
            thread: Some("worker".into()),
            address: 0x1000,
            physical: None,
            kind: AccessKind::Load,
            served: Some(Served::Dram),
            latency_ns: Some(104.5),
            kernel: false,
            weight: 1000.0,
            source: Source::Lab,
            function: Some("read_basis".into()),
            image: None,
            line: None,
            object: 2,
            object_kind: "heap".into(),
            object_address: 0x1000,
            object_bytes: 4096,
            object_from_ns: 5,
            allocated_by: None,
            site: 1,
            site_label: "makeMatrix+0x59".into(),
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let count = ROWS as u64 + 1;
        write_joined_samples(file.reopen().unwrap(), (0..count).map(sample)).unwrap();
        let reader = SerializedFileReader::new(File::open(file.path()).unwrap()).unwrap();
        let metadata = reader.metadata();
        assert_eq!((metadata.file_metadata().num_rows(), metadata.num_row_groups()), (count.cast_signed(), 2));
        let last = reader.get_row_iter(None).unwrap().last().unwrap().unwrap().to_string();
        for part in
            [&format!("time_ns: {ROWS}"), "thread: \"worker\"", "process: null", "site_label: \"makeMatrix+0x59\""]
        {
            assert!(last.contains(part), "{part} in {last}");
        }
        write_joined_samples(File::create(file.path()).unwrap(), []).unwrap();
        let reader = SerializedFileReader::new(File::open(file.path()).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
