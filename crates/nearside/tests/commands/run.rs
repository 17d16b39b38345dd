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

/// numactl's `--cpunodebind` means all CPUs of the nodes that the cpuset allows, whatever was inherited.
#[test]
fn nodes_have_all_their_cpus_as_with_numactl_whatever_affinity_was_inherited() {
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    let nearside = [nearside.to_str().unwrap(), "run"];
    let last = machine::Machine::from_sysfs(std::path::Path::new("/sys")).unwrap().cpus().iter().last().unwrap();
    let run = |program: &[&str], nodes: &str| {
        let mut command = process::Command::new("taskset");
        command.arg("-c").arg(last.to_string()).args(program).args([
            "-N",
            nodes,
            "grep",
            "Cpus_allowed_list",
            "/proc/self/status",
        ]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for nodes in ["0", "+0", "all"] {
        assert_eq!(run(&nearside, nodes), run(&["numactl"], nodes), "{nodes}");
    }
}

/// The first object of each kind has CPUs on every machine; the thousandth core is on none that runs these tests.
#[test]
fn cpus_may_be_named_as_objects() {
    let run =
        |arguments: &[&str]| Command::cargo_bin("nearside").unwrap().arg("run").args(arguments).arg("--show").assert();
    let bound = |arguments: &[&str]| {
        let said = run(arguments).success();
        let said = String::from_utf8(said.get_output().stdout.clone()).unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("physcpubind: ")).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = bound(&["--all", "--cpus", "machine:0"]);
    assert_eq!(bound(&["--all", "-C", "pu:all"]), all);
    assert_eq!(bound(&["--all", "-C", "node:all.pu:0,pu:all"]), all);
    assert_eq!(bound(&["--all", "--cpus", "pu:0"]).len(), 1);
    let core = bound(&["--all", "--physcpubind", "core:0"]);
    assert!(core.contains(&bound(&["--all", "-C", "core:0.pu:0"])[0]));
    assert!(!bound(&["--all", "-N", "node:0"]).is_empty());
    for (cpus, says) in [
        ("core:100000", "no core:100000: this machine has machine:0-0"),
        ("core:0.pu:512", "no pu:512 in core:0: this machine has pu:0-"),
        ("die:0", "`die` is neither a kind of objects"),
        ("core:", "does not say which"),
    ] {
        let said = run(&["-C", cpus]).code(2).stdout("");
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert!(said.contains(says), "{cpus}: {said}");
    }
}

/// nearside raises its own limit of open files, for perf's events: programs depend on that of before.
#[test]
fn programs_have_the_file_limit_that_nearside_was_started_with() {
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    for words in ["run --", "run --steady --", "record --quiet -o \"$0\" --"] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("ulimit -Sn 77; exec {} {words} sh -c 'ulimit -Sn'", nearside.display());
        let mut command = process::Command::new("sh");
        let output = command.args(["-c", &script]).arg(folder.path().join("trace")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().next(), Some("77"), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Services of systemd are started so: their programs would end at the first write to a connection that was closed.
#[test]
fn programs_ignore_the_pipe_signal_if_nearside_was_started_so() {
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    let seen = |trap: &str, words: &str| {
        let script = format!("{trap} exec {} {words} grep SigIgn /proc/self/status", nearside.display());
        let output = process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap_or_else(|| panic!("{text}"));
        u64::from_str_radix(mask, 16).unwrap() >> 12 & 1
    };
    for words in ["run --", "run --steady --", "run --huge never --"] {
        assert_eq!((seen("trap '' PIPE;", words), seen("", words)), (1, 0), "{words}");
    }
}

/// That a request that is refused later leaves nothing is tested in the lab, where memory may run out.
#[test]
fn a_segment_that_is_not_to_be_made_gets_no_key_file() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let mut command = Command::cargo_bin("nearside").unwrap();
    let asserted = command.args(["run", "--shm"]).arg(&key).arg("--dump").assert().code(2).stdout("");
    let said = String::from_utf8(asserted.get_output().stderr.clone()).unwrap();
    assert!(said.contains("there is no such segment, and no length to create one"), "{said}");
    assert!(!key.exists());
}

/// numactl takes them without a word.
#[test]
fn options_without_effect_are_noted() {
    let run = |arguments: &[&str]| {
        let output = Command::cargo_bin("nearside").unwrap().arg("run").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let noted = |arguments: &[&str], note: &str| {
        let (code, said) = run(arguments);
        assert!(code == Some(0) && said.contains(note), "{arguments:?}: {code:?} {said}");
    };
    noted(&["--shmmode", "700", "true"], "--shmmode is for shared memory, and is ignored");
    noted(&["-C", "0", "--hardware", "true"], "--hardware prints the nodes and runs nothing");
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let path = file.path().to_str().unwrap();
    noted(&["--huge", "--file", path, "--length", "4096", "--touch"], "--huge is for --shm, and is ignored");
    assert_eq!(run(&["--hardware"]), (Some(0), String::new()));
    for own in [&["--steady"][..], &["--heap"], &["--cgroup", "/x"]] {
        let (code, said) = run(&[&["--hardware"], own].concat());
        assert!(code == Some(2) && said.contains("cannot be used with"), "{own:?}: {code:?} {said}");
    }
}
