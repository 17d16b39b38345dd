//! What `make install` puts beside the program.

use assert_cmd::Command;
use std::fs;

#[test]
fn man_pages_and_completions_are_of_the_command_itself() {
    let share = tempfile::tempdir().unwrap();
    Command::cargo_bin("nearside").unwrap().arg("manual").arg(share.path()).assert().success().stdout("").stderr("");
    let text = |path: &str| fs::read_to_string(share.path().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"));
    // hyphens are escaped in roff
    assert!(text("man/man1/nearside-lab-run.1").contains(r"\-\-machine"));
    assert!(text("man/man1/nearside.1").contains(r"nearside\-topology(1)"));
    assert!(text("bash-completion/completions/nearside").contains("--machine"));
    assert!(text("zsh/site-functions/_nearside").starts_with("#compdef nearside"));
    assert!(text("fish/vendor_completions.d/nearside.fish").contains("topology"));
    // What is hidden has no page.
    assert!(!share.path().join("man/man1/nearside-manual.1").exists());
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let assert = Command::cargo_bin("nearside").unwrap().args(["manual", "/dev/null/share"]).assert().code(1);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("cannot make the folder /dev/null/share/man/man1: Not a directory"), "{said}");
}
