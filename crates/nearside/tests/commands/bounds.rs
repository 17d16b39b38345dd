//! Files without an end, and files that expand: refused with the bound, within 512 MiB of address space.

use crate::perf_file::{LOCAL, MemorySample, SAMPLE_TYPE, file, mmap, record, sample};
use crate::support::RunOutput;
use saved_files::SavedFiles;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// The type of compressed records.
const COMPRESSED: u32 = 81;

/// Runs nearside with at most 512 MiB of address space.
fn nearside(arguments: &[&str]) -> RunOutput {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 524288; exec timeout 120 \"$0\" \"$@\""]);
    RunOutput::from(command.arg(assert_cmd::cargo::cargo_bin("nearside")).args(arguments).output().unwrap())
}

/// Checks that a command fails and names the file and the bound.
fn refused(arguments: &[&str], file: &str) {
    let ran = nearside(arguments);
    let told = ran.error.contains(file) && ran.error.contains("it is longer than ");
    assert!(ran.status != 0 && told, "{arguments:?}: {} {}", ran.status, ran.error);
}

#[test]
fn files_without_an_end_are_refused_with_their_bound() {
    refused(&["lab", "show", "/dev/zero"], "/dev/zero");
    refused(&["topology", "--from", "/dev/zero"], "/dev/zero");
    refused(&["replay", "/dev/zero"], "/dev/zero");
    let folder = SavedFiles::new();
    let path = folder.path().to_str().unwrap();
    symlink("/dev/zero", folder.path().join("SRAT")).unwrap();
    refused(&["topology", "--from", path], "SRAT");
    symlink("/dev/zero", folder.path().join("trace.toml")).unwrap();
    refused(&["report", path], "trace.toml");
}

#[test]
fn files_of_a_saved_system_without_an_end_are_refused() {
    let root = SavedFiles::new();
    root.put("proc/7/task/7/status", "Name:\tserver\n");
    root.put("sys/devices/system/node/node0/cpulist", "0");
    let path = root.path().to_str().unwrap();
    symlink("/dev/zero", root.path().join("proc/7/status")).unwrap();
    refused(&["show", "--root", path, "7"], "status");
    fs::remove_file(root.path().join("proc/7/status")).unwrap();
    symlink("/dev/zero", root.path().join("sys/devices/system/node/online")).unwrap();
    refused(&["memory", "--root", path], "online");
}

/// 200 MB of events with long names, in compressed records.
#[test]
fn compressed_events_with_long_names_are_refused_at_the_same_bound() {
    let name = format!("/{}", "x".repeat(4000));
    let mapping = mmap(1000, 7, 0x40_0000, 0x1000, &name);
    let plain = mapping.repeat(200);
    let mut compressed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    zstd_safe::compress(&mut compressed, &plain, 3).unwrap();
    let folder = SavedFiles::new();
    let path = folder.path().join("perf.data");
    let records = vec![record(COMPRESSED, 0, &compressed); 250];
    fs::write(&path, file("mem-loads", SAMPLE_TYPE, &records)).unwrap();
    let (succeeded, peak, said) = crate::peaks::peak(&["report", path.to_str().unwrap()]);
    assert!(!succeeded && said.contains("exceed 128 MiB") && peak <= 256 << 20, "{peak} bytes: {said}");
}

/// 180 MB of equal samples, compressed to one record.
#[test]
fn a_compressed_file_that_expands_too_far_is_refused_unless_it_is_allowed() {
    let load = sample(&MemorySample {
        time: 1000,
        pid: 7,
        tid: 7,
        cpu: 0,
        instruction: 0x40_0000,
        address: 0x1000,
        physical: 0x1000,
        data_source: LOCAL,
        cycles: 100,
    });
    let plain = load.repeat(2_250_000);
    let mut compressed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    zstd_safe::compress(&mut compressed, &plain, 3).unwrap();
    let bytes = file("mem-loads", SAMPLE_TYPE, &[record(COMPRESSED, 0, &compressed)]);
    let folder = SavedFiles::new();
    let path = folder.path().join("perf.data");
    fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let ran = nearside(&["report", path]);
    let (_, peak, _) = crate::peaks::peak(&["report", path]);
    assert!(peak <= 256 << 20, "{peak} bytes");
    let told =
        ran.error.contains(path) && ran.error.contains("exceed 128 MiB") && ran.error.contains("--max-memory 1G");
    assert!(ran.status == 1 && told, "{} {}", ran.status, ran.error);
    let ran = nearside(&["report", path, "--max-memory", "1G"]).succeeded();
    assert!(ran.text().contains("2,250,000"), "{}", ran.text());
    let own = std::process::id().to_string();
    for verb in ["migrate", "bind"] {
        let words = [verb, &own, "--trace", path];
        let refused = nearside(&words);
        assert!(
            refused.error.contains("exceed 128 MiB") && refused.error.contains("--max-memory 1G"),
            "{}",
            refused.error
        );
        // It is read then, and is not of this process.
        let allowed = nearside(&[&words[..], &["--max-memory", "1G"]].concat());
        assert!(
            allowed.status == 2 && allowed.error.contains("cannot be used"),
            "{} {}",
            allowed.status,
            allowed.error
        );
    }
}

/// Some kilobytes that name many millions of CPUs, and machine files of any length.
#[test]
fn short_machine_files_take_little_memory_and_time() {
    let folder = SavedFiles::new();
    let cores = vec!["\"0-1048576\""; 2000].join(",");
    let node = "node = [{ id = 0, cpus = \"0\", memory_bytes = \"1G\" }]";
    let text = format!("name = \"bomb\"\nsmt_cores = [{cores}]\n{node}\n");
    let path = folder.path().join("bomb.toml");
    fs::write(&path, &text).unwrap();
    let (succeeded, peak, said) = crate::peaks::peak(&["topology", "--from", path.to_str().unwrap()]);
    assert!(!succeeded && said.contains("no node has CPU") && peak <= 256 << 20, "{peak} bytes: {said}");
    fs::write(&path, format!("{text}{}", "# a comment\n".repeat(1 << 20))).unwrap();
    refused(&["topology", "--from", path.to_str().unwrap()], "bomb.toml");
}
