//! The agent is killed on a virtual machine of four nodes, where pages move and the kernel's switch is real. The test of the
//! lab has the same machine, and compares once at the end.

use crate::Part;
use bench::Machine;

const BEGIN: &str = include_str!("../../../../crates/nearside/tests/lab/programs/agent_begin.sh");
const KILLS: &str = include_str!("lab_kills.sh");
/// Limit of host time, s.
const TIMEOUT_S: u64 = 3000;

pub fn run(kills: usize) -> Part {
    let machine = Machine {
        machine: "small-4x2".to_owned(),
        memory_per_node: None,
        cpus_per_node: Some(1),
        thp: Some("never"),
        fidelity: "fast",
        timeout_s: TIMEOUT_S,
    };
    // The runner's search path has the programs, where the script expects them a folder above.
    let begin = BEGIN.replace("PATH=$(realpath ..):$PATH\n", "");
    let script = format!("kills={kills}\n{begin}{KILLS}");
    let ran = machine.run(&["sh", "-c", &script], |_| ()).map_err(std::io::Error::other)?;
    let broken = ran.printed.lines().filter_map(|line| line.strip_prefix("broken: ")).map(str::to_owned).collect();
    let done = ran.printed.lines().find_map(|line| line.strip_prefix("done: "));
    let done = done.ok_or_else(|| std::io::Error::other(ran.printed.clone() + &ran.complained))?;
    Ok((done.to_owned(), broken))
}
