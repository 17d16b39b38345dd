//! Unmodified programs run with the library as they do without it.

mod programs;
mod redis;

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The library, as cargo built it for this test.
fn library() -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("libnearside_heap.so");
    assert!(library.exists(), "{} does not exist", library.display());
    library
}

/// The program if it is installed; otherwise the test is reported as skipped.
fn installed(program: &str) -> Option<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !is_there {
        test_tools::skipped(format_args!("{program} is not installed"));
    }
    is_there.then(|| Command::new(program))
}
