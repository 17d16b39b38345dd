//! `nearside run` on a virtual machine of 4 nodes: a program that it starts sees what it would see under numactl, and
//! limits of control groups are named.

use crate::support::{Lab, RunOutput, is_root_to};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use test_tools::Checks;

/// Options that both know, including this Debian's numactl; abbreviated, repeated and in any order as well.
const OPTIONS: [&str; 22] = [
    "--membind=1",
    "-m 1-2",
    "--interleave=0,2",
    "-i all",
    "--preferred=2",
    "-p 3",
    "--preferred-many=1,3",
    "-P 0",
    "--localalloc",
    "--cpunodebind=1",
    "-N !1",
    "--physcpubind=3,5",
    "-C +1-2",
    "-N 1 -m same",
    "--all --cpunodebind=0 --membind=1-2",
    "--balancing --membind=0,1",
    "--inter=0,1 --cpuno=2",
    "--local",
    "-N 0 -C 5",
    "-C 5 -N 0",
    "-c 0 -c 3",
    "-m 1 -N same --strict",
];

/// Options for which numactl 2.0.16's `--show` omits a line's end, prints the mode as a number, or the nearest node as
/// 0.
const BADLY_SHOWN: [&str; 5] = ["--preferred-many=1,3", "-P 0", "--localalloc", "--balancing --membind=0,1", "--local"];

/// A program's view of its own policy and CPUs. Addresses differ from run to run.
const SEEN: &str = "numactl --show; grep -E '^(Cpus|Mems)_allowed_list' /proc/self/status; cut -d' ' -f2 /proc/self/numa_maps | sort -u";

/// Shell functions: whether two programs saw the same, except for the next node of interleaving, which the kernel's own
/// allocations for a program advance; the result of a command; the nodes of `checksum`'s memory, whose pages another
/// node's CPU writes to.
const TRY: &str = include_str!("programs/run_try.sh");

/// Claims 6, 7 and 21 of the specification: a program sees what it was started with.
#[test]
fn a_program_sees_what_numactl_would_have_given_it() {
    let lab = Lab::new();
    let mut script = TRY.to_owned();
    for options in OPTIONS {
        write!(
            script,
            "echo '[{options}]'; numactl {options} sh -c \"{SEEN}\" > /tmp/theirs 2> /tmp/errors; $near run {options} sh -c \"{SEEN}\" > /tmp/ours 2> /tmp/errors
             same && echo same; numactl {options} --show > /tmp/theirs 2> /tmp/errors; $near run {options} --show > /tmp/ours 2> /tmp/errors
             same && echo shown\n"
        )
        .unwrap();
    }
    script += include_str!("programs/run_options.sh");
    let options = ["--quiet", "--time-scale", "10"];
    let ran = lab.script("small-4x2", &options, &script).succeeded();
    let checks = Checks::new();
    for options in OPTIONS {
        checks.part(options, || {
            let seen = ran.section(options);
            assert!(seen.starts_with("same\n"), "{options}: {seen}");
            assert!(seen.ends_with("\nshown\n") || BADLY_SHOWN.contains(&options), "{options}: {seen}");
        });
    }
    checks.part("hardware", || assert_eq!(ran.section("hardware"), "same\nnode 1 cpus: 2-3 (2)\n"));
    // Claim 21 of the specification.
    checks.part("parent", || {
        assert_eq!(ran.section("parent"), "physcpubind: 0 1 \nmembind: 0 \npolicy: default\n");
    });
    checks.part("wrong", || {
        let wrong = ran.section("wrong");
        assert!(wrong.lines().count() == 14 && wrong.lines().all(|line| line.starts_with("2 ")), "{wrong}");
    });
    checks.part("orphan", || assert_eq!(ran.section("orphan"), "gone\n"));
    checks.part("balanced", || assert_eq!(ran.section("balanced"), "moved\nstayed\n"));
    if is_root_to("change switches, control groups and hugetlb pools") {
        checks.part("switches and groups", || switches_and_groups_are_roots(&ran));
        checks.part("shared memory", || shared_memory_has_its_policy(&ran));
    }
}

fn switches_and_groups_are_roots(ran: &RunOutput) {
    let huge = ran.section("huge");
    assert!(
        huge.starts_with("THP_enabled:\t0\nglibc.malloc.hugetlb=1\nnearside: huge pages are off for all programs: "),
        "{huge}"
    );
    let remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled\nstatus 1\n";
    assert!(huge.ends_with(remedy), "{huge}");
    let batch = "control group /batch, which allows";
    let to_widen = "to widen it: echo";
    let wanted = format!(
        "nearside: /batch/.. is not a path of a control group\nstatus 2\n0::/batch\n\
         nearside: cannot make the control group /sys/fs/cgroup/none/below (No such file or directory (os error 2)): a group above it \
         does not exist, or was just removed: create that one first\nstatus 1\n\
         nearside: cannot use 2: node 2 is outside the cpuset of {batch} memory of 0-1 only; {to_widen} 0-2 | sudo tee \
         /sys/fs/cgroup/batch/cpuset.mems\nstatus 1\n\
         nearside: cannot use 7: CPU 7 is outside the cpuset of {batch} 0-3 only; {to_widen} 0-3,7 | sudo tee \
         /sys/fs/cgroup/batch/cpuset.cpus\nstatus 1\n\
         nearside: cannot use 3: CPU 6-7 is outside the cpuset of {batch} 0-3 only; {to_widen} 0-3,6-7 | sudo tee \
         /sys/fs/cgroup/batch/cpuset.cpus\nstatus 1\n\
         interleavemask: 0 1 \navailable: 4 nodes (0-3)\navailable: 4 nodes (0-3)\n\
         nearside: cannot join the control group /sys/fs/cgroup/batch (Device or resource busy (os error 16)): it enables \
         controllers for its child groups, so it cannot have processes itself: name a child group\nstatus 1\n"
    );
    assert_eq!(ran.section("cgroup"), wanted);
}

fn shared_memory_has_its_policy(ran: &RunOutput) {
    let limit = ran.section("limit");
    let told = [
        "nearside: cannot make all pages of /dev/shm/big present; its policy is unchanged: 200 MiB more do not fit control group /batch, which \
         may have 64 MiB (memory.max) and uses ",
        "; to widen it: echo 2",
        " | sudo tee /sys/fs/cgroup/batch/memory.max\nstatus 1\nstatus 0\nbig\n",
        "its policy is unchanged: 3 GiB more do not fit node 2, which has room for N\nstatus 1\nnone is left\n",
        "nearside: the policy is set, but cannot make all pages of /tmp/small/file present (madvise: Bad address (os error 14)): its file \
         system is full: df shows its size, mount -o remount,size=BYTES sets it\nstatus 1\n",
        "nearside: cannot use /tmp/huge/file: Cannot allocate memory (os error 12); if it uses huge pages, reserve some: echo 64 | sudo",
    ];
    for told in told {
        assert!(limit.contains(told), "no {told:?} in:\n{limit}");
    }
    let hugetlb = ran.section("hugetlb");
    let placed = "0000000000000000-0000000000400000: bind: 1\n0000000000000000-0000000000400000: 1\nstatus 0\n";
    assert!(hugetlb.starts_with(placed), "{hugetlb}");
    assert!(
        hugetlb.contains("Bad address (os error 14)): the pools of the policy's nodes have no huge page left"),
        "{hugetlb}"
    );
    assert!(hugetlb.ends_with("0000000000000000-0000000000400000: 1\nstatus 0\n"), "{hugetlb}");
    let shared = ran.section("shared");
    assert!(shared.starts_with("0000000000000000-0000000000010000: interleave: 1,3\n"), "{shared}");
    let (interleaved, rest) = shared.split_once("nearside: ").unwrap();
    assert_eq!((interleaved.matches(": 1\n").count(), interleaved.matches(": 3\n").count()), (8, 8), "{shared}");
    let told = [
        "/dev/shm/pool (Input/output error (os error 5)): pages are already on other nodes\nstatus 1\n",
        "\nnearside: not all of /dev/shm/pool is as the policy says\nstatus 1\n",
        "0000000000000000-0000000000010000: bind : 2 \n",
        "0000000000000000-0000000000004000: preferred: 0\n0000000000004000-0000000000008000: interleave: 1-2\n",
        "0000000000004000-0000000000008000: interleave : 1 2 \n",
        "0000000000000000-0000000000004000: 0\n0000000000004000-0000000000005000: ",
    ];
    for told in told {
        assert!(rest.contains(told), "no {told:?} in:\n{shared}");
    }
    assert!(shared.ends_with("0000000000000000-0000000000008000: bind : 2 \n640 32768\n640\n"), "{shared}");
}

/// Also when the command was killed: the next one puts back what it had changed.
#[test]
fn steady_runs_are_pinned_without_balancing_which_is_put_back() {
    if !is_root_to("switch NUMA balancing off") {
        return;
    }
    let script = "\
        balancing() { cat /proc/sys/kernel/numa_balancing; }
        echo '[ended]'; balancing
        ../nearside run --steady -- sh -c 'cat /proc/sys/kernel/numa_balancing; grep Cpus_allowed_list /proc/self/status; \
            grep -o -m 1 bind:0 /proc/self/numa_maps; exit 7'
        echo $?; balancing
        echo '[killed]'; ../nearside run --steady -- sleep 1000 & sleep 1; balancing; kill -KILL $!; wait $! 2>/dev/null
        balancing; ../nearside run --steady -- true 2>/dev/null; balancing";
    let lab = Lab::new();
    let ran = lab.script("small-2x2", &["--quiet"], script).succeeded();
    assert_eq!(ran.section("ended"), "1\n0\nCpus_allowed_list:\t0-1\nbind:0\n7\n1\n");
    assert_eq!(ran.section("killed"), "0\n0\n1\n");
}

/// A file is seen as a copy on the program's node, read-only, by root's and by any user's programs; others see the file,
/// and nothing is left.
#[test]
fn a_program_has_a_copy_of_a_file_on_its_node() {
    let lab = Lab::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/programs/mapped.c");
    let compiled = Command::new("cc").args(["-O1", "-o"]).arg(lab.path("work/mapped")).arg(source).status();
    assert!(compiled.unwrap().success());
    let ran = lab.script("small-4x2", &["--quiet"], include_str!("programs/run_replicate.sh")).succeeded();
    let checks = Checks::new();
    for (section, nodes) in [("root", "0 0 100 0"), ("user", "0 100 0 0"), ("two", "50 0 0 50")] {
        let expected = format!("nodes {nodes}, first letters 9700, read-only\n");
        checks.part(section, || assert_eq!(ran.section(section), expected));
    }
    checks.part("other", || {
        let said = ran.section("other");
        assert!(
            said.contains("Read-only file system") && said.ends_with("first letters 9700, writable\n0\n"),
            "{said}"
        );
    });
    checks.part("wrong", || {
        let wrong = ran.section("wrong");
        for says in [
            "cannot read /tmp: it is no regular file\nstatus 1\n",
            "cannot read missing: there is no such file",
            "cannot read pipe: it is no regular file\nstatus 1\n",
            "--replicate needs the nodes of the copies",
            "user namespaces that any user may make",
        ] {
            assert!(wrong.contains(says), "no {says:?} in {wrong}");
        }
        assert!(wrong.ends_with("status 1\n0\n"), "{wrong}");
    });
}
