//! The user's configuration file.

use assert_cmd::Command;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// A home folder with this configuration.
fn home(text: impl AsRef<[u8]>) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".config/nearside")).unwrap();
    fs::write(home.path().join(".config/nearside/config.toml"), text).unwrap();
    home
}

fn nearside(home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nearside").unwrap();
    command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_CACHE_HOME").args(arguments);
    command
}

#[test]
fn defaults_are_of_the_file_and_the_command_line_comes_first() {
    let home = home("machine = \"no-such-machine\"\ncolor = \"always\"\ncache = \"/nowhere/at/all\"\n");
    let said = |arguments: &[&str]| {
        let output = nearside(&home, arguments).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let of_file = said(&["lab", "run", "--", "true"]);
    assert!(of_file.contains("no-such-machine"), "{of_file}");
    let of_line = said(&["lab", "run", "--machine", "no-other-machine", "--", "true"]);
    assert!(of_line.contains("no-other-machine") && !of_line.contains("no-such-machine"), "{of_line}");
    let (_folder, trace) = crate::report::written(crate::traces::face_recognition());
    let coloured = |arguments: &[&str]| {
        let output = nearside(&home, arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains('\u{1b}')
    };
    assert!(coloured(&["report", &trace]) && !coloured(&["report", &trace, "--color", "never"]));
}

#[test]
fn mistakes_are_refused_with_their_place() {
    for (text, says) in [
        (&b"machin = \"x\"\n"[..], "config.toml:1: machin: unknown field `machin` (did you mean `machine`?)"),
        (b"\ncolor = \"red\"\n", "config.toml:2: color: must be one of auto, always, never"),
        (b"cache = \"here\"\n", "config.toml:1: cache: must be an absolute path"),
        (b"machine = \"\xff\"\n", "it is not UTF-8"),
    ] {
        let said = nearside(&home(text), &["topology", "--from", "small-2x2"]).assert().code(2);
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert!(said.contains(says), "{said}");
    }
    let endless = home("");
    fs::remove_file(endless.path().join(".config/nearside/config.toml")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", endless.path().join(".config/nearside/config.toml")).unwrap();
    nearside(&endless, &["topology", "--from", "small-2x2"]).assert().code(2).stdout("");
}

/// Programs are run from the folder that it names.
#[test]
fn a_file_that_others_may_change_is_refused() {
    let home = home("color = \"never\"\n");
    let file = home.path().join(".config/nearside/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let said = nearside(&home, &["topology", "--from", "small-2x2"]).assert().code(2);
    let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    assert!(said.contains("config.toml"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    nearside(&home, &["topology", "--from", "small-2x2"]).assert().success();
    // Without a file there are no defaults.
    fs::remove_file(file).unwrap();
    nearside(&home, &["topology", "--from", "small-2x2"]).assert().success();
}

#[test]
fn a_broken_file_leaves_help_and_doctor_at_work() {
    let home = home("machine = \ncolor = \"red\"\n");
    let place = home.path().join(".config/nearside/config.toml").display().to_string() + ":1: ";
    for arguments in [&["--help"][..], &["--version"], &["help", "run"], &["topology", "--help"]] {
        let said = nearside(&home, arguments).assert().success().stderr("");
        assert!(!said.get_output().stdout.is_empty(), "{arguments:?}");
    }
    let said = nearside(&home, &["doctor"]).output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains(&place));
    assert!(String::from_utf8(said.stdout).unwrap().contains("features work"));
    for arguments in [&["topology", "--from", "small-2x2"][..], &["lab", "run", "--", "true"], &["no-such-verb"]] {
        let said = nearside(&home, arguments).assert().code(2).stdout("");
        let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
        assert!(said.contains(&place) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn several_mistakes_are_one_line() {
    let home = home("color = \"red\"\ncache = \"here\"\n");
    let said = nearside(&home, &["topology", "--from", "small-2x2"]).assert().code(2);
    let said = String::from_utf8(said.get_output().stderr.clone()).unwrap();
    assert!(said.contains("config.toml:1: color") && said.contains("config.toml:2: cache"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
