//! What `make portable` relies on.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::path::Path;

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
