//! The agent is killed on a virtual machine of four nodes, where pages move and the kernel's switch is real. The test of the
//! lab has the same machine, and compares once at the end.

use crate::Part;
use bench::programs;
use std::io;
use std::process::{Command, Stdio};

const BEGIN: &str = include_str!("../../../../crates/nearside/tests/lab/programs/agent_begin.sh");
const KILLS: &str = include_str!("lab_kills.sh");
/// The machine of the lab's own test: a small part of the model, and rounds that are short in simulated time.
const OPTIONS: &str = "lab run --quiet --machine small-4x2 --cpus-per-node 1 --thp never --numa-balancing on --time-scale 20 \
    --fidelity fast --timeout 3000 -- sh -c";

pub fn run(kills: usize) -> Part {
    let (nearside, path) = programs().map_err(io::Error::other)?;
    // The search path has the programs, where the script expects them a folder above.
    let begin = BEGIN.replace("PATH=$(realpath ..):$PATH\n", "");
    let script = format!("kills={kills}\n{begin}{KILLS}");
    let mut command = Command::new(nearside);
    command.args(OPTIONS.split_whitespace()).arg(script).env("PATH", path).stdin(Stdio::null());
    let ran = command.output()?;
    let [printed, said] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let mut broken: Vec<String> =
        printed.lines().filter_map(|line| line.strip_prefix("broken: ")).map(str::to_owned).collect();
    let done = printed.lines().find_map(|line| line.strip_prefix("done: "));
    let done = done.ok_or_else(|| io::Error::other(format!("{printed}{said}")))?.to_owned();
    if kills > 10 && done.contains(" 0 of agents") {
        broken.push("no agent had changed anything when it was killed: this shows nothing".to_owned());
    }
    Ok((done, broken))
}
