//! A run that is interrupted at any moment leaves nothing behind.

use crate::support::{LIMIT, Lab, RunOutput};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;
use trace::{Record, Source, Trace};

fn start(lab: &Lab, script: &str) -> Child {
    start_with(lab, &["--out", "out"], script)
}

fn start_with(lab: &Lab, options: &[&str], script: &str) -> Child {
    let mut run = lab.command("small-2x2", options, &["sh", "-c", script]);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal and waits for the end.
fn end(lab: &Lab, child: Child, signal: Signal) -> RunOutput {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ran = RunOutput::from(child.wait_with_output().unwrap());
    lab.assert_nothing_left();
    ran
}

#[test]
fn while_it_boots() {
    let lab = Lab::new();
    for (after_ms, signal, number) in [(0, Signal::INT, 2), (50, Signal::TERM, 15), (1000, Signal::HUP, 1)] {
        let mut child = start_with(&lab, &["--out", "out", "--fresh-boot"], "true");
        lab.wait_for_machine(&mut child);
        std::thread::sleep(Duration::from_millis(after_ms));
        end(&lab, child, signal).failed(128 + number, &[&format!("interrupted by signal {number}")]);
    }
}

#[test]
fn before_it_has_started_anything() {
    let lab = Lab::new();
    for after_ms in [0, 10, 30, 100] {
        let child = start(&lab, "true");
        std::thread::sleep(Duration::from_millis(after_ms));
        // It may not handle signals yet.
        let status = end(&lab, child, Signal::INT).status;
        assert!([130, -2].contains(&status), "{status} after {after_ms} ms");
    }
}

/// Whether a process's child, QEMU, is stopped.
fn is_qemu_stopped(of: &Child) -> bool {
    let children = format!("/proc/{0}/task/{0}/children", of.id());
    let qemu = std::fs::read_to_string(children).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", qemu.trim())).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

/// Its output is not read: it must end all the same, also after Ctrl-Z, which stops the machine as well.
#[test]
fn while_it_runs_and_writes_without_a_reader() {
    let lab = Lab::new();
    let mut child = start(&lab, "exec yes");
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    kill_process(Pid::from_child(&child), Signal::TSTP).unwrap();
    wait_until("QEMU stops", || is_qemu_stopped(&child));
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    wait_until("QEMU goes on", || !is_qemu_stopped(&child));
    std::thread::sleep(Duration::from_millis(500));
    let ran = end(&lab, child, Signal::TERM);
    ran.failed(128 + 15, &["interrupted by signal 15"]);
}

/// The program that is recorded gets the signal, and what was recorded until then is kept.
#[test]
fn while_it_records() {
    let lab = Lab::new();
    let mut record = lab.nearside();
    record.args(["lab", "record", "--machine", "small-2x2", "--quiet", "--timeout", LIMIT, "-o", "trace"]);
    record.args(["--json", "said.json", "--"]);
    record.args(["sh", "-c", "echo here; exec ../nearside-workloads chase --size 8M --repeat 1000000"]);
    let mut child = record.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    end(&lab, child, Signal::INT).failed(128 + 2, &["interrupted by signal 2"]);
    assert!(lab.json("work/said.json")["recording"].is_object() && !lab.path("work/trace/report.json").exists());
    let samples =
        Trace::open(&lab.path("work/trace")).unwrap().records().unwrap().filter(
            |record| matches!(record.as_ref().unwrap(), Record::Sample(sample) if sample.source == Source::Lab),
        );
    assert!(samples.count() > 0);
}

#[test]
fn by_sigkill() {
    let lab = Lab::new();
    let mut child = start(&lab, "echo here; exec sleep 1000");
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    assert!(!lab.machines().is_empty());
    assert_eq!(end(&lab, child, Signal::KILL).status, -9);
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let lab = Lab::new();
    let mut run = std::process::Command::new("sh");
    let script = "trap '' INT HUP; exec \"$0\" lab run --quiet --timeout 600 --machine small-2x2 -- sh -c 'echo here; sleep 1; echo end'";
    run.arg("-c").arg(script).arg(lab.path("nearside")).current_dir(lab.path("work")).process_group(0);
    let mut child =
        run.env("TMPDIR", lab.path("temporary")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    lab.wait_for_machine(&mut child);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 5]).unwrap();
    for signal in [Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("end\n", Some(0)));
    lab.assert_nothing_left();
}
