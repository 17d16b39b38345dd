//! Failures and their messages. `Lab::run` checks that nothing is left behind.

use crate::support::{Lab, PLUGIN, RunOutput, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn with(lab: &Lab, variable: &str, value: &Path) -> RunOutput {
    let mut run = lab.command("small-2x2", &[], &["true"]);
    run.env(variable, value);
    lab.run(run, b"")
}

#[test]
fn a_machine_that_is_not_one_is_refused() {
    let lab = Lab::new();
    let run = |machine: &str, options: &[&str]| lab.run(lab.command(machine, options, &["true"]), b"");
    run("small-2x3", &[]).failed(125, &["small-2x3", "small-2x2"]);
    run("no/such/machine.toml", &[]).failed(125, &["no/such/machine.toml", "no such file"]);

    let small = machine::presets::find("small-2x2").unwrap();
    let toml =
        Command::new(lab.path("nearside")).args(["topology", "--from", "small-2x2", "--format", "toml"]).output();
    let toml = String::from_utf8(toml.unwrap().stdout).unwrap();
    assert_eq!(small.nodes.len(), 2);
    let file = |text: &str| {
        fs::write(lab.path("work/machine.toml"), text).unwrap();
        run("./machine.toml", &[])
    };
    let line = toml.lines().position(|line| line.starts_with("clock_hz")).unwrap() + 1;
    file(&toml.replace("clock_hz = ", "clock_hz = = ")).failed(125, &[&format!("machine.toml:{line}")]);
    file(&toml.replace("clock_hz = ", "clock_herz = ")).failed(125, &[&format!("machine.toml:{line}"), "clock_herz"]);
    let no_memory: Vec<&str> = toml.lines().filter(|line| !line.starts_with("memory_bytes")).collect();
    file(&no_memory.join("\n")).failed(125, &["memory"]);
    // What the model does not simulate is refused before anything boots.
    let lines = file(&toml.replacen("line_bytes = 64", "line_bytes = 128", 1));
    lines.failed(125, &["cache[0].line_bytes = 128", "lines of 64 bytes only"]);
    run("small-2x2", &["--cpus-per-node", "0"]).failed(125, &["--cpus-per-node 0"]);
}

#[test]
fn a_machine_that_this_host_cannot_carry_is_refused() {
    let lab = Lab::new();
    let run = |options: &[&str]| lab.run(lab.command("small-2x2", options, &["true"]), b"");
    run(&["--memory-per-node", "8T"]).failed(125, &["16 TiB of memory", "available", "--memory-per-node"]);
    run(&["--memory-per-node", "64M"]).failed(125, &["too little", "512 MiB", "--memory-per-node"]);
    run(&["--memory-per-node", "1000000001"]).failed(125, &["multiple of 2 MiB"]);
    run(&["--memory-per-node", "much"]).failed(2, &["--memory-per-node", "much"]);

    let large = "name = 'large'
        [[node]]
        id = 0
        cpus = '0-149'
        memory_bytes = '1 GiB'
        [[node]]
        id = 1
        cpus = '150-299'
        memory_bytes = '1 GiB'";
    fs::write(lab.path("work/large.toml"), large).unwrap();
    let large = lab.run(lab.command("./large.toml", &[], &["true"]), b"");
    large.failed(125, &["300 CPUs", "255", "--cpus-per-node"]);
}

#[test]
fn what_is_missing_or_too_old_is_named() {
    let lab = Lab::new();
    let nothing = lab.path("nothing");
    with(&lab, "NEARSIDE_QEMU", &nothing).failed(125, &["NEARSIDE_QEMU=", "nothing", "o such file", "lab setup"]);
    with(&lab, "NEARSIDE_KERNEL_DIR", &nothing).failed(125, &["NEARSIDE_KERNEL_DIR=", "nothing", "lab setup"]);
    with(&lab, "NEARSIDE_PLUGIN", &nothing).failed(125, &["plugin", "nothing", "o such file"]);
    let empty = lab.path("empty");
    fs::create_dir(&empty).unwrap();
    let mut run = lab.command("small-2x2", &[], &["true"]);
    run.env("XDG_CACHE_HOME", &empty).env("PATH", "/nowhere");
    lab.run(run, b"").failed(125, &["no usable QEMU", "nearside lab setup"]);
    fs::remove_file(lab.path("libnearside_lab_plugin.so")).unwrap();
    lab.script("small-2x2", &[], "true").failed(125, &["libnearside_lab_plugin.so", "make install", "NEARSIDE_PLUGIN"]);

    let fake = lab.path("qemu");
    let script = |text: &str| {
        fs::write(&fake, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("echo QEMU emulator version 10.0.2");
    with(&lab, "NEARSIDE_QEMU", &fake).failed(125, &["10.0.2", "older than 11.1"]);
}

#[test]
fn a_kernel_that_is_not_there_is_refused_with_the_command_that_fetches_it() {
    let lab = Lab::new();
    let with_option = |version: &str| lab.run(lab.command("small-2x2", &["--kernel", version], &["true"]), b"");
    let with_variable = |version: &str| {
        let mut run = lab.command("small-2x2", &[], &["true"]);
        run.env("NEARSIDE_KERNEL", version);
        lab.run(run, b"")
    };
    // The user may have fetched any existing kernel; these versions do not exist.
    let fetch = "run: nearside lab setup --kernel 6.999";
    with_option("6.999").failed(125, &["no usable kernel 6.999", "there is ", fetch]);
    with_variable("6.999").failed(125, &["no usable kernel 6.999", "there is ", fetch]);
    with_option("latest").failed(2, &["--kernel", "latest", "a series such as 6.18", "newest"]);
    with_variable("latest").failed(125, &["NEARSIDE_KERNEL=latest", "a series such as 6.18", "newest"]);
    // The same for every command that boots a machine.
    for verb in [&["lab", "record"][..], &["compare"]] {
        let mut run = lab.nearside();
        run.args(verb).args(["--machine", "small-2x2", "--kernel", "6.999", "--", "true"]);
        lab.run(run, b"").failed(125, &[fetch]);
    }
    let empty = lab.path("empty");
    fs::create_dir(&empty).unwrap();
    let mut run = lab.command("small-2x2", &["--kernel", "6.999"], &["true"]);
    run.env("NEARSIDE_KERNEL_DIR", &empty);
    lab.run(run, b"").failed(125, &["NEARSIDE_KERNEL_DIR=", "no boot/vmlinuz-6.999"]);
}

/// A library that this process has loaded.
fn loaded(name: &str) -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.map(PathBuf::from).find(|path| path.to_string_lossy().contains(name)).unwrap()
}

#[test]
fn a_qemu_that_fails_or_hangs_is_reported() {
    let lab = Lab::new();
    // A shell cannot preload the plugin, which needs QEMU's symbols.
    fs::copy(loaded("libgcc_s"), lab.path(PLUGIN)).unwrap();
    let fake = lab.path("qemu");
    let qemu = |text: &str| {
        // Other shells take descriptors of one digit only.
        let script = format!("#!/bin/bash\n[ $# -gt 2 ] || {{ echo QEMU emulator version 11.1.0; exit; }}\n{text}\n");
        fs::write(&fake, script).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let run = |options: &[&str]| {
        let mut run = lab.command("small-2x2", options, &["true"]);
        run.env("NEARSIDE_QEMU", &fake);
        lab.run(run, b"")
    };
    qemu("echo cannot set up guest memory >&2; exit 1");
    run(&[]).failed(125, &["QEMU ended while the guest booted", "exit status: 1", "cannot set up guest memory"]);
    qemu("kill -KILL $$");
    run(&[]).failed(125, &["while the guest booted", "signal: 9", "run out of memory"]);
    qemu("exec sleep 100");
    run(&["--timeout", "1"]).failed(124, &["did not boot within 1 s", "--timeout"]);
    // A foreign guest, on the port that is passed by number.
    qemu(
        "all=$*; port=${all#*socket,id=port,fd=}
        eval \"exec 5>&${port%% *}\"
        head -c 1000 /dev/urandom | tr -d '\\000' >&5
        exec sleep 100",
    );
    run(&[]).failed(125, &["cannot understand the guest"]);
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let lab = Lab::new();
    // Endless, with more output than any reader takes.
    let limit = lab.brief_limit().to_string();
    let ran = lab.script("small-2x2", &["--timeout", &limit], "trap '' TERM; yes");
    ran.failed(124, &[&format!("within {limit} s"), "--timeout"]);
    assert!(ran.output.starts_with(b"y\ny\n"));
}

#[test]
fn a_program_killed_for_memory_is_reported() {
    let lab = Lab::new();
    // A single system call that fills memory: a program whose own pages are dropped and read back meanwhile would take
    // an unpredictable time.
    let fill = "dd if=/dev/zero of=/dev/null bs=450M count=1; echo status $?";
    let ran = lab.script("small-2x2", &["--memory-per-node", "256M", "--thp", "always"], fill);
    ran.failed(0, &["the guest ran out of memory and killed process", "(dd)", "--memory-per-node"]);
    assert_eq!(ran.text(), "status 137\n");
}

#[test]
fn a_kernel_that_panics_is_reported() {
    let lab = Lab::new();
    // Memory that belongs to no process: both in-memory file systems, filled.
    let fill = "for file in /dev/shm/a /tmp/b /dev/shm/c; do head -c 1G /dev/zero > $file; done; tail /dev/zero";
    let script = if is_root() { "echo c > /proc/sysrq-trigger" } else { fill };
    let ran = lab.script("small-2x2", &["--memory-per-node", "256M"], script);
    if is_root() {
        ran.failed(125, &["the guest's kernel panicked while the command ran", "sysrq", "--memory-per-node"]);
    } else {
        assert!(ran.error.contains("memory"), "{}", ran.error);
    }
}

#[test]
fn a_working_folder_that_the_guest_lacks_is_reported() {
    let lab = Lab::new();
    let mut run = lab.command("small-2x2", &[], &["true"]);
    run.current_dir("/sys/kernel").env("PWD", "/sys/kernel");
    assert_eq!(lab.run(run, b"").status, 0, "a folder that both have is the guest's");
    let Ok(folder) = tempfile::TempDir::new_in("/dev/shm") else {
        return test_tools::skipped("/dev/shm may not be written");
    };
    let mut run = lab.command("small-2x2", &[], &["true"]);
    run.current_dir(folder.path());
    lab.run(run, b"").failed(125, &["working directory /dev/shm/", "the guest's own"]);
}
