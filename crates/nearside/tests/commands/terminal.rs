//! Reports on terminals: their width, colour and pager.

use crate::report::written;
use crate::traces;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use unicode_width::UnicodeWidthStr;

/// What a command writes to a terminal of this many columns, and how it ends.
fn on_terminal(columns: u16, variables: &[(&str, &str)], arguments: &[&str]) -> (String, Option<i32>) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
    for name in ["NO_COLOR", "PAGER", "NEARSIDE_PAGER", "LESS"] {
        command.env_remove(name);
    }
    command.env("TERM", "xterm").envs(variables.iter().copied()).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(end.try_clone().unwrap()).stderr(end).spawn().unwrap();
    // The command keeps its own copies of the terminal's end; the read ends when the last one is closed.
    drop(command);
    let mut written = Vec::new();
    let _ = File::from(terminal).read_to_end(&mut written);
    let code = child.wait().unwrap().code();
    (String::from_utf8(written).unwrap().replace('\r', ""), code)
}

const PLAIN: &[(&str, &str)] = &[("PAGER", "cat")];

#[test]
fn a_report_takes_the_width_of_the_terminal() {
    let (_folder, trace) = written(traces::face_recognition());
    for columns in [20, 60, 80, 120] {
        for arguments in [&["report", &trace][..], &["diff", &trace, &trace], &["hugepages", "find", &trace]] {
            let (text, code) = on_terminal(columns, &[("PAGER", ""), ("NO_COLOR", "1")], arguments);
            assert_eq!(code, Some(0), "{text}");
            assert!(!text.contains('\u{1b}') && !text.contains('…'), "{text}");
            // Numbers that are wider than a very narrow terminal stay whole.
            assert!(text.lines().all(|line| line.width() <= usize::from(columns).max(60)), "{columns}: {text}");
        }
    }
}

#[test]
fn every_table_takes_the_width_of_the_terminal() {
    let (_folder, trace) = written(traces::face_recognition());
    let pid = std::process::id().to_string();
    let commands = [
        &["lab", "list"][..],
        &["lab", "show", "opteron-6174x4"],
        &["lab", "show", "magny-cours-4p-no-directory"],
        &["topology"],
        &["topology", "--from", "node:40 core:3", "--sources"],
        &["show"],
        &["show", &pid],
        &["doctor"],
        &["doctor", "--devices"],
        &["memory", "--all"],
        &["memory", &pid],
        &["pages", &pid],
        &["pages", &pid, "[heap]"],
        &["top", "--once", "--interval", "0.1", "--source", "none"],
        &["top", "--once", "--interval", "0.1", "--pid", &pid],
        &["assert", "--local", "20%", "--imbalance", "3", &trace],
        &["reserve", "check", "--machine", "magny-cours-4p", "--isolate", "core,controller", "--bandwidth", "5.9G"],
        &["reserve", "plan", "--machine", "magny-cours-4p", "../../docs/reserve-plan.toml"],
        &["reserve", "facts", "--machine", "magny-cours-4p"],
        &["reserve", "rcm"],
    ];
    for columns in [60, 80, 120] {
        for arguments in commands {
            let (text, code) = on_terminal(columns, &[("PAGER", ""), ("NO_COLOR", "1")], arguments);
            // The doctor ends with 3 if something does not work.
            assert!(matches!(code, Some(0 | 3)), "{arguments:?}: {code:?}: {text}");
            let wide: Vec<&str> = text.lines().filter(|line| line.width() > columns.into()).collect();
            assert!(wide.is_empty() && text.lines().count() > 1, "{arguments:?} in {columns} columns: {wide:#?}");
        }
    }
}

#[test]
fn colour_is_for_terminals_unless_it_is_forbidden_or_forced() {
    let (_folder, trace) = written(traces::face_recognition());
    let is_coloured = |variables: &[(&str, &str)], option: &[&str]| {
        let variables = [PLAIN, variables].concat();
        on_terminal(80, &variables, &[&["report", &trace], option].concat())
            .0
            .contains("\u{1b}[1;31mNUMA is the problem")
    };
    assert!(is_coloured(&[], &[]) && is_coloured(&[("NO_COLOR", "")], &[]));
    assert!(!is_coloured(&[("NO_COLOR", "1")], &[]) && !is_coloured(&[("TERM", "dumb")], &[]));
    assert!(!is_coloured(&[], &["--color", "never"]));
    assert!(is_coloured(&[("NO_COLOR", "1")], &["--color", "always"]));
    // In a pipe there is none, unless it is forced.
    let piped = |option: &[&str]| crate::report::text(&[&["report", &trace], option].concat());
    assert!(!piped(&[]).contains('\u{1b}') && piped(&["--color=always"]).contains('\u{1b}'));
}

#[test]
fn long_reports_go_through_the_users_pager() {
    let (_folder, trace) = written(traces::face_recognition());
    let report = ["report", trace.as_str()];
    let shown = |variables: &[(&str, &str)], arguments: &[&str]| {
        let (text, code) = on_terminal(80, &[&[("NO_COLOR", "1")], variables].concat(), arguments);
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let whole = shown(&[("PAGER", "cat")], &report);
    assert!(whole.starts_with("NUMA is the problem"));
    assert!(shown(&[("PAGER", "sed s/^/pager:/")], &report).starts_with("pager:NUMA is the problem"));
    // nearside's own variable comes first; the pager knows what git's would.
    let both = [("PAGER", "false"), ("NEARSIDE_PAGER", "echo \"options $LESS\"; cat")];
    assert!(shown(&both, &report).starts_with("options FRX\nNUMA is the problem"));
    assert_eq!(shown(&[("PAGER", "sed s/^/pager:/")], &[&report[..], &["--no-pager"]].concat()), whole);
    assert_eq!(shown(&[("PAGER", "sed s/^/pager:/"), ("TERM", "dumb")], &report), whole);
    // A pager that is not there, and one that is left at once.
    let missing = shown(&[("PAGER", "no-such-pager")], &report);
    assert!(missing.ends_with(&whole), "{missing}");
    assert_eq!(shown(&[("PAGER", "true")], &report), "");
    // In a pipe there is none.
    assert!(crate::report::text(&report).starts_with("NUMA is the problem"));
}

/// As with `| head`.
#[test]
fn a_pipe_that_closes_is_no_error() {
    let (_folder, trace) = written(traces::face_recognition());
    let script = "\"$0\" \"$@\" | head -c 1 > /dev/null; exit \"${PIPESTATUS[0]}\"";
    for arguments in [&["report", &trace][..], &["report", &trace, "--json"], &["diff", &trace, &trace]] {
        let nearside = assert_cmd::cargo::cargo_bin("nearside");
        let output = Command::new("bash").args(["-c", script]).arg(nearside).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{arguments:?}");
    }
}
