//! `nearside run` on this host.

use assert_cmd::Command;
use std::process;

/// numactl counts among the CPUs that it inherits, and so do MPI launchers and batch systems that bind by affinity.
#[test]
fn cpus_are_those_of_the_inherited_affinity() {
    let allowed = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap();
    let allowed: machine::CpuSet = allowed.parse().unwrap();
    let (Some(first), Some(last)) = (allowed.first(), allowed.iter().last()) else { unreachable!("a test has a CPU") };
    if first == last {
        return test_tools::skipped("there is one CPU only");
    }
    let run = |cpus: &str| {
        let nearside = assert_cmd::cargo::cargo_bin("nearside");
        let program = ["--", "grep", "Cpus_allowed_list", "/proc/self/status"];
        let mut command = process::Command::new("taskset");
        command.arg("-c").arg(last.to_string()).arg(nearside).args(["run", "-C", cpus]).args(program);
        Command::from_std(command).assert()
    };
    let expected = format!("Cpus_allowed_list:\t{last}\n");
    for cpus in ["all", "+0", &last.to_string()] {
        run(cpus).success().stdout(expected.clone());
    }
    for outside in [first.to_string(), format!("!{last}"), "+1".to_owned()] {
        run(&outside).failure().stdout("");
    }
}
