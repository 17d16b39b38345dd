//! Creates a saved system with one large process, with /proc files in the format of Linux 6.12.

use bench::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The process.
pub const PID: u32 = 4711;
/// Number of its mappings.
pub const MAPPINGS: u64 = 10_000;
/// Its resident bytes.
pub const RESIDENT_BYTES: u64 = 64 << 30;
const NODES: u64 = 4;
const THREADS: u32 = 64;
/// Distance of mappings in the address space.
const STEP: u64 = 64 << 20;
const START: u64 = 0x7f00_0000_0000;

/// Writes the system into a temporary folder, removed when the result is dropped.
pub fn saved_process() -> Result<TempDir, Error> {
    let root = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let put = |path: String, text: &str| put(root.path(), &path, text).map_err(Error::system(format!("write {path}")));
    put("proc/self/mountinfo".into(), "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")?;
    put("sys/devices/system/node/online".into(), &format!("0-{}\n", NODES - 1))?;
    for node in 0..NODES {
        put(format!("sys/devices/system/node/node{node}/cpulist"), &format!("{}-{}\n", node * 16, node * 16 + 15))?;
    }
    let status = "Name:\tdatabase\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nVmSize:\t671088640 kB\n\
                  Cpus_allowed_list:\t0-63\nMems_allowed_list:\t0-3\n";
    let (smaps, numa_maps) = mappings();
    put(format!("proc/{PID}/status"), status)?;
    put(format!("proc/{PID}/cgroup"), "0::/system.slice/database\n")?;
    put(format!("proc/{PID}/smaps"), &smaps)?;
    put(format!("proc/{PID}/numa_maps"), &numa_maps)?;
    for tid in PID..PID + THREADS {
        let folder = format!("proc/{PID}/task/{tid}");
        put(format!("{folder}/status"), status)?;
        put(format!("{folder}/stat"), &format!("{tid} (database) S {}{} 0\n", "0 ".repeat(35), tid % 64))?;
        put(format!("{folder}/numa_maps"), &numa_maps)?;
    }
    Ok(root)
}

fn put(root: &Path, path: &str, text: &str) -> std::io::Result<()> {
    let path = root.join(path);
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

/// Every tenth mapping is of a library, every seventh of hugetlb pages, every fifth has transparent huge pages, the
/// rest base pages; all but the libraries' have the same size.
fn mappings() -> (String, String) {
    let (mut smaps, mut numa_maps) = (String::new(), String::new());
    let mut rest = RESIDENT_BYTES;
    for number in 0..MAPPINGS {
        let start = START + number * STEP;
        let bytes = match number {
            last if last + 1 == MAPPINGS => rest,
            library if library % 10 == 0 => 64 << 10,
            // Whole huge pages, so that these counts are right as well.
            _ => 6 << 20,
        };
        rest -= bytes;
        let hugetlb = number % 7 == 1 && bytes == 6 << 20;
        let huge = !hugetlb && number % 5 == 2;
        // Writing to a String cannot fail.
        let _ = write_mapping(&mut smaps, number, start, bytes, hugetlb, huge);
        let _ = write_numa_mapping(&mut numa_maps, number, start, bytes, hugetlb);
    }
    (smaps, numa_maps)
}

fn name(number: u64, hugetlb: bool) -> &'static str {
    match (number, hugetlb) {
        (_, true) => "/anon_hugepage (deleted)",
        (library, _) if library.is_multiple_of(10) => "/usr/lib/x86_64-linux-gnu/libdatabase.so.1",
        _ => "",
    }
}

fn write_mapping(
    text: &mut String,
    number: u64,
    start: u64,
    bytes: u64,
    hugetlb: bool,
    huge: bool,
) -> std::fmt::Result {
    let kilobytes = |of: bool| if of { bytes / 1024 } else { 0 };
    let page = if hugetlb { 2048 } else { 4 };
    let inode = if name(number, hugetlb).is_empty() { 0 } else { 1000 + number };
    let end = start + (bytes + (1 << 20)).next_multiple_of(2 << 20);
    writeln!(text, "{start:x}-{end:x} rw-p 00000000 fe:00 {inode:<26} {}", name(number, hugetlb))?;
    writeln!(
        text,
        "Size:           {:8} kB\nKernelPageSize: {page:8} kB\nMMUPageSize:    {page:8} kB",
        (end - start) / 1024
    )?;
    writeln!(text, "Rss:            {:8} kB\nPss:            {:8} kB", kilobytes(!hugetlb), kilobytes(!hugetlb))?;
    for field in ["Pss_Dirty", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty", "Referenced"] {
        writeln!(text, "{:<16}{:8} kB", format!("{field}:"), 0)?;
    }
    for (field, value) in [
        ("Anonymous:", kilobytes(!hugetlb)),
        ("KSM:", 0),
        ("LazyFree:", 0),
        ("AnonHugePages:", kilobytes(huge) / 2048 * 2048),
        ("ShmemPmdMapped:", 0),
        ("FilePmdMapped:", 0),
        ("Shared_Hugetlb:", 0),
        ("Private_Hugetlb:", kilobytes(hugetlb)),
        ("Swap:", 0),
        ("SwapPss:", 0),
        ("Locked:", 0),
    ] {
        writeln!(text, "{field:<16}{value:8} kB")?;
    }
    text.push_str("THPeligible:           0\nProtectionKey:         0\nVmFlags: rd wr mr mw me ac sd\n");
    Ok(())
}

fn write_numa_mapping(text: &mut String, number: u64, start: u64, bytes: u64, hugetlb: bool) -> std::fmt::Result {
    let page_bytes: u64 = if hugetlb { 2 << 20 } else { 4096 };
    let policy = if number.is_multiple_of(3) { "interleave:0-3" } else { "default" };
    write!(text, "{start:x} {policy}")?;
    match name(number, hugetlb) {
        "" => {}
        name => write!(text, " file={}", name.replace(' ', "\\040"))?,
    }
    let pages = bytes / page_bytes;
    let of_node = |node: u64| pages / NODES + u64::from(node < pages % NODES);
    write!(text, "{} anon={pages} dirty={pages} active=0", if hugetlb { " huge" } else { "" })?;
    for node in (0..NODES).filter(|node| of_node(*node) > 0) {
        write!(text, " N{node}={}", of_node(node))?;
    }
    writeln!(text, " kernelpagesize_kB={}", page_bytes / 1024)
}
