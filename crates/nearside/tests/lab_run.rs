//! `nearside run` on virtual machines: a program started by it sees what numactl would have given it, and each policy
//! places pages where it says.

mod support;

use std::fmt::Write;
use support::{Lab, is_root};

/// Options that both know, and that this Debian's numactl knows.
const OPTIONS: [&str; 16] = [
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
];

/// What a program sees of its own policy and CPUs. Addresses differ from run to run.
const SEEN: &str = "numactl --show; grep -E '^(Cpus|Mems)_allowed_list' /proc/self/status; cut -d' ' -f2 /proc/self/numa_maps | sort -u";

/// Fills 32 MiB under options of run and tells the line of `numa_maps` that it is in.
const PLACED: &str = r#"
placed() {
    ../nearside run "$@" -- ../nearside-workloads hold --size 32M > /tmp/held & pid=$!
    until grep -q holding /tmp/held; do sleep 0.05; done
    start=$(sed 's/holding \([0-9a-f]*\)-.*/\1/' /tmp/held)
    echo "$* $(grep "^$start" /proc/$pid/numa_maps | grep -oE 'N[0-9]+=[0-9]+' | tr '\n' ' ')"
    kill $pid; wait $pid 2>/dev/null; rm /tmp/held
}
"#;

/// Claims 6, 7 and 21 of the specification: what a program is started with is what it sees.
#[test]
fn a_program_sees_what_numactl_would_have_given_it() {
    let lab = Lab::new();
    let mut script = String::new();
    for options in OPTIONS {
        write!(
            script,
            "echo '[{options}]'; numactl {options} sh -c \"{SEEN}\" > /tmp/theirs 2>&1; ../nearside run {options} sh -c \"{SEEN}\" > /tmp/ours 2>&1
             cat /tmp/ours; diff /tmp/theirs /tmp/ours > /tmp/differs && echo same || cat /tmp/differs\n"
        )
        .unwrap();
    }
    script += PLACED;
    script += r"
        echo '[placed]'
        placed --interleave 0,2; placed --membind 3; placed --preferred 1; placed -P 2 -N 0; placed --localalloc -N 3
        echo 3 > /sys/kernel/mm/mempolicy/weighted_interleave/node0 && placed --weighted-interleave 0-1
        echo '[huge]'
        ../nearside run --huge never grep THP_enabled /proc/self/status
        echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; ../nearside run --huge=always printenv GLIBC_TUNABLES
        echo never > /sys/kernel/mm/transparent_hugepage/enabled; ../nearside run --huge always true 2>&1; echo $?
        echo '[cgroup]'
        ../nearside run --cgroup /batch/.. true 2>&1; echo $?
        echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
        ../nearside run --cgroup /batch cat /proc/self/cgroup
        echo 0-1 > /sys/fs/cgroup/batch/cpuset.mems
        ../nearside run --cgroup /batch --membind 2 true 2>&1; echo $?
        ../nearside run --cgroup /batch --interleave all numactl --show | grep interleavemask
        echo '[shared]'
        ../nearside run --interleave 1,3 --file /dev/shm/pool --length 64K --touch --dump --dump-nodes
        ../nearside run --membind 2 --strict --file /dev/shm/pool 2>&1; echo $?
        numactl --length=64k --file=/dev/shm/pool --dump; rm /dev/shm/pool
        ../nearside run --membind 2 --shm /tmp/key --shmid 5 --length 32K --touch --dump-nodes
        numactl --shmid=5 --shm=/tmp/key --dump; ipcs -m | grep -c 32768
        echo '[end]'
    ";
    let ran = lab.script("small-4x2", &["--quiet"], &script).succeeded();
    for options in OPTIONS {
        assert!(ran.section(options).ends_with("same\n"), "{options}: {}", ran.section(options));
    }
    if !is_root() {
        return; // switches, control groups and weights are root's
    }
    let placed = "--interleave 0,2 N0=4096 N2=4096 \n--membind 3 N3=8192 \n--preferred 1 N1=8192 \n-P 2 -N 0 N2=8192 \n\
                  --localalloc -N 3 N3=8192 \n--weighted-interleave 0-1 N0=6144 N1=2048 \n";
    assert_eq!(ran.section("placed"), placed);
    let huge = ran.section("huge");
    assert!(
        huge.starts_with("THP_enabled:\t0\nglibc.malloc.hugetlb=1\nnearside: no program can have huge pages: "),
        "{huge}"
    );
    assert!(huge.ends_with("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled\n1\n"), "{huge}");
    let cgroup = ran.section("cgroup");
    let wanted = "nearside: /batch/.. is no path of a control group\n2\n0::/batch\n\
                  nearside: cannot use 2: node 2 is outside the cpuset of control group /batch, which allows memory of 0-1 only; \
                  to widen it: echo 0-2 | sudo tee /sys/fs/cgroup/batch/cpuset.mems\n1\ninterleavemask: 0 1 \n";
    assert_eq!(cgroup, wanted);
    let shared = ran.section("shared");
    assert!(shared.starts_with("0000000000000000-0000000000010000: interleave: 1,3\n"), "{shared}");
    assert_eq!((shared.matches(": 1\n").count(), shared.matches(": 3\n").count()), (8, 8), "{shared}");
    assert!(
        shared.contains("/dev/shm/pool (Input/output error (os error 5)): pages lie elsewhere already\n1\n"),
        "{shared}"
    );
    assert!(shared.contains("0000000000000000-0000000000010000: bind : 2"), "{shared}");
    assert!(shared.ends_with("0000000000000000-0000000000008000: bind : 2 \n1\n"), "{shared}");
}

/// Node 2 has no memory and node 3 no CPUs: numactl refuses such nodes altogether (its issues 127, 165 and 184).
#[test]
fn nodes_without_memory_or_without_cpus_are_used_for_what_they_have() {
    let lab = Lab::new();
    support::write_uneven_machine(&lab.path("uneven.toml"));
    let mut script = PLACED.to_owned();
    script += r#"
        try() { ../nearside run $@ 2>&1; echo $?; }
        echo '[placed]'; placed --membind 3; placed --interleave all; placed --localalloc -N 0
        echo '[without-memory]'; try --membind 2 true; try --cpunodebind 2 grep -h Cpus_allowed_list /proc/self/status
        echo '[without-cpus]'; try --cpunodebind 3 true
        echo '[wrong]'; try --membind 4 true; try --physcpubind 9 true; try --membind 1-0 true 2>&1 | tail -1; try --preferred 0,1 true; try --membind !all true
        try --interleave 0 --membind 1 true | tail -1; try --cpunodebind 0 | tail -1; try --balancing --interleave 0 echo idle
        echo '[live]'; sleep 60 & pid=$!; sleep 0.2; act() { ../nearside $@ 2>&1 | tail -1; }
        act migrate $pid --to 2; ../nearside migrate $pid --from 0-1 --to 3 --mapping '[stack]' | head -3 | tail -1 | cut -d' ' -f1
        act bind $pid --cpunodebind 2 | sed "s/$pid/N/"; act bind $pid --cpunodebind 3; kill $pid
        echo '[end]'
    "#;
    let machine = lab.path("uneven.toml");
    let ran = lab.script(machine.to_str().unwrap(), &["--quiet"], &script).succeeded();
    let placed = ran.section("placed");
    assert!(placed.starts_with("--membind 3 N3=8192 \n--interleave all N0="), "{placed}");
    assert!(placed.lines().nth(1).unwrap().contains(" N3=") && !placed.contains("N2="), "{placed}");
    let memory = ran.section("without-memory");
    let wanted = "nearside: cannot use 2: node 2 has no memory: memory is on 0-1,3\n1\nCpus_allowed_list:\t4-5\n0\n";
    assert_eq!(memory, wanted);
    let live = ran.section("live");
    let told = [
        "cannot use 2: node 2 has no memory: memory is on 0-1,3\n",
        "process N (sleep): 1 thread runs on CPUs 4-5\nnearside: node 3 has no CPUs",
    ];
    assert!(told.iter().all(|told| live.contains(told)), "{live}");
    assert_eq!(ran.section("without-cpus"), "nearside: node 3 has no CPUs to run on\n2\n");
    let wanted = "nearside: cannot use 4: there is no node 4: this machine has 0-3\n2\n\
                  nearside: cannot use 9: there is no CPU 9: this machine has 0-5\n2\n2\n\
                  nearside: --preferred takes one node, and got 0-1: --preferred-many takes several\n2\n\
                  nearside: `!all` selects nothing\n2\n2\n2\n\
                  nearside: --balancing goes with --membind only, and is ignored\nidle\n0\n";
    assert_eq!(ran.section("wrong"), wanted);
}
