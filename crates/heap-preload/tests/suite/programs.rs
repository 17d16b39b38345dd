//! Programs that end by themselves.

use crate::{installed, library};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PYTHON: &str = "
import json, threading, subprocess, hashlib, os, ctypes
def work(n):
    words = {str(i): [i] * (i % 50) for i in range(n)}
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()
results = [None] * 4
def store(i): results[i] = work(20000 + i)
threads = [threading.Thread(target=store, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
if os.fork() == 0: os._exit(len(work(100)) - 64)
print(os.wait()[1], results, subprocess.run(['echo', 'child'], capture_output=True).stdout)
big = bytearray()
for i in range(300): big += bytes([i % 256]) * 100000
print(hashlib.sha256(big).hexdigest())
";
const PERL: &str = r#"my %h; $h{$_ % 977} .= "x$_" for 1..200000; print join(",", map { length $h{$_} } sort keys %h), "\n";
print scalar(`echo child`); fork // die; wait;"#;
const SQLITE: &str = "create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) insert into t select i, hex(i * i) from n;
create index by_b on t(b); select count(*), min(b), max(b) from t; select a from t where b like '39%' order by b limit 20;";
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define CHECK(what) do { if (!(what)) { puts(#what); return 1; } } while (0)
int main(int count, char **arguments) {
    void *p = malloc(0);
    CHECK(p && malloc_usable_size(p) >= 16);
    if (count > 1) { free(p); free(p); }
    free(p);
    errno = 0; CHECK(!malloc(SIZE_MAX) && errno == ENOMEM);
    errno = 0; CHECK(!calloc(SIZE_MAX / 2, 3) && errno == ENOMEM);
    errno = 0; CHECK(!reallocarray(NULL, SIZE_MAX / 2, 3) && errno == ENOMEM);
    CHECK(posix_memalign(&p, 3, 1) == EINVAL && posix_memalign(&p, 4, 1) == EINVAL);
    CHECK(posix_memalign(&p, 4096, SIZE_MAX - 4096) == ENOMEM);
    for (size_t alignment = 8; alignment <= 64 << 20; alignment *= 2) {
        CHECK(!posix_memalign(&p, alignment, 1000) && (uintptr_t)p % alignment == 0);
        memset(p, 1, malloc_usable_size(p)); free(p);
        CHECK((p = aligned_alloc(alignment, alignment)) && (uintptr_t)p % alignment == 0); free(p);
        CHECK((p = memalign(alignment, 5)) && (uintptr_t)p % alignment == 0); free(p);
    }
    CHECK((p = valloc(1)) && (uintptr_t)p % 4096 == 0); free(p);
    CHECK((p = pvalloc(1)) && malloc_usable_size(p) >= 4096); free(p);
    CHECK(malloc_usable_size(NULL) == 0);
    char *text = strdup("kept");
    for (size_t bytes = 10; bytes < 100 << 20; bytes *= 3) CHECK((text = realloc(text, bytes)) && !strcmp(text, "kept"));
    CHECK((text = realloc(text, 5)) && !strcmp(text, "kept"));
    errno = 5; free(text); CHECK(errno == 5);
    CHECK(!realloc(malloc(1), 0));
    pid_t child = vfork();
    if (child == 0) { execl("/bin/true", "true", NULL); _exit(1); }
    int status; CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts("well"); return 0;
}"#;

fn output(command: &mut Command, preload: bool) -> Output {
    command.stdin(Stdio::null());
    // What python and others print must not depend on the run.
    command.env("PYTHONHASHSEED", "0").env("PERL_HASH_SEED", "0");
    if preload {
        command.env("LD_PRELOAD", library());
    } else {
        command.env_remove("LD_PRELOAD");
    }
    command.output().unwrap()
}

/// Runs a program without and with the library, and compares.
fn same(program: &str, arguments: &[&str], folder: &Path) {
    let Some(mut command) = installed(program) else { return };
    command.args(arguments).current_dir(folder);
    let (alone, with) = (output(&mut command, false), output(&mut command, true));
    assert!(alone.status.success(), "{program}: {}", String::from_utf8_lossy(&alone.stderr));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((with.status, text(&with.stderr)), (alone.status, text(&alone.stderr)), "{program}");
    assert!(with.stdout == alone.stdout, "{program}: {}", text(&with.stdout));
}

#[test]
fn python_with_threads_forks_and_children() {
    same("python3", &["-c", PYTHON], Path::new("/"));
}

#[test]
fn perl_with_a_fork() {
    same("perl", &["-e", PERL], Path::new("/"));
}

#[test]
fn sqlite() {
    same("sqlite3", &[":memory:", SQLITE], Path::new("/"));
}

#[test]
fn gcc_compiles_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calls.c"), CALLS).unwrap();
    if installed("gcc").is_some() {
        same("sh", &["-c", "gcc -w -O2 -c calls.c && gcc -w calls.o -o calls && cat calls.o calls"], folder.path());
    }
}

#[test]
fn git_commits_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..300 {
        fs::write(folder.path().join(number.to_string()), number.to_string().repeat(1000)).unwrap();
    }
    let script = "rm -rf .git && git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -q -m first \
                  --date 2020-01-01T00:00:00Z && git gc -q && git fsck --strict 2>/dev/null && git ls-tree -r HEAD";
    if installed("git").is_some() {
        same("sh", &["-c", script], folder.path());
    }
}

/// A compiled program that calls every function.
fn calls(arguments: &[&str]) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calls.c"), CALLS).unwrap();
    let status = installed("gcc")?.args(["-w", "-fno-builtin", "calls.c", "-o", "calls"]).current_dir(&folder).status();
    assert!(status.unwrap().success());
    Some(output(Command::new(folder.path().join("calls")).args(arguments), true))
}

#[test]
fn every_function_does_what_glibc_s_does() {
    let Some(output) = calls(&[]) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "well\n", "{output:?}");
}

#[test]
fn a_double_free_ends_the_program_with_a_sentence() {
    let Some(output) = calls(&["twice"]) else { return };
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("nearside heap: the program freed 0x") && said.ends_with("was freed before.\n"), "{said}");
}
