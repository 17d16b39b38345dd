//! `nearside run --heap` on this host: unmodified programs with nearside's allocator, alone and recorded.

use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use trace::{Event, Record, Trace, What};

const PYTHON: &str = "import hashlib, threading
def work(n): return hashlib.sha256(str({i: [i] * (i % 50) for i in range(n)}).encode()).hexdigest()
threads = [threading.Thread(target=work, args=(20000,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; print(work(30000))";
const PERL: &str =
    r#"my %h; $h{$_ % 977} .= "x$_" for 1..100000; print join(",", map { length $h{$_} } sort keys %h);"#;
const SQL: &str = "create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, hex(i * i) from n;
create index by_b on t(b); select count(*), min(b), max(b) from t;";
const PROGRAMS: [&[&str]; 3] = [&["python3", "-c", PYTHON], &["perl", "-e", PERL], &["sqlite3", ":memory:", SQL]];

fn nearside() -> Command {
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    let library = nearside.with_file_name("libnearside_heap.so");
    assert!(library.exists(), "{} is missing: run `cargo build --profile ci --workspace` first", library.display());
    Command::new(nearside)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).env("PYTHONHASHSEED", "0").env("PERL_HASH_SEED", "0").output().unwrap()
}

fn is_installed(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).exists())
}

/// Compiles a C program into `program`.
fn compile(folder: &Path, source: &str) {
    std::fs::write(folder.join("program.c"), format!("#define _GNU_SOURCE\n#include <stdlib.h>\n{source}")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder).args([
        "-O1",
        "-g",
        "-fno-builtin",
        "-fno-optimize-sibling-calls",
        "program.c",
        "-o",
        "program",
    ]);
    assert!(compiler.status().unwrap().success());
}

#[test]
fn programs_have_the_same_output_with_the_heap() {
    for program in PROGRAMS {
        if !is_installed(program[0]) {
            test_tools::skipped(format_args!("{} is not installed", program[0]));
            continue;
        }
        let alone = output(Command::new(program[0]).args(&program[1..]));
        assert!(alone.status.success() && !alone.stdout.is_empty(), "{}", text(&alone.stderr));
        for heap in [&["--heap"][..], &["--heap", "interleave"], &["--heap", "node:0"]] {
            let with = output(nearside().arg("run").args(heap).arg("--").args(program));
            assert_eq!((text(&with.stderr), with.status), (String::new(), alone.status), "{heap:?} {program:?}");
            assert!(with.stdout == alone.stdout, "{heap:?} {program:?}: {}", text(&with.stdout));
        }
    }
}

/// The library is in the program, with the place that was chosen, behind the recorder's and in front of others.
#[test]
fn a_program_gets_the_library_and_the_place() {
    let seen = |before: &str, heap: &[&str]| {
        let mut command = nearside();
        command.arg("run").args(heap).args(["--", "sh", "-c", "echo $NEARSIDE_HEAP; grep -c heap.so /proc/self/maps"]);
        let seen = output(command.env("LD_PRELOAD", before));
        assert!(seen.status.success(), "{}", text(&seen.stderr));
        text(&seen.stdout)
    };
    for (heap, place) in
        [(&["--heap"][..], "local"), (&["--heap=interleave"], "interleave"), (&["--heap", "node:0"], "node:0")]
    {
        let seen = seen("", heap);
        let (said, maps) = seen.split_once('\n').unwrap();
        assert_eq!(said, place);
        assert!(maps.trim().parse::<u32>().unwrap() > 0, "{seen}");
    }
    let refused = |heap: &str| output(nearside().args(["run", "--heap", heap, "--", "true"]));
    for (heap, says) in [("node:4000", "node 4000"), ("nowhere", "a heap is"), ("node:", "a heap is")] {
        let refused = refused(heap);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), String::new()), "{heap}");
        assert!(text(&refused.stderr).contains(says), "{heap}: {}", text(&refused.stderr));
    }
    let missing = output(nearside().args(["run", "--heap", "--", "true"]).env("NEARSIDE_HEAP_LIBRARY", "/nowhere"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("set NEARSIDE_HEAP_LIBRARY to its path"), "{}", text(&missing.stderr));
}

fn events(folder: &Path) -> Vec<Event> {
    let trace = Trace::open(folder).unwrap();
    let event = |record| if let Record::Event(event) = record { Some(event) } else { None };
    trace.records().unwrap().map(Result::unwrap).filter_map(event).collect()
}

/// The recorder sees the objects of a program that runs with the heap: each begins and ends, with its site.
#[test]
fn a_recorded_program_with_the_heap_has_its_objects() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <malloc.h>
        #include <stdio.h>
        #include <string.h>
        __attribute__((noinline)) static void *matrix(void) { return malloc(1000003); }
        int main(void) {
            char line[4096]; int libraries = 0;
            FILE *maps = fopen(\"/proc/self/maps\", \"r\");
            while (fgets(line, sizeof line, maps)) libraries |= strstr(line, \"libnearside_heap\") ? 1 : strstr(line, \"libnearside_preload\") ? 2 : 0;
            for (int i = 0; i < 100; i++) { char *object = matrix(); object[i] = 1; free(object); }
            return libraries;
        }";
    compile(folder.path(), source);
    let nested = assert_cmd::cargo::cargo_bin("nearside");
    let mut record = nearside();
    record.current_dir(&folder).args(["record", "--source", "none", "-o", "trace", "--"]).arg(nested);
    let recorded = output(record.args(["run", "--heap", "--", "./program"]));
    assert_eq!(recorded.status.code(), Some(3), "both libraries: {}", text(&recorded.stderr));
    let events = events(&folder.path().join("trace"));
    let begun = |event: &&Event| matches!(event.what, What::Allocated { bytes: 1_000_003, .. });
    let begun: Vec<&Event> = events.iter().filter(begun).collect();
    assert_eq!(begun.len(), 100);
    for begin in begun {
        let What::Allocated { address, .. } = begin.what else { unreachable!() };
        let ends = |event: &&Event| {
            event.time_ns > begin.time_ns && matches!(event.what, What::Freed { address: at } if at == address)
        };
        assert!(events.iter().any(|event| ends(&event)), "{begin:?}");
    }
}

/// As a program with a static jemalloc, which has no `reallocarray`: glibc's calls the program's `realloc`.
#[test]
fn a_recorded_program_with_an_allocator_of_its_own_reallocates_arrays() {
    let folder = tempfile::tempdir().unwrap();
    compile(
        folder.path(),
        "#include <stdio.h>
        #include <string.h>
        static char pool[1 << 22]; static size_t used;
        void *malloc(size_t n) {
            n = (n + 31) & ~15ul; size_t *p = (size_t *)(pool + used); used += n + 16; p[0] = n;
            return used > sizeof pool ? NULL : p + 2;
        }
        void free(void *p) {}
        void *calloc(size_t a, size_t b) { return malloc(a * b); }
        void *realloc(void *p, size_t n) {
            void *q = malloc(n);
            if (p && q) memcpy(q, p, ((size_t *)p)[-2] < n ? ((size_t *)p)[-2] : n);
            return q;
        }
        int main(void) { char *p = malloc(100); strcpy(p, \"kept\"); p = reallocarray(p, 1000, 2); puts(p); return 0; }",
    );
    let mut record = nearside();
    record.current_dir(&folder).args(["record", "--source", "none", "-o", "trace", "--", "./program"]);
    let recorded = output(&mut record);
    assert_eq!(
        (text(&recorded.stdout), recorded.status.code()),
        ("kept\n".into(), Some(0)),
        "{}",
        text(&recorded.stderr)
    );
}

/// What is freed is used again, and not taken from the kernel each time: objects of their own mapping, and of spans. Their
/// mappings are few, and the C library's other names of the functions are the heap's.
#[test]
fn large_objects_are_used_again() {
    let folder = tempfile::tempdir().unwrap();
    compile(
        folder.path(),
        "#include <stdio.h>
        #include <string.h>
        #include <sys/resource.h>
        extern void *__libc_malloc(size_t);
        static long faults(void) { struct rusage r; getrusage(RUSAGE_SELF, &r); return r.ru_minflt; }
        static void *all[4000];
        int main(void) {
            size_t sizes[] = { 200000, 1 << 20, 1500000, 8000000 };
            long before = faults();
            for (int round = 0; round < 100; round++)
                for (int s = 0; s < 4; s++) {
                    for (int i = 0; i < 4; i++) memset(all[i] = malloc(sizes[s]), 1, sizes[s]);
                    for (int i = 0; i < 4; i++) free(all[i]);
                }
            free(__libc_malloc(100));
            for (int i = 0; i < 4000; i++) all[i] = malloc(200000);
            int maps = 0; char line[4096]; FILE *file = fopen(\"/proc/self/maps\", \"r\");
            while (fgets(line, sizeof line, file)) maps++;
            printf(\"%ld %d\\n\", faults() - before, maps);
            return 0;
        }",
    );
    let ran = output(nearside().current_dir(&folder).args(["run", "--heap", "-C", "+0", "--", "./program"]));
    let printed = text(&ran.stdout);
    let numbers: Vec<u64> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
    // One round touches 10,497 pages: four objects of each size.
    let [faults, mappings] = numbers[..] else { panic!("{printed}{}", text(&ran.stderr)) };
    assert!(faults < 2 * 10_497 && mappings < 100, "{printed}");
}
