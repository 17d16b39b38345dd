//! Parts of objects that are kept on small pages from their allocation on.

use crate::support::{Program, Told, library};
use rings::{
    CountedFrom, HEADER_WORDS, ObjectKey, RULE_WORDS, SMALL_PARTS_VARIABLE, SmallPart, TOO_MANY_MARKS, around_border,
    small_part, small_parts_file,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use trace::{FileIdentities, What};

const BYTES: u64 = 16 << 20;
const HUGE: u64 = 2 << 20;
/// Offsets in the third and the fourth huge page, and in the last one.
const BORDERS: [u64; 3] = [2 * HUGE + 4096, 3 * HUGE + 8192, 7 * HUGE + 4096];

/// The rule for an object that the program printed when it was recorded.
fn rule<'a>(program: &Program, told: &Told, name: &str) -> SmallPart<'a> {
    let path = program.path.to_str().unwrap();
    let object = &told.printed()[name];
    let chain = told.stacks.chain(told.objects(object.address)[0].1);
    let offset = |address: u64| {
        told.events.iter().find_map(|event| match &event.what {
            What::Mapped { start, bytes, offset, name, .. }
                if **name == *path && (*start..start + bytes).contains(&address) =>
            {
                Some(address - start + offset)
            }
            _ => None,
        })
    };
    let offsets: Vec<u64> = chain.iter().filter_map(|address| offset(*address)).collect();
    assert!(offsets.len() >= 2, "the site and main: {offsets:x?}");
    let build = FileIdentities::default().of(&path.into()).unwrap().build_id.unwrap();
    SmallPart {
        key: offsets.iter().fold(ObjectKey::SITE, |key, offset| key.with_frame(*offset)),
        file: ObjectKey::of_build(&build),
        frames: chain.len() as u64,
        bytes: object.bytes,
        start: object.address,
        from: CountedFrom::Unknown,
        borders: &BORDERS,
    }
}

/// Runs the program with these rules. Returns what it printed, and the words of the file.
fn run(program: &Path, arguments: &[&str], rules: &[SmallPart<'_>]) -> (String, Vec<u64>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), small_parts_file(rules).flat_map(u64::to_ne_bytes).collect::<Vec<u8>>()).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).env(SMALL_PARTS_VARIABLE, file.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{:?}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let words = fs::read(file.path()).unwrap();
    (text, words.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// Offsets and lengths of the memory with the mark.
fn small(text: &str, name: &str) -> Vec<(u64, u64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("small {name} ")));
    let pair =
        |line: &str| line.split_once(' ').map(|(at, bytes)| (at.parse().unwrap(), bytes.parse().unwrap())).unwrap();
    lines.map(pair).collect()
}

#[test]
fn huge_pages_with_borders_of_a_recorded_object_stay_small_and_no_others() {
    let program = Program::new("small_parts.c", &["-O1"]);
    let told = program.run(&[]).succeeded();
    let site = rule(&program, &told, "table");
    let named = SmallPart { key: ObjectKey::of_name(b"named table"), file: 0, ..site };
    let (text, words) = run(&program.path, &[], &[site, named]);
    // Two adjacent huge pages are one range.
    let expected = vec![(2 * HUGE, 2 * HUGE), (7 * HUGE, HUGE)];
    assert_eq!(small(&text, "table"), expected, "{text}");
    assert_eq!((small(&text, "other"), small(&text, "larger")), (vec![], vec![]), "{text}");
    let at = text.lines().find_map(|line| line.strip_prefix("object named 0x")).unwrap();
    let start = u64::from_str_radix(at.split(' ').next().unwrap(), 16).unwrap();
    let way = |from: &CountedFrom| BORDERS.map(|at| around_border(&(start..start + BYTES), site.start, at, *from));
    let ways: Vec<_> = CountedFrom::Unknown.ways().iter().flat_map(way).collect();
    let named = small(&text, "named");
    for range in ways.iter().filter(|range| !range.is_empty()) {
        let offset = range.start - start;
        let is_in = |(at, bytes): &(u64, u64)| *at <= offset && range.end - start <= at + bytes;
        assert!(named.iter().any(is_in), "{range:x?} of {start:x} is not in {named:x?}");
    }
    let counts = |rule: usize| {
        let word = |place: usize| words[HEADER_WORDS + rule * RULE_WORDS + place];
        (word(small_part::MET), word(small_part::KEPT), word(small_part::REFUSED))
    };
    assert_eq!(counts(0), (1, 3, 0));
    assert_eq!(counts(1).0, 1);
}

#[test]
fn another_build_of_the_program_has_none_of_its_objects() {
    let program = Program::new("small_parts.c", &["-O1"]);
    let told = program.run(&[]).succeeded();
    let other = Program::new("small_parts.c", &["-O1", "-DANOTHER", "-g3"]);
    let (text, words) = run(&other.path, &[], &[rule(&program, &told, "table")]);
    assert_eq!((small(&text, "table"), words[HEADER_WORDS + small_part::MET]), (vec![], 0), "{text}");
}

#[test]
fn objects_are_kept_small_however_often_they_begin_until_the_process_has_too_many_mappings() {
    let program = Program::new("small_parts_often.c", &["-O1"]);
    let told = program.run(&[]).succeeded();
    let table = rule(&program, &told, "table");
    let counts = |arguments: &[&str]| {
        let (_, words) = run(&program.path, arguments, &[table]);
        [small_part::MET, small_part::KEPT, small_part::REFUSED, small_part::ERRNO].map(|at| words[HEADER_WORDS + at])
    };
    // Three ranges each.
    assert_eq!(counts(&["4000"]), [4000, 12_000, 0, 0]);
    assert_eq!(counts(&["4000", "41000"]), [4000, 0, 12_000, TOO_MANY_MARKS]);
}
