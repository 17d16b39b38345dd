//! Peak of memory where a recorded program's own file is made to exhaust it.

use crate::peaks::peak;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes, this many times. Bombs are written in pieces: what a process had in memory before `exec` counts as its peak.
type Pieces = Vec<(Vec<u8>, usize)>;
const MOST_PEAK: u64 = 512 << 20;
/// Allocates, so that addresses of its own code are recorded, and looked up at the end.
const PROGRAM: &str = r"
    #include <stdlib.h>
    __attribute__((noinline)) void *landmark(size_t bytes) { return malloc(bytes); }
    int main(void) {
        for (int i = 0; i < 100; i++) { *(volatile char *)landmark(1 << 20) = 1; }
        return 0;
    }
";

/// A program with these debug sections, compressed.
fn program(folder: &Path, name: &str, sections: &[(&str, Pieces)]) -> PathBuf {
    let [source, plain, bomb] = ["landmark.c", "plain", name].map(|name| folder.join(name));
    fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc").args(["-O1", "-Wl,--build-id", "-o"]).args([&plain, &source]).status().unwrap();
    assert!(built.success());
    let mut objcopy = Command::new("objcopy");
    for (name, pieces) in sections {
        let part = folder.join(&name[1..]);
        let mut file = BufWriter::new(File::create(&part).unwrap());
        for (piece, times) in pieces {
            (0..*times).for_each(|_| file.write_all(piece).unwrap());
        }
        file.flush().unwrap();
        objcopy.arg(format!("--add-section={name}={}", part.display()));
    }
    assert!(objcopy.arg(&plain).arg(&bomb).status().unwrap().success());
    let compressed = Command::new("objcopy").arg("--compress-debug-sections=zlib").arg(&bomb).status().unwrap();
    assert!(compressed.success());
    bomb
}

/// Records the program and reports, each within the peak, and with the name of the function.
fn survives(bomb: &Path) -> String {
    let trace = bomb.with_extension("trace");
    let trace = trace.to_str().unwrap();
    let recorded = peak(&["record", "--source", "none", "-o", trace, "--", bomb.to_str().unwrap()]);
    let (succeeded, bytes, said) = &recorded;
    assert!(*succeeded && *bytes <= MOST_PEAK, "{}: {} MiB: {said}", bomb.display(), bytes >> 20);
    let output = Command::new(assert_cmd::cargo::cargo_bin("nearside")).args(["report", trace]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("landmark"), "{}: {text}", bomb.display());
    // A trace that was cut off has no names: they are looked up by the report.
    let folder = Path::new(trace);
    let about = fs::read_to_string(folder.join("trace.toml")).unwrap();
    assert!(about.contains("complete = true"), "{about}");
    fs::write(folder.join("trace.toml"), about.replace("complete = true", "complete = false")).unwrap();
    let (succeeded, bytes, said) = peak(&["report", trace]);
    assert!(succeeded && bytes <= MOST_PEAK, "{}: report: {} MiB: {said}", bomb.display(), bytes >> 20);
    text
}

/// The header of a unit of version 4 with `entries` bytes of entries, and its abbreviations.
fn unit(entries: &[u8], abbreviations: u32) -> Vec<u8> {
    let length = (7 + entries.len()) as u32;
    [&length.to_le_bytes(), &4_u16.to_le_bytes()[..], &abbreviations.to_le_bytes(), &[8], entries].concat()
}

/// Code 1: a unit without attributes.
fn bare() -> Pieces {
    vec![(vec![1, 0x11, 0, 0, 0, 0], 1)]
}

#[test]
fn units_by_the_million_take_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let units = vec![(unit(&[1], 0), 8_700_000)];
    survives(&program(folder.path(), "units", &[(".debug_info", units), (".debug_abbrev", bare())]));
}

/// Each unit's table begins one abbreviation later in the same one, which ends or does not.
#[test]
fn abbreviations_that_units_share_take_bounded_memory() {
    let code = |number: u32| [number as u8 | 0x80, (number >> 7) as u8 | 0x80, (number >> 14) as u8 | 0x80, 1];
    let units: Vec<u8> = (0..5000).flat_map(|number| unit(&code(number), 8 * number)).collect();
    for end in [&[][..], &[0]] {
        let folder = tempfile::tempdir().unwrap();
        let mut table: Vec<u8> = (0..200_000).flat_map(|number| [code(number), [0x11, 0, 0, 0]].concat()).collect();
        table.extend(end);
        let sections = [(".debug_info", vec![(units.clone(), 1)]), (".debug_abbrev", vec![(table, 1)])];
        survives(&program(folder.path(), "tables", &sections));
    }
}

/// One unit of all addresses, with a row of the line table for each byte.
#[test]
fn line_tables_that_expand_take_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let header = [1, 1, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, b'a', 0, 0, 0, 0, 0];
    let rows = 100 << 20;
    let length = (6 + header.len() + rows) as u32;
    let lines = [&length.to_le_bytes(), &[4, 0][..], &(header.len() as u32).to_le_bytes(), &header].concat();
    // A unit with its line table, and its addresses from 0 on.
    let abbreviations = [1, 0x11, 0, 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0, 0].to_vec();
    let entry = [&[1, 0, 0, 0, 0][..], &0_u64.to_le_bytes(), &(1_u64 << 40).to_le_bytes()].concat();
    let sections = [
        (".debug_line", vec![(lines, 1), (vec![0x20], rows)]),
        (".debug_abbrev", vec![(abbreviations, 1)]),
        (".debug_info", vec![(unit(&entry, 0), 1)]),
    ];
    survives(&program(folder.path(), "lines", &sections));
}

/// A file with holes can be as long as its owner likes.
#[test]
fn sections_in_holes_of_a_file_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let bomb = program(folder.path(), "holes", &[(".debug_abbrev", bare())]);
    let mut bytes = fs::read(&bomb).unwrap();
    // In the table of sections, .symtab becomes 3 GiB from the old end on.
    let word = |at: usize, bytes: &[u8]| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (table, count) = (word(0x28, &bytes) as usize, usize::from(bytes[0x3c]));
    let symbols = (0..count).map(|number| table + 64 * number).find(|at| bytes[at + 4] == 2).unwrap();
    let end = bytes.len().next_multiple_of(8) as u64;
    bytes[symbols + 0x18..symbols + 0x20].copy_from_slice(&end.to_le_bytes());
    bytes[symbols + 0x20..symbols + 0x28].copy_from_slice(&(3_u64 << 30).to_le_bytes());
    fs::write(&bomb, bytes).unwrap();
    OpenOptions::new().write(true).open(&bomb).unwrap().set_len(end + (3 << 30)).unwrap();
    let trace = folder.path().join("trace");
    let words = ["record", "--source", "none", "-o", trace.to_str().unwrap(), "--", bomb.to_str().unwrap()];
    let (succeeded, bytes, said) = peak(&words);
    assert!(succeeded && bytes <= MOST_PEAK, "{} MiB: {said}", bytes >> 20);
}
