//! The node-aware allocator beside the C library's, mimalloc and jemalloc, where those are installed: time, memory, and the
//! place of what another node frees. docs/heap.md has the figures.

use crate::target::{Row, Target, median};
use bench::{Error, nearside};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of each allocator, alternating.
const RUNS: usize = 5;
const PAIRS: [&str; 4] = ["objects", "pairs", "--count", "20000000"];
/// Shapes of sizes and lifetimes: `nearside-workloads objects --help`.
const SHAPES: [&str; 3] = ["server", "mixed", "phases"];
/// Machines of the exchange, with the objects of each.
const MACHINES: [(&str, &str); 2] = [("small-2x2", "60000"), ("small-4x2", "40000")];
/// Debian's folder of libraries, and that of other distributions.
const LIBRARIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// An allocator: its name, and the library that is it; none for the C library's.
struct Allocator {
    name: &'static str,
    library: Option<PathBuf>,
}

impl Allocator {
    /// What a run of a workload prints at a path of its JSON.
    fn run(&self, command: &mut Command, figure: &str) -> Result<f64, Error> {
        let output = command.output().map_err(Error::system("run nearside-workloads"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match explore::numbers(&said, figure)[..] {
            [number] => Ok(number),
            _ => Err(Error::NoFigure { command: self.command(&["objects"]), figure: figure.to_owned(), said }),
        }
    }

    fn workload(&self, arguments: &[&str], figure: &str) -> Result<f64, Error> {
        let mut command = Command::new(nearside()?.with_file_name("nearside-workloads"));
        self.run(command.args(arguments).envs(self.library.iter().map(|library| ("LD_PRELOAD", library))), figure)
    }

    /// The same in the lab.
    fn exchange(&self, machine: &str, count: &str) -> Result<f64, Error> {
        let nearside = nearside()?;
        let mut command = Command::new(&nearside);
        command.args(["lab", "run", "--quiet", "--machine", machine, "--"]);
        if let Some(library) = &self.library {
            command.arg("env").arg(format!("LD_PRELOAD={}", library.display()));
        }
        command.arg(nearside.with_file_name("nearside-workloads")).args(["objects", "exchange", "--count", count]);
        self.run(&mut command, "/local_share")
    }

    fn command(&self, arguments: &[&str]) -> String {
        let name = self.library.as_ref().and_then(|library| library.file_name()).map(|name| name.to_string_lossy());
        let preload = name.map_or_else(String::new, |name| format!("LD_PRELOAD={name} "));
        format!("{preload}nearside-workloads {}", arguments.join(" "))
    }

    fn row(&self, what: &str, target: Target, measured: f64, unit: &'static str, arguments: &[&str]) -> Row {
        let what = format!("{}: {what}", self.name);
        Row { what, target, measured, unit, command: self.command(arguments) }
    }
}

/// The heap first, then the others that are there.
fn allocators() -> Result<Vec<Allocator>, Error> {
    let heap = nearside()?.with_file_name("libnearside_heap.so");
    let others = [("mimalloc", "libmimalloc.so."), ("jemalloc", "libjemalloc.so.")];
    let others =
        others.into_iter().filter_map(|(name, file)| Some(Allocator { name, library: Some(installed(file)?) }));
    let own = [Allocator { name: "heap", library: Some(heap) }, Allocator { name: "glibc", library: None }];
    Ok(own.into_iter().chain(others).collect())
}

/// The first library whose name begins like this.
fn installed(beginning: &str) -> Option<PathBuf> {
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning));
    LIBRARIES.iter().find_map(|folder| {
        let mut found: Vec<_> = fs::read_dir(Path::new(folder)).ok()?.flatten().map(|file| file.path()).collect();
        found.sort();
        found.into_iter().find(named)
    })
}

/// Measures each allocator in each way.
pub fn measure() -> Result<Vec<Row>, Error> {
    eprintln!("allocators");
    let allocators = allocators()?;
    let mut ns = vec![Vec::new(); allocators.len()];
    for _ in 0..RUNS {
        for (allocator, ns) in allocators.iter().zip(&mut ns) {
            ns.push(allocator.workload(&PAIRS, "/ns_per_pair")?);
        }
    }
    let ns: Vec<f64> = ns.into_iter().map(median).collect();
    let mut rows = Vec::new();
    for (allocator, ns_per_pair) in allocators.iter().zip(&ns) {
        let what = "a pair of malloc and free, 16 to 512 bytes, 2 threads";
        rows.push(allocator.row(what, Target::None, *ns_per_pair, "ns", &PAIRS));
    }
    let (heap, others) = (&allocators[0], allocators.iter().zip(&ns).skip(1));
    for (other, theirs) in others {
        let most = match other.name {
            "glibc" => Target::AtMost(1.0),
            "mimalloc" => Target::AtMost(1.2),
            _ => Target::None,
        };
        rows.push(heap.row(&format!("such a pair, of {}'s", other.name), most, ns[0] / theirs, "times", &PAIRS));
    }
    let is_heap = |allocator: &Allocator| allocator.name == "heap";
    for shape in SHAPES {
        let arguments = ["objects", shape, "--count", "600000"];
        for allocator in &allocators {
            let target = if is_heap(allocator) { Target::AtMost(1.3) } else { Target::None };
            let measured = allocator.workload(&arguments, "/memory_over_live")?;
            rows.push(allocator.row(
                &format!("memory at the peak over live bytes, {shape}"),
                target,
                measured,
                "",
                &arguments,
            ));
        }
    }
    for (machine, count) in MACHINES {
        for allocator in &allocators {
            let target = if is_heap(allocator) { Target::AtLeast(99.0) } else { Target::None };
            let measured = 100.0 * allocator.exchange(machine, count)?;
            let what = format!("local objects of a producer whose consumer is on another node, {machine}");
            let mut row = allocator.row(&what, target, measured, "%", &["objects", "exchange", "--count", count]);
            row.command = format!("nearside lab run --machine {machine} -- env {}", row.command);
            rows.push(row);
        }
    }
    Ok(rows)
}
