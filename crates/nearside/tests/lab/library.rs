//! Programs that use libnearside, on virtual machines. Claims are numbered as in section 8 of the specification.

use crate::look::odd_machine;
use crate::support::Lab;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_tools::Checks;

fn capi(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../capi").join(path)
}

/// Compiles a program, with the static library that was built beside the command, or with libnuma.
pub(crate) fn compiled(lab: &Lab, source: &str, with_libnuma: bool) -> PathBuf {
    compiled_with(lab, source, with_libnuma, &[])
}

/// Likewise, with more libraries.
fn compiled_with(lab: &Lab, source: &str, with_libnuma: bool, libraries: &[&str]) -> PathBuf {
    let program = lab.path("work").join(format!("{source}-{with_libnuma}"));
    let mut command =
        Command::new(if Path::new(source).extension().is_some_and(|kind| kind == "cc") { "c++" } else { "cc" });
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]).arg(capi("tests/programs").join(source));
    if with_libnuma {
        command.args(["-DWITH_LIBNUMA", "-lnuma"]);
    } else {
        let archive = assert_cmd::cargo::cargo_bin("nearside").with_file_name("libnearside_c.a");
        command.arg("-I").arg(capi("include")).arg(archive).args(libraries).args(["-ldl", "-lm", "-lgcc_s"]);
    }
    let output = command.arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Claims 6, 7, 9, 10, 13, 25 and 26: memory is where its policy says, half of it moves if half of it is touched, and a
/// thread begins with its template. The program and its output are those of docs/library.md.
#[test]
fn memory_and_threads_are_where_a_program_puts_them() {
    let lab = Lab::new();
    let program = compiled(&lab, "places.c", false);
    let ran = lab.run(lab.command("small-4x2", &["--quiet"], &[program.as_os_str()]), b"").succeeded();
    let page = std::fs::read_to_string(capi("../../docs/library.md")).unwrap();
    assert!(page.contains(&format!("\n{}```\n", ran.text())), "docs/library.md has other output than:\n{}", ran.text());
    let source = std::fs::read_to_string(capi("tests/programs/places.c")).unwrap();
    assert!(page.contains(&format!("```c\n{source}```\n")), "docs/library.md has another program");
}

/// Runs a program with nearside-numa-compat.h and with libnuma, and compares their lines. `!` is the one difference that
/// docs/library.md names: libnuma counts nodes that are not allowed, or fails.
fn assert_alike(place: &str, own: &str, libnumas: &str, with_not: bool) {
    assert!(own.starts_with("available 0\n"), "{place}: {own}");
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| with_not || !line.starts_with("parsed !")).map(str::to_owned).collect()
    };
    let (own, libnumas) = (lines(own), lines(libnumas));
    let differences: Vec<_> = own.iter().zip(&libnumas).filter(|(one, other)| one != other).collect();
    assert!(differences.is_empty() && own.len() == libnumas.len(), "{place}: {differences:#?}");
}

/// Each function of nearside-numa-compat.h has the result and effect of libnuma's own: results, policies, CPUs and pages, as
/// the kernel reports them. The last machine has a node without memory and one without CPUs.
#[test]
fn libnumas_names_have_libnumas_effects() {
    let lab = Lab::new();
    let (own, libnumas) = (compiled(&lab, "numa.c", false), compiled(&lab, "numa.c", true));
    let script = format!("echo '[own]'; {}; echo '[libnuma]'; {} 2>/dev/null", own.display(), libnumas.display());
    let odd = odd_machine(&lab, "small-4x2", 4);
    for machine in ["small-2x2", "small-4x2", "small-8x2", &odd] {
        let ran = lab.script(machine, &["--quiet"], &script).succeeded();
        let own = ran.section("own");
        assert!(own.contains("\ninterleaved: node 0 ") && own.contains("\nmoved: 0, status 1\n"), "{machine}: {own}");
        assert_alike(machine, own, ran.section("libnuma"), machine != odd);
    }
}

/// Likewise in cpusets: without some nodes, without the node that the program asks for, with one node, and with CPUs of other
/// nodes than the memory's.
#[test]
fn libnumas_names_have_libnumas_effects_in_cpusets() {
    let lab = Lab::new();
    let (own, libnumas) = (compiled(&lab, "numa.c", false), compiled(&lab, "numa.c", true));
    let cpusets = [("0,2", "0-5"), ("1,3", "0-7"), ("1", "2-3"), ("0-3", "4-7"), ("0", "6-7")];
    let mut script = "echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control\n".to_owned();
    for (index, (nodes, cpus)) in cpusets.iter().enumerate() {
        let group = format!("/sys/fs/cgroup/few-{index}");
        writeln!(script, "mkdir {group} && echo {nodes} >{group}/cpuset.mems && echo {cpus} >{group}/cpuset.cpus")
            .unwrap();
        for (name, program) in [("own", &own), ("libnuma", &libnumas)] {
            let inside = format!("sh -c 'echo $$ >{group}/cgroup.procs && exec {} 2>/dev/null'", program.display());
            writeln!(script, "echo '[{name}-{index}]'; {inside}").unwrap();
        }
    }
    script += "echo '[end]'\n";
    let ran = lab.script("small-4x2", &["--quiet", "--as-root"], &script).succeeded();
    let checks = Checks::new();
    for (index, cpuset) in cpusets.iter().enumerate() {
        let section = |name: &str| ran.section(&format!("{name}-{index}"));
        checks.part(index, || assert_alike(&format!("{cpuset:?}"), section("own"), section("libnuma"), false));
    }
}

/// Claims 11 and 12 of the manager's specification, for memory of the library: half of it is touched and moves, each page
/// once, to the node of the thread that touches it; what is not touched stays. System calls get the pages too.
#[test]
fn memory_moves_when_it_is_touched() {
    let lab = Lab::new();
    let program = compiled(&lab, "lazy.c", false);
    let near = lab.path("nearside");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let (near, program) = (near.display(), program.display());
    let script = format!("{near} run --cpunodebind 1 -- {program} 0; {user} {near} run --cpunodebind 1 -- {program} 1");
    let ran = lab.script("small-4x2", &["--quiet"], &script).succeeded();
    let moved = "256 pages on node 0\ntouched from nodes 1 and 2: 128 moved, 0 there, 128 stayed\n\
                 node 0: 128\nnode 1: 64\nnode 2: 64\ncontents as before\n";
    let refused = "error 1: cannot move 1048576 bytes when they are touched (userfaultfd: Operation not permitted (os \
                   error 1)): to bring pages for system calls too";
    assert!(ran.text().starts_with(&format!("a pipe got a page\n{moved}")), "{}", ran.text());
    assert!(ran.text().contains(refused), "{}", ran.text());
    assert!(ran.text().ends_with(moved), "{}", ran.text());
}

/// Feature 57 of the specification: a program that is to be left alone keeps its memory, one with a home gets it there, and
/// without a hint the policy decides.
#[test]
fn agents_do_what_programs_hint() {
    let lab = Lab::new();
    let program = compiled(&lab, "hint.c", false);
    let (near, program) = (lab.path("nearside"), program.display());
    let place = format!("{} place --explain --policy carrefour --", near.display());
    let mut script = String::new();
    for (name, hint) in [("none", "0 0 200"), ("alone", "1 0"), ("brief", "2 0"), ("home", "3 2"), ("phase", "4 7 200")]
    {
        writeln!(script, "echo '[{name}]'; {place} {program} {hint} 2>&1").unwrap();
    }
    script += "echo '[end]'\n";
    let ran = lab.script("small-4x2", &["--quiet", "--time-scale", "50"], &script).succeeded();
    let checks = Checks::new();
    for (name, node) in [("none", 1), ("alone", 0), ("brief", 0), ("home", 2), ("phase", 1)] {
        let said = ran.section(name);
        checks.part(name, || assert!(said.contains(&format!("most of it is on node {node}, ")), "{said}"));
    }
    checks.part("reason", || {
        assert!(
            ran.section("home").contains("the program's own hint placed the process there"),
            "{}",
            ran.section("home")
        );
    });
}

/// Named ranges, of the program itself and of a file: they are put where `place` is asked to, and are seen by their names.
#[test]
fn named_ranges_are_placed_and_shown_by_name() {
    let lab = Lab::new();
    let program = compiled(&lab, "regions.c", false);
    let names = lab.path("work/names.toml");
    let rules = "[[region]]\nname = 'mesh'\nvariable = 'grid'\n";
    std::fs::write(&names, rules).unwrap();
    // The budget takes seven rounds, and is no multiple of a page in any.
    let agent = format!(
        "policy = 'first-touch'\nround_s = 0.02\nbudget_bytes_per_s = '64M'\nfolder = '/tmp/agent'\n[regions]\n\
         places = {{ weights = '1', mesh = '2-3' }}\nfile = '{}'\n",
        names.display()
    );
    std::fs::write(lab.path("work/agent.toml"), agent).unwrap();
    let (near, program, names) = (lab.path("nearside"), program.display(), names.display());
    let near = near.display();
    let script = format!(
        "echo '[place]'; {near} place --policy first-touch --explain --region weights=1 --region mesh=2-3 --region none=0 \
         --regions {names} -- {program} 150 2>&1
         echo '[top]'; {near} top --interval 0.1 --once --json --regions {names} -- {program} 60
         echo '[own]'; {near} record --quiet --output /tmp/own --regions {names} -- {program} 20 >/dev/null && \
         {near} report /tmp/own --json
         echo '[pid]'; {program} 1000 >/tmp/said & \
         sleep 0.05; {near} migrate $! --mapping weights --to 1 --quiet && {near} migrate $! --mapping mesh --regions {names} \
         --to 2 --quiet && {near} pages $! mesh --regions {names}; \
         {near} record --quiet --duration 0.05 --output /tmp/pid --regions {names} --pid $! && wait && cat /tmp/said && \
         {near} report /tmp/pid --json
         echo '[agent]'; {near} agent --config agent.toml 2>/tmp/log & agent=$!
         for look in $(seq 200); do {near} agent status --socket /tmp/agent/agent.sock >/dev/null 2>&1 && break; sleep 0.02; done
         {program} 500; kill $agent; wait $agent
         echo '[end]'"
    );
    let options = ["--quiet", "--as-root", "--time-scale", "50", "--numa-balancing", "off", "--thp", "never"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let checks = Checks::new();
    let has = |name: &str, texts: &[&str]| {
        let said = ran.section(name);
        for text in texts {
            checks.part(format!("{name}: {text}"), || assert!(said.contains(text), "{said}"));
        }
    };
    has("place", &["weights: 0 1024 0 0\n", "grid: 0 0 512 512\n", "rest: 1024 0 0 0\n"]);
    has("place", &["a named range was given this place", "no process had a range named none"]);
    for name in ["top", "own", "pid"] {
        has(name, &["\"weights\"", "\"mesh\""]);
    }
    has("pid", &["weights: 0 1024 0 0\n", "grid: 0 0 1024 0\n", "rest: 1024 0 0 0\n"]);
    has("agent", &["weights: 0 1024 0 0\n", "grid: 0 0 512 512\n", "rest: 1024 0 0 0\n"]);
}

/// Objects that are to be on a node are allocated all the same where the kernel refuses that: in a container's filter, on a
/// full node (and on it again when it has room), and outside of the cpuset.
#[test]
fn objects_are_elsewhere_where_their_node_is_refused() {
    let lab = Lab::new();
    let program = compiled(&lab, "heap_faults.c", false);
    let program = program.display();
    let script = format!(
        "{program} filter; {program} full; mkdir /sys/fs/cgroup/few && echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control && \
         echo 0,2 >/sys/fs/cgroup/few/cpuset.mems && echo $$ >/sys/fs/cgroup/few/cgroup.procs && {program} cpuset"
    );
    let ran = lab.script("small-4x2", &["--quiet", "--as-root", "--memory-per-node", "256M"], &script).succeeded();
    let said = ran.text();
    let lines: Vec<&str> = said.lines().collect();
    let [filtered, full, with_room, in_cpuset] = lines[..] else { panic!("{said}") };
    assert_eq!(filtered, "filtered: all hold their contents");
    assert!(full.contains(" all") && full.split(' ').nth(2) == Some("none"), "{said}");
    assert!(with_room.split(' ').nth(3).is_some_and(|on| on != "none"), "{said}");
    assert_eq!(in_cpuset, "in the cpuset: all none none none");
}

/// Objects of jemalloc's arenas and of mimalloc's heaps are on the nodes that the program chose, wherever its threads run.
/// The programs are those of docs/library.md.
#[test]
fn objects_of_other_allocators_are_on_their_nodes() {
    let lab = Lab::new();
    let program = |name: &str| compiled_with(&lab, &format!("{name}.c"), false, &[&format!("-l{name}")]);
    let (jemalloc, mimalloc) = (program("jemalloc"), program("mimalloc"));
    let script =
        format!("echo '[jemalloc]'; {}; echo '[mimalloc]'; {}; echo '[end]'", jemalloc.display(), mimalloc.display());
    let ran = lab.script("small-4x2", &["--quiet", "--thp", "never"], &script).succeeded();
    let checks = Checks::new();
    for name in ["jemalloc", "mimalloc"] {
        let said = ran.section(name);
        checks.part(name, || {
            assert!(said.starts_with("on node 2: 0 % 0 % 100 % 0 %\ninterleaved: "), "{said}");
            let dealt = said.lines().nth(1).unwrap().split(' ').filter_map(|word| word.parse::<u32>().ok());
            assert!(dealt.clone().count() == 4 && dealt.clone().all(|percent| (15..=35).contains(&percent)), "{said}");
        });
    }
    checks.part("refused", || assert!(ran.section("jemalloc").ends_with("\non no node: refused\n")));
}

/// The memory of a C++ container is on the node of its memory resource, wherever the thread runs.
#[test]
fn a_memory_resource_of_cpp_is_on_its_node() {
    let lab = Lab::new();
    let program = compiled(&lab, "resource.cc", false);
    let near = lab.path("nearside");
    let script = format!("{} run --cpunodebind 0 -- {} 2", near.display(), program.display());
    let ran = lab.script("small-4x2", &["--quiet"], &script).succeeded();
    assert_eq!(ran.text(), "node 2: 2048\n0 failures\n");
}
