//! Compiles a program, runs it under the library, and reads the recorded events.

#![allow(dead_code, reason = "each test file uses a part of it")]

use observe::TickClock;
use observe::objects::{LIBRARY, ObjectLosses, ObjectOptions, ObjectRings};
use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use trace::{Event, StackId, Stacks, What};

/// The library, as cargo built it for this test.
pub fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let library = test.parent().unwrap().join(LIBRARY);
    assert!(library.exists(), "{} does not exist", library.display());
    library
}

/// Long waits, as the recorder shares its CPU with other tests.
pub fn options() -> ObjectOptions {
    ObjectOptions { patience: Duration::from_secs(20), ..ObjectOptions::default() }
}

/// The result of a run.
pub struct Told {
    pub output: Output,
    pub events: Vec<Event>,
    pub stacks: Stacks,
    pub losses: ObjectLosses,
}

/// A program compiled from tests/programs, with extra compiler arguments.
pub struct Program {
    folder: TempDir,
    pub path: PathBuf,
}

impl Program {
    pub fn new(source: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        compile(source, &path, arguments);
        Self { folder, path }
    }

    /// A file in its directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Told {
        self.run_with(arguments, &options())
    }

    pub fn run_with(&self, arguments: &[&str], options: &ObjectOptions) -> Told {
        record(Command::new(&self.path).args(arguments), options)
    }

    /// The function of the program that contains a return address of a process, and into which others may be inlined.
    pub fn function(&self, told: &Told, address: u64) -> String {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        let start = told.events.iter().find_map(|event| match &event.what {
            What::Mapped { start, bytes, offset, name: path, .. }
                if path.ends_with(name) && (*start..start + bytes).contains(&address) =>
            {
                Some(start - offset)
            }
            _ => None,
        });
        let Some(start) = start else { return String::new() };
        let address = format!("{:#x}", address - 1 - start);
        let output = Command::new("addr2line").args(["-i", "-f", "-e"]).arg(&self.path).arg(address).output().unwrap();
        // One line for the function, one for the file.
        String::from_utf8(output.stdout).unwrap().lines().step_by(2).last().unwrap_or_default().to_owned()
    }
}

pub fn compile(source: &str, to: &Path, arguments: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let compiler = if source.extension().is_some_and(|extension| extension == "cc") { "c++" } else { "cc" };
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi/include");
    let mut command = Command::new(compiler);
    command.args(["-g", "-Wall", "-pthread", "-fno-builtin", "-I"]).arg(include).arg(source).args(arguments);
    let output = command.arg("-ldl").arg("-o").arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a command under the library until it ends.
pub fn record(command: &mut Command, options: &ObjectOptions) -> Told {
    let mut clock = TickClock::detect();
    let mut rings = ObjectRings::create(options, &clock).unwrap();
    let (mut stacks, mut events) = (Stacks::new(), Vec::new());
    command.envs(rings.environment(&library(), None)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let waiter = std::thread::spawn(move || child.wait_with_output().unwrap());
    while !waiter.is_finished() {
        rings.look(&mut clock).unwrap();
        rings.drain(&clock, &mut stacks, &mut events);
        std::thread::sleep(Duration::from_micros(500));
    }
    rings.look(&mut clock).unwrap();
    rings.finish(&clock, &mut stacks, &mut events);
    Told { output: waiter.join().unwrap(), events, stacks, losses: rings.losses() }
}

/// An object that a program printed: `object NAME ADDRESS BYTES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    pub address: u64,
    pub bytes: u64,
}

impl Told {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn succeeded(self) -> Self {
        let error = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "{:?}\n{}\n{error}", self.output.status, self.text());
        self
    }

    pub fn printed(&self) -> HashMap<String, Printed> {
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("object "));
        lines
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].to_owned(), Printed { address: number(words[1]), bytes: words[2].parse().unwrap() })
            })
            .collect()
    }

    /// The events at an address, in order, as letters: A, R, F, N and W for announced objects, and M and U for mappings
    /// that begin there.
    pub fn life(&self, address: u64) -> String {
        self.events.iter().filter_map(|event| letter(&event.what, address)).collect()
    }

    /// The call chain and size of each object at this address.
    pub fn objects(&self, address: u64) -> Vec<(u64, StackId)> {
        let at = |event: &Event| match event.what {
            What::Allocated { address: at, bytes, stack } | What::Announced { address: at, bytes, stack, .. }
                if at == address =>
            {
                Some((bytes, stack))
            }
            _ => None,
        };
        self.events.iter().filter_map(at).collect()
    }
}

fn letter(what: &What, address: u64) -> Option<char> {
    match *what {
        What::Allocated { address: at, .. } if at == address => Some('A'),
        What::Resized { address: at, .. } if at == address => Some('R'),
        What::Freed { address: at } if at == address => Some('F'),
        What::Announced { address: at, .. } if at == address => Some('N'),
        What::Withdrawn { address: at } if at == address => Some('W'),
        What::Mapped { start, .. } if start == address => Some('M'),
        What::Unmapped { start, .. } if start == address => Some('U'),
        What::Remapped { start, .. } if start == address => Some('M'),
        What::Remapped { old, .. } if old == address => Some('U'),
        _ => None,
    }
}
