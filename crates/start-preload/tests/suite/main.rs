//! Programs in C with the library: what policy they have, and when.

use machine::{MemoryMode, MemoryPolicy};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `default`, and what the library sets: modes and flags of `linux/mempolicy.h`.
const DEFAULT: &str = "0";
const SPREAD: &str = "8003";

/// Two nodes that both have all CPUs, as the tests run on any machine.
const BOTH: &str = "0:0-8191;1:0-8191";

/// Prints the policy of its only thread, of a forked child, of a program that it starts without forking, and of its own
/// after it has made a thread. Then it executes itself again.
const MAKES_THREADS: &str = r#"
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static void tell(const char *who) {
    int mode = -1;
    syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 0);
    printf("%s %x\n", who, mode);
    fflush(stdout);
}
static void *work(void *who) { tell(who); return 0; }
int main(int count, char **arguments) {
    tell("alone");
    // MPOL_LOCAL
    if (getenv("CHOOSES")) syscall(SYS_set_mempolicy, 4, 0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        tell("forked");
        if (!getenv("WORKS")) _exit(0);
        pthread_t worker;
        pthread_create(&worker, 0, work, "worker");
        pthread_join(worker, 0);
        unsetenv("WORKS");
        execv(arguments[0], arguments);
    }
    waitpid(pid, 0, 0);
    if (getenv("WORKS")) return 0;
    if (count > 1 && posix_spawn(&pid, arguments[1], 0, 0, arguments + 1, environ) == 0) waitpid(pid, 0, 0);
    pthread_t thread;
    pthread_create(&thread, 0, work, "thread");
    pthread_join(thread, 0);
    tell("after");
    if (getenv("AGAIN")) return 0;
    setenv("AGAIN", "1", 1);
    printf("loads %s\n", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "nothing");
    fflush(stdout);
    if ((pid = fork()) == 0) { execv(arguments[0], arguments); _exit(1); }
    waitpid(pid, 0, 0);
    return 0;
}"#;

const MAKES_NONE: &str = r#"
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    int mode = -1;
    syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 0);
    printf("single %x\n", mode);
    return 0;
}"#;

fn compiled(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (file, program) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let done = Command::new("cc").arg("-o").arg(&program).arg(&file).args(options).status().unwrap();
    assert!(done.success(), "{name}");
    program
}

/// A library of the system, and this one.
fn both_libraries() -> String {
    let library = env::current_exe().unwrap().with_file_name("libnearside_start.so");
    assert!(library.exists(), "{} does not exist", library.display());
    format!("libm.so.6:{}", library.display())
}

/// What the program prints, with the library and these nodes.
fn output(program: &Path, argument: Option<&Path>, nodes: &str) -> String {
    output_with(program, argument, nodes, &[])
}

fn output_with(program: &Path, argument: Option<&Path>, nodes: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.args(argument).env("LD_PRELOAD", both_libraries()).env("NEARSIDE_SPREAD_START", nodes);
    command.env_remove("OMP_NUM_THREADS").envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// False on a kernel or in a container without memory policies.
fn has_policies() -> bool {
    let has = linux::memory_policy().is_ok();
    if !has {
        test_tools::skipped("the kernel has no memory policies");
    }
    has
}

#[test]
fn a_program_is_spread_until_it_makes_threads_and_what_it_executes_then_is_not() {
    if !has_policies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let single = compiled(folder.path(), "single", MAKES_NONE, &[]);
    for options in [&["-pthread"][..], &["-pthread", "-no-pie"], &["-pthread", "-Wl,-z,lazy"]] {
        let program = compiled(folder.path(), "threads", MAKES_THREADS, options);
        let run =
            |alone| format!("alone {alone}\nforked {DEFAULT}\nsingle {DEFAULT}\nthread {DEFAULT}\nafter {DEFAULT}\n");
        let expected = |alone| format!("{}loads libm.so.6\n{}", run(alone), run(DEFAULT));
        assert_eq!(output(&program, Some(&single), BOTH), expected(SPREAD), "{options:?}");
        // Its CPUs are all of one node; no node's; not understood.
        for nodes in ["0:0-8191", "0:0-8191;1:8190-8191,8189", "", "0:8191;1:8190", "x", "0:0-8191;1", "0:;1:0-8191"] {
            assert_eq!(output(&program, Some(&single), nodes), expected(DEFAULT), "{nodes}");
        }
    }
    assert_eq!(output(&single, None, BOTH), format!("single {DEFAULT}\n"));
    let program = compiled(folder.path(), "threads", MAKES_THREADS, &["-pthread"]);
    let told = output_with(&program, None, BOTH, &[("OMP_NUM_THREADS", "1")]);
    assert!(told.starts_with(&format!("alone {DEFAULT}\n")), "{told}");
}

#[test]
fn what_a_forked_child_executes_after_it_has_made_threads_is_not_spread() {
    if !has_policies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "threads", MAKES_THREADS, &["-pthread"]);
    let told = output_with(&program, None, BOTH, &[("WORKS", "1"), ("AGAIN", "1")]);
    let executed = format!("alone {DEFAULT}\nforked {DEFAULT}\nthread {DEFAULT}\nafter {DEFAULT}\n");
    assert_eq!(told, format!("alone {SPREAD}\nforked {DEFAULT}\nworker {DEFAULT}\n{executed}"));
}

#[test]
fn a_policy_that_the_owner_chose_stays() {
    if !has_policies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "threads", MAKES_THREADS, &["-pthread"]);
    let chosen = output_with(&program, None, BOTH, &[("CHOOSES", "1")]);
    let (owners, then) = ("alone 4\nforked 4\nthread 4\nafter 4\n", "forked 4\nthread 4\nafter 4\n");
    assert_eq!(chosen, format!("alone {SPREAD}\n{then}loads libm.so.6\n{owners}"), "by itself");
    let owned = std::thread::spawn(move || {
        linux::set_memory_policy(&MemoryPolicy::plain(MemoryMode::Local)).unwrap();
        output(&program, None, BOTH)
    });
    assert_eq!(owned.join().unwrap(), format!("{owners}loads libm.so.6\n{owners}"));
}

/// Makes a thread of C11, after it has executed a program in each way that its functions have.
const EXECUTES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>
static int tell(void *who) {
    int mode = -1;
    syscall(SYS_get_mempolicy, &mode, 0, 0, 0, 0);
    printf("%s %x\n", (char *)who, mode);
    fflush(stdout);
    return 0;
}
int main(int count, char **arguments) {
    char *path = arguments[1], *none[] = {0}, **own = arguments + 1;
    pid_t pid;
    tell("alone");
    for (int way = 0; way < 8 && count > 1; way++) {
        int file = open(path, O_RDONLY);
        if (way == 0) posix_spawn(&pid, path, 0, 0, own, none);
        else if (way == 1) posix_spawnp(&pid, path, 0, 0, own, none);
        else if ((pid = vfork()) == 0) {
            if (way == 2) execve(path, own, none);
            if (way == 3) execv(path, own);
            if (way == 4) execvp(path, own);
            if (way == 5) execvpe(path, own, none);
            if (way == 6) fexecve(file, own, none);
            if (way == 7) execveat(AT_FDCWD, path, own, none, 0);
            _exit(1);
        }
        waitpid(pid, 0, 0);
    }
    execve("/nowhere", own, none);
    tell("then");
    thrd_t thread;
    thrd_create(&thread, tell, "thread");
    thrd_join(thread, 0);
    tell("after");
    return count == 1 ? 0 : pthread_create == 0;
}"#;

#[test]
fn programs_without_the_library_are_not_spread_and_c11s_threads_end_it() {
    if !has_policies() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let single = compiled(folder.path(), "single", MAKES_NONE, &["-static"]);
    let program = compiled(folder.path(), "executes", EXECUTES, &["-pthread"]);
    let told = output(&program, Some(&single), BOTH);
    let others = format!("single {DEFAULT}\n").repeat(8);
    assert_eq!(told, format!("alone {SPREAD}\n{others}then {SPREAD}\nthread {DEFAULT}\nafter {DEFAULT}\n"));
}
