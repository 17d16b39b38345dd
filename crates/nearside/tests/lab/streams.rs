//! The command line is passed unchanged, as are its streams and its exit status.

use crate::support::{Lab, noise};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

#[test]
fn a_command_runs_with_its_arguments_environment_folder_and_user() {
    let lab = Lab::new();
    let folder = lab.path("work").join(os(b"a folder, \"quoted\" \xff"));
    std::fs::create_dir(&folder).unwrap();
    let script =
        "pwd; id -u; id -g; id -G; umask; cat | wc -c; printf '%s\\n' \"$#\" \"$@\"; env -0 | sort -z | grep -az ^LAB_";
    let arguments: [&[u8]; 7] = [b"", b"two words", b"'\"`$(x)\\", b"--", b"-c", b"\xff\xfe", b"line\nbreak"];
    let mut command = vec![os(b"sh"), os(b"-c"), os(script.as_bytes()), os(b"name")];
    command.extend(arguments.map(os));
    let mut run = lab.command("small-2x2", &["--quiet"], &command);
    run.current_dir(&folder).env("LAB_EMPTY", "").env("LAB_BYTES", os(b"\x80 =\n'"));
    let ran = lab.run(run, b"");
    assert_eq!(ran.error, "");

    let here = |command: &str| {
        let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        output.stdout
    };
    let mut wanted = folder.as_os_str().as_bytes().to_vec();
    wanted.push(b'\n');
    wanted.extend(here("id -u; id -g; id -G; umask"));
    wanted.extend(b"0\n7\n");
    for argument in arguments {
        wanted.extend([argument, b"\n"].concat());
    }
    wanted.extend(b"LAB_BYTES=\x80 =\n'\0LAB_EMPTY=\0");
    assert_eq!(ran.output.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    assert_eq!(ran.status, 0);
}

#[test]
fn streams_are_kept_apart_and_carry_any_bytes() {
    let lab = Lab::new();
    let input = noise(3 << 20);
    // The last lines come from a process that outlives the command briefly.
    let script = "head -c 1048576 | tee /dev/stderr >/dev/null; cat; (sleep 0.2; echo late >&2) & exit 3";
    let mut child = lab
        .command("small-2x2", &["--quiet"], &["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let fed = input.clone();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &fed));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let (first, rest) = input.split_at(1 << 20);
    assert!(output.stdout == rest, "{} bytes of output", output.stdout.len());
    assert!(output.stderr == [first, b"late\n"].concat(), "{} bytes of errors", output.stderr.len());
    lab.assert_nothing_left();
}

#[test]
fn input_that_is_not_read_holds_up_nothing_and_large_output_arrives() {
    let lab = Lab::new();
    let run = lab.command("small-2x2", &["--quiet"], &["sh", "-c", "head -c 10; seq 1 700000; exit 255"]);
    let ran = lab.run(run, &noise(3 << 20));
    assert_eq!((ran.status, ran.error.as_str()), (255, ""));
    let (first, rest) = ran.output.split_at(10);
    assert!(first == &noise(10)[..]);
    let wanted = (1..=700_000).map(|number| number.to_string());
    assert!(std::str::from_utf8(rest).unwrap().lines().eq(wanted), "{} bytes", rest.len());
}

#[test]
fn a_reader_that_goes_away_ends_the_writer_as_it_does_without_a_lab() {
    let lab = Lab::new();
    // Unread input must not block messages from the guest.
    let mut child = lab
        .command("small-2x2", &["--quiet"], &["sh", "-c", "yes; echo status $? >&2; kill -TERM $$"])
        .stdin(std::fs::File::open("/dev/zero").unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    let ran = crate::support::RunOutput::from(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.error.as_str()), (128 + 15, "status 141\n"));
    lab.assert_nothing_left();
}

#[test]
fn a_reader_that_waits_loses_nothing() {
    let lab = Lab::new();
    let mut child = lab
        .command("small-2x2", &["--quiet", "--json", "../report.json"], &["seq", "200000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The first bytes have arrived: the command runs, and will soon wait for this reader.
    let mut stdout = child.stdout.take().unwrap();
    let mut output = vec![0; 1];
    stdout.read_exact(&mut output).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    stdout.read_to_end(&mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::str::from_utf8(&output).unwrap().lines().count(), 200_000);
    assert_eq!(lab.json("report.json")["exit_status"], 0);
    lab.assert_nothing_left();
}

#[test]
fn a_command_that_cannot_be_run_says_why() {
    let lab = Lab::new();
    let run = |command: &str| lab.run(lab.command("small-2x2", &[], &[command]), b"");
    run("no-such-command").failed(127, &["cannot run `no-such-command`", "no folder of PATH has a program"]);
    run("/etc/passwd").failed(126, &["cannot run `/etc/passwd`", "this user may not execute it"]);
}
