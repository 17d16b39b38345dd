//! The library as programs see it: its header, its symbols, and calls with hostile arguments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with the libraries, linked as `make` does it.
struct Library(TempDir);

impl Library {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        succeeded(Command::new(here("link-library")).arg(archive()).arg(folder.path()));
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program without any warning, and links it with this library file.
    fn program(&self, source: &str, library: &str) -> PathBuf {
        let program = self.path(&format!("{source}-with-{library}"));
        let compiler = if Path::new(source).extension().is_some_and(|ending| ending == "cc") { "c++" } else { "cc" };
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-cast-function-type", "-O1", "-pthread", "-I"]);
        command.arg(here("include")).arg(here("tests/programs").join(source)).arg("-o").arg(&program);
        succeeded(command.arg(self.path(library)).args(["-ldl", "-lm"]));
        program
    }

    fn run(&self, program: &Path) -> Output {
        succeeded(Command::new(program).env("LD_LIBRARY_PATH", self.0.path()))
    }
}

/// The static library that cargo built for this test: the newest one beside it.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().read_dir().unwrap().flatten().map(|entry| entry.path());
    let is_archive = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libnearside_c") && path.extension().is_some_and(|ending| ending == "a")
    };
    let newest = built.filter(is_archive).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the static library for this test")
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).join("\n");
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// The names that follow `ns_` and end with `(` in the header are its calls.
fn calls_of_the_header() -> BTreeSet<String> {
    let header = std::fs::read_to_string(here("include/nearside.h")).unwrap();
    let words = header.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_(".contains(letter)));
    let calls = words.filter_map(|word| word.split_once('(')).map(|(name, _)| name.trim_start_matches('*'));
    calls.filter(|name| name.starts_with("ns_")).map(str::to_owned).collect()
}

#[test]
fn the_header_and_the_exported_symbols_are_the_same_and_have_a_version() {
    let library = Library::new();
    let output = succeeded(Command::new("nm").args(["-D", "--defined-only"]).arg(library.path("libnearside.so.1")));
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().filter_map(|line| line.split_ascii_whitespace().last());
    let symbols: BTreeSet<String> = symbols.filter(|name| *name != "NEARSIDE_1").map(str::to_owned).collect();
    let wanted: BTreeSet<String> = calls_of_the_header().iter().map(|name| format!("{name}@@NEARSIDE_1")).collect();
    assert!(wanted.len() > 40, "{wanted:?}");
    assert_eq!(symbols, wanted);
    let output = succeeded(Command::new("readelf").arg("-d").arg(library.path("libnearside.so.1")));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Library soname: [libnearside.so.1]"), "{text}");
    // What a program must have installed: the C library only.
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let known = ["libc.so", "libgcc_s.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}

#[test]
fn hostile_arguments_are_refused_with_a_code_and_a_text() {
    let library = Library::new();
    for file in ["libnearside.so", "libnearside.a"] {
        let program = library.program("hostile.c", file);
        assert_eq!(String::from_utf8_lossy(&library.run(&program).stdout), "0 failures\n", "{file}");
    }
}

/// A container's filter, installed by the program itself: as an ordinary user may.
#[test]
fn forbidden_system_calls_are_refusals_with_the_reason() {
    let library = Library::new();
    let program = library.program("filtered.c", "libnearside.so");
    assert_eq!(String::from_utf8_lossy(&library.run(&program).stdout), "0 failures\n");
}

#[test]
fn a_program_in_cpp_has_the_calls() {
    let library = Library::new();
    let program = library.program("in_cpp.cc", "libnearside.so");
    assert_eq!(String::from_utf8_lossy(&library.run(&program).stdout), "0\n");
}

/// Where its memory is, the lab checks: `nearside::lab_library`.
#[test]
fn containers_in_cpp_allocate_from_a_memory_resource() {
    let library = Library::new();
    let program = library.program("resource.cc", "libnearside.so");
    assert_eq!(String::from_utf8_lossy(&library.run(&program).stdout), "0 failures\n");
}

/// The lab runs it beside libnuma: `nearside::lab_library`.
#[test]
fn a_program_of_libnumas_names_compiles() {
    let library = Library::new();
    library.program("numa.c", "libnearside.so");
}
