//! Programs that use libnearside, on virtual machines. Claims are numbered as in section 8 of the specification.

use crate::support::Lab;
use std::path::{Path, PathBuf};
use std::process::Command;

fn capi(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi").join(path)
}

/// Compiles a program, with the static library that was built beside the command.
fn compiled(lab: &Lab, source: &str) -> PathBuf {
    let archive = assert_cmd::cargo::cargo_bin("nearside").with_file_name("libnearside_c.a");
    let program = lab.path("work").join(source).with_extension("");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I"]).arg(capi("include"));
    command.arg(capi("tests/programs").join(source)).arg(archive).args(["-ldl", "-lm", "-lgcc_s", "-o"]).arg(&program);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Claims 6, 7, 9, 10, 13, 25 and 26: memory is where its policy says, half of it moves if half of it is touched, and a
/// thread begins with its template. The program and its output are those of docs/library.md.
#[test]
fn memory_and_threads_are_where_a_program_puts_them() {
    let lab = Lab::new();
    let program = compiled(&lab, "places.c");
    let ran = lab.run(lab.command("small-4x2", &["--quiet"], &[program.as_os_str()]), b"").succeeded();
    let page = std::fs::read_to_string(capi("../../docs/library.md")).unwrap();
    assert!(page.contains(&format!("\n{}```\n", ran.text())), "docs/library.md has other output than:\n{}", ran.text());
    let source = std::fs::read_to_string(capi("tests/programs/places.c")).unwrap();
    assert!(page.contains(&format!("```c\n{source}```\n")), "docs/library.md has another program");
}
