//! What `make portable`, the container and the action rely on.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

#[test]
fn a_program_that_needs_a_newer_glibc_is_refused() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/check-glibc");
    let output = |most: &str| Command::new(&check).arg(most).arg(cargo_bin("nearside")).output().unwrap();
    // Symbols of x86-64 begin with 2.2.5.
    let refused = output("2.1");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("needs glibc 2.") && said.contains("which is newer than 2.1"), "{said}");
    let accepted = output("2.99");
    assert!(accepted.status.success() && accepted.stdout.starts_with(b"nearside: glibc 2."));
    // Compared by numbers: 2.31 is newer than 2.4.
    assert_eq!(output("2.4").status.code(), Some(1));
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A build of this host, gigabytes large, is not sent to the container's, and all that is copied exists.
#[test]
fn the_container_copies_what_is_there_and_no_build() {
    let text = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let ignored = text(".dockerignore");
    assert!(text(".gitignore").lines().filter(|line| line.starts_with('/')).all(|folder| {
        let folder = folder.trim_start_matches('/');
        ignored.lines().any(|line| line == folder)
    }));
    let containerfile = text("packaging/Containerfile");
    let copies: Vec<&str> = containerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    assert_eq!(copies.len(), 3, "{copies:?}");
    // The other one is of the first stage.
    for copy in copies.iter().filter(|copy| !copy.starts_with("--from")) {
        assert!(repository().join(copy.split(' ').next().unwrap()).exists(), "{copy}");
    }
}

/// As in a container of another user, where /dev/stdout cannot be opened: neither can a socket be.
#[test]
fn the_table_of_machines_needs_no_standard_output_that_can_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let fake = folder.path().join("nearside");
    fs::write(&fake, "#!/bin/sh\ncase $5 in bad) exit 3;; esac\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = std::process::Command::new(repository().join("packaging/action/test-on-machines"));
    command.args(["good bad", "true"]).env("NEARSIDE", &fake).env("OUT", folder.path().join("out"));
    let status = command.env_remove("GITHUB_STEP_SUMMARY").stdout(OwnedFd::from(theirs)).status().unwrap();
    drop(command);
    let mut text = String::new();
    ours.shutdown(Shutdown::Write).unwrap();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(status.code(), Some(1));
    for row in ["| good | passed | unknown |\n", "| bad | failed with exit code 3 | unknown |\n"] {
        assert!(text.contains(row), "{text}");
    }
}
