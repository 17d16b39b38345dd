//! Duration of one decision about a grant on a machine of 64 nodes and 512 CPUs that has 200 grants.

use crate::placement_speed::processor_time;
use crate::target::{Row, Target, median};
use agent::grants::{Carrier, Records, read_records};
use bench::{Error, nearside};
use machine::{Machine, NodeId};
use reserve::{
    Asker, CacheIsolation, Control, Facts, Isolation, Ledger, Memory, Preference, ReadWrite, Request, Rules, Throttle,
};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const RUNS: usize = 25;
/// Nodes in a row of the torus.
const SIDE: u32 = 8;
const GRANTS: u32 = 200;

/// Times a request that is granted, and one that each candidate refuses, as CPU time, since a decision waits for
/// nothing; and the command.
pub fn measure() -> Result<Vec<Row>, Error> {
    let ledger = ledger()?;
    let isolate = Isolation { core: true, controller: true, ..Isolation::default() };
    let granted = Request { isolate, prefer: Preference::Latency, ..Request::default() };
    let exclusive = Isolation { cache: CacheIsolation::Exclusive, ..isolate };
    let refused = Request { isolate: exclusive, ..granted.clone() }.complete();
    Ok(vec![row(&ledger, "granted", &granted, true)?, row(&ledger, "refused", &refused, false)?, command(&ledger)?])
}

/// `nearside reserve check` on a description of the machine, which has no grants, and the reading of the records of as many
/// as there are: what it does on such a machine itself.
fn command(ledger: &Ledger) -> Result<Row, Error> {
    let folder = tempfile::tempdir().map_err(Error::system("create a folder for the machine and its grants"))?;
    let (machine, records_folder) = (folder.path().join("torus.toml"), folder.path().join("grants"));
    std::fs::write(&machine, torus()).map_err(Error::system("write the machine"))?;
    let records = Records::lock(&records_folder).map_err(|error| none(machine::chain(&error)))?;
    for grant in ledger.grants() {
        let added = records.add(grant, Carrier::Process("bench"), Throttle::Duty, None, None);
        added.map_err(|error| none(machine::chain(&error)))?;
    }
    let arguments = ["reserve", "check", "--isolate", "core,controller", "--prefer", "latency", "--machine"];
    let nearside = nearside()?;
    let decide = |_| {
        let started = Instant::now();
        let status = Command::new(&nearside).args(arguments).arg(&machine).stdout(Stdio::null()).status();
        let status = status.map_err(Error::system("run nearside"))?;
        let read = read_records(&records_folder).len();
        let taken = started.elapsed().as_secs_f64() * 1e3;
        let all = ledger.grants().count();
        if status.success() && read == all { Ok(taken) } else { Err(none(format!("{status}, {read} records"))) }
    };
    let what = format!("nearside reserve check, 64 nodes, 512 CPUs, and reading the records of {GRANTS} grants");
    figure(what, 20.0, decide)
}

fn row(ledger: &Ledger, answer: &str, request: &Request, is_granted: bool) -> Result<Row, Error> {
    let asker = Asker::default();
    let decide = |_| {
        let started = processor_time();
        let decided = ledger.admit(std::slice::from_ref(request), &asker);
        let taken = processor_time().saturating_sub(started);
        let said = decided.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if decided.is_ok() == is_granted { Ok(taken.as_secs_f64() * 1e3) } else { Err(none(said)) }
    };
    figure(format!("reserve: a request {answer}, 64 nodes, 512 CPUs, {GRANTS} grants"), 5.0, decide)
}

/// The median of the times of all runs, ms.
fn figure(what: String, most_ms: f64, decide: impl FnMut(usize) -> Result<f64, Error>) -> Result<Row, Error> {
    let times: Result<Vec<f64>, Error> = (0..RUNS).map(decide).collect();
    Ok(Row {
        what,
        target: Target::AtMost(most_ms),
        measured: median(times?),
        unit: "ms",
        command: "nearside-bench --only reserve".to_owned(),
    })
}

/// Three or four grants a node, one of which has a guarded controller and two have promised bandwidth.
fn ledger() -> Result<Ledger, Error> {
    let machine = Machine::from_toml(&torus(), Path::new("torus.toml"));
    let machine = machine.map_err(|error| none(machine::chain(&error)))?;
    let mut ledger = Ledger::new(Arc::new(Facts::new(machine, Control::default())), Rules::default());
    for number in 0..GRANTS {
        let isolate = Isolation { core: true, controller: number % 3 == 0, ..Isolation::default() };
        let bandwidth = (number % 3 < 2).then_some(ReadWrite { read: 2e9, write: 5e8 });
        let memory = Memory::Node(NodeId(number % (SIDE * SIDE)));
        let request = Request { isolate, bandwidth, memory, prefer: Preference::Latency, ..Request::default() };
        let admitted = ledger.admit(&[request], &Asker::default());
        ledger = admitted.map_err(|refusal| none(refusal.to_string()))?.after;
    }
    Ok(ledger)
}

/// A machine file of 64 nodes in a torus, each with 8 cores.
fn torus() -> String {
    let mut text = String::from(
        "name = \"torus\"\n\
         core = { clock_hz = 2e9, instructions_per_cycle = 2, stream_bandwidth_bytes_per_s = 8e9, stream_lines = 20, store_lines = 10 }\n\
         latency = { by_hops_ns = [90, 150, 210, 270, 330, 390, 450, 510, 570], loaded_slope = 0.1 }\n",
    );
    for node in 0..SIDE * SIDE {
        let (column, line) = (node % SIDE, node / SIDE);
        let [right, below] = [line * SIDE + (column + 1) % SIDE, (line + 1) % SIDE * SIDE + column];
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[[node]]\nid = {node}\ncpus = \"{}-{}\"\nmemory_bytes = \"64 GiB\"\nbandwidth_bytes_per_s = 100e9\n\
             [[link]]\nnodes = [{node}, {right}]\nbandwidth_bytes_per_s = 20e9\n\
             [[link]]\nnodes = [{node}, {below}]\nbandwidth_bytes_per_s = 20e9\n",
            8 * node,
            8 * node + 7
        );
    }
    text + "[[cache]]\nlevel = 3\nkind = \"unified\"\nsize_bytes = \"32 MiB\"\nways = 16\nline_bytes = 64\nshared_by = \"node\"\n"
}

fn none(said: String) -> Error {
    Error::NoFigure { command: "reserve::Ledger::admit".into(), figure: "decision about a grant".into(), said }
}
