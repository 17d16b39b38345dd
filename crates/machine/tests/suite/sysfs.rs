//! Discovery from saved sysfs trees: those in `fixtures`, named by their shape, and generated trees.

use machine::{CpuId, CpuSet, Machine, NodeId, Sharing, SysfsError};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fixture(shape: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(shape).join("sys")
}

/// A sysfs tree in a temporary directory.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        // In memory if possible: a disk takes minutes for the tens of thousands of files of a large machine.
        Self(TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    fn node(&self, id: u32, cpus: &str, kib: u64, distance: &str) -> &Self {
        let folder = format!("devices/system/node/node{id}");
        self.file(&format!("{folder}/cpulist"), cpus)
            .file(&format!("{folder}/meminfo"), &format!("Node {id} MemTotal:       {kib} kB"))
            .file(&format!("{folder}/distance"), distance)
    }

    fn cpu(&self, cpu: u32, package: u32, core: &str) -> &Self {
        let folder = format!("devices/system/cpu/cpu{cpu}/topology");
        self.file(&format!("{folder}/physical_package_id"), &package.to_string())
            .file(&format!("{folder}/core_cpus_list"), core)
    }

    fn cache(&self, cpu: u32, index: u32, [level, kind, size, ways, shared]: [&str; 5]) -> &Self {
        let folder = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
        self.file(&format!("{folder}/level"), level)
            .file(&format!("{folder}/type"), kind)
            .file(&format!("{folder}/size"), size)
            .file(&format!("{folder}/ways_of_associativity"), ways)
            .file(&format!("{folder}/coherency_line_size"), "64")
            .file(&format!("{folder}/shared_cpu_list"), shared)
    }

    /// Two nodes with one CPU each.
    fn small() -> Self {
        let tree = Self::new();
        tree.file("devices/system/node/online", "0-1").file("devices/system/cpu/online", "0-1");
        tree.node(0, "0", 1024, "10 20").node(1, "1", 1024, "20 10").cpu(0, 0, "0").cpu(1, 1, "1");
        tree
    }

    fn read(&self) -> Result<Machine, SysfsError> {
        Machine::from_sysfs(&self.root())
    }
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

#[test]
fn eight_nodes_without_slit() {
    let machine = Machine::from_sysfs(&fixture("8-nodes-48-cpus-no-slit")).unwrap();
    assert_eq!((machine.nodes.len(), machine.cpus().len(), machine.packages.len()), (8, 48, 4));
    assert_eq!(machine.nodes[7].cpus, set("42-47"));
    assert_eq!(machine.nodes[0].memory_bytes, 33_013_572 * 1024);
    assert_eq!((machine.distances.clone(), machine.caches.len(), machine.smt_cores.len()), (None, 0, 0));
    assert_eq!(machine.missing_sources(), []);
}

#[test]
fn sparse_nodes_smt_an_offline_cpu_and_memory_only() {
    let machine = Machine::from_sysfs(&fixture("3-nodes-16-cpus-smt-offline-memory-only")).unwrap();
    let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
    assert_eq!(ids, [0, 1, 4]);
    assert_eq!(machine.nodes[1].cpus, set("4-7,12-14"));
    assert!(machine.nodes[2].cpus.is_empty() && machine.nodes[2].memory_bytes == 64 << 30);
    assert_eq!(machine.cores().len(), 8);
    assert_eq!(machine.smt_cores.len(), 7, "CPU 15 is offline, so CPU 7 has its core for itself");
    assert_eq!(machine.packages[1].cpus, set("4-7,12-14"));
    assert_eq!(machine.distances.as_ref().unwrap().matrix, [[10, 21, 24], [21, 10, 14], [24, 14, 10]]);
    let caches: Vec<_> = machine.caches.iter().map(|c| (c.level, c.size_bytes >> 10, c.ways, &c.shared_by)).collect();
    let l3 = Sharing::Cpus(["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14"].map(set).to_vec());
    assert_eq!(
        caches,
        [(1, 48, 12, &Sharing::Core), (1, 32, 8, &Sharing::Core), (2, 2048, 16, &Sharing::Core), (3, 30_720, 15, &l3),]
    );
    let bandwidth: Vec<_> = machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s.unwrap()).collect();
    assert_eq!(bandwidth, [24e9, 24e9, 11e9]);
    assert_eq!(machine.latency, None, "HMAT has the nearest initiators only: not every pair is known");
    assert_eq!(machine.missing_sources(), []);
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let machine = Machine::from_sysfs(&fixture("no-numa-2-cpus")).unwrap();
    assert_eq!((machine.nodes.len(), machine.nodes[0].id, &machine.nodes[0].cpus), (1, NodeId(0), &set("0-1")));
    assert_eq!(machine.nodes[0].memory_bytes, 8_135_456 * 1024);
    assert!(machine.packages.is_empty() && machine.caches.is_empty(), "the kernel knows neither");
}

#[test]
fn this_host_is_a_machine() {
    let machine = Machine::from_sysfs(Path::new("/sys")).unwrap();
    assert!(machine.cpus().len() <= 1 << 20 && !machine.nodes.is_empty());
    assert_eq!(Machine::from_toml(&machine.to_toml().unwrap(), Path::new("host.toml")).unwrap(), machine);
}

#[test]
fn latencies_of_every_pair_make_a_matrix() {
    let tree = Tree::small();
    for node in 0..2 {
        let folder = format!("devices/system/node/node{node}/access0/initiators");
        tree.file(&format!("{folder}/read_latency"), &format!("{}", 90 + node));
        tree.file(&format!("{folder}/read_bandwidth"), "0").file(&format!("{folder}/node0/x"), "");
    }
    assert_eq!(tree.read().unwrap().latency, None, "nothing is known of accesses from node 1");
    for node in 0..2 {
        tree.file(&format!("devices/system/node/node{node}/access0/initiators/node1/x"), "");
    }
    let machine = tree.read().unwrap();
    assert_eq!(machine.latency.as_ref().unwrap().matrix_ns, [[90.0, 91.0], [90.0, 91.0]]);
    assert_eq!(machine.latency_ns(NodeId(1), NodeId(0)), Some(90.0));
    assert_eq!(machine.nodes[0].bandwidth_bytes_per_s, None, "0 means unknown");
}

#[test]
fn a_latency_or_bandwidth_that_no_machine_has_is_left_out_with_a_warning() {
    let tree = Tree::small();
    for node in 0..2 {
        let folder = format!("devices/system/node/node{node}/access0/initiators");
        tree.file(&format!("{folder}/read_latency"), ["90", "20000000"][node]);
        tree.file(&format!("{folder}/read_bandwidth"), ["200000000", "1000"][node]);
        tree.file(&format!("{folder}/node0/x"), "").file(&format!("{folder}/node1/x"), "");
    }
    let (machine, warnings) = Machine::from_saved_sysfs(&tree.root()).unwrap();
    let bandwidths: Vec<_> = machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect();
    assert_eq!((machine.latency, bandwidths), (None, vec![None, Some(1e9)]));
    let expected = [
        "latencies are left out: they must be from 0.01 to 1e7 ns, not 20000000 (2 in all)",
        "bandwidths are left out: they must be from 1e6 to 1e14 bytes/s, not 200000000000000 (1 in all)",
    ];
    assert_eq!(warnings, expected);
}

/// A node that only describes its nearest CPUs, as firmware does where another initiator, such as a GPU, is nearer.
#[test]
fn the_nearest_cpus_describe_a_node_that_has_no_nearest_initiators() {
    let tree = Tree::small();
    for node in 0..2 {
        let folder = format!("devices/system/node/node{node}/access1/initiators");
        tree.file(&format!("{folder}/read_latency"), "90").file(&format!("{folder}/read_bandwidth"), "25000");
        tree.file(&format!("{folder}/node0/x"), "").file(&format!("{folder}/node1/x"), "");
    }
    let machine = tree.read().unwrap();
    assert_eq!(machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect::<Vec<_>>(), [Some(25e9); 2]);
    assert_eq!(machine.latency.as_ref().unwrap().matrix_ns, [[90.0, 90.0], [90.0, 90.0]]);
}

#[test]
fn ways_that_do_not_fit_the_size_are_unknown() {
    let tree = Tree::small();
    for cpu in 0..2 {
        tree.cache(cpu, 0, ["3", "Unified", "5119K", "48", "0-1"]);
    }
    let machine = tree.read().unwrap();
    assert_eq!((machine.caches[0].ways, machine.caches[0].size_bytes), (0, 5119 << 10));
    assert_eq!(machine.caches[0].shared_by, Sharing::Cpus(vec![set("0-1")]));
}

#[test]
fn cpus_with_different_caches_have_an_entry_each() {
    let tree = Tree::small();
    tree.cache(0, 0, ["1", "Data", "48K", "12", "0"]).cache(1, 0, ["1", "Data", "32K", "8", "1"]);
    let caches = tree.read().unwrap().caches;
    let found: Vec<_> = caches.iter().map(|cache| (cache.size_bytes >> 10, cache.shared_by.clone())).collect();
    assert_eq!(found, [(32, Sharing::Cpus(vec![set("1")])), (48, Sharing::Cpus(vec![set("0")]))]);
}

/// Cores without a second level have the third at its index.
#[test]
fn an_index_is_of_another_level_on_other_cores() {
    let tree = Tree::small();
    let shared = ["3", "Unified", "4096K", "16", "0-1"];
    tree.cache(0, 2, shared);
    tree.cache(1, 2, ["2", "Unified", "512K", "8", "1"]).cache(1, 3, shared);
    let caches = tree.read().unwrap().caches;
    let found: Vec<_> = caches.iter().map(|cache| (cache.level, cache.shared_by.clone())).collect();
    let expected = [(2, Sharing::Cpus(vec![set("1")])), (3, Sharing::Cpus(vec![set("0-1")]))];
    assert_eq!(found, expected);
}

#[test]
fn an_empty_file_is_as_good_as_none() {
    let tree = Tree::small();
    let before = tree.read().unwrap();
    for path in ["node/online", "cpu/online", "cpu/cpu0/topology/physical_package_id"] {
        tree.file(&format!("devices/system/{path}"), "");
        let read = tree.read().unwrap();
        assert_eq!((read.cpus(), read.nodes), (before.cpus(), before.nodes.clone()), "{path}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_file() {
    let missing = Machine::from_sysfs(Path::new("/nowhere")).unwrap_err();
    assert!(matches!(missing, SysfsError::NotSysfs { .. }), "{missing}");
    for (path, text, why) in [
        ("devices/system/node/online", "0-x", "neither a number nor a range"),
        ("devices/system/node/online", "0-9999", "1 to 4096 nodes"),
        ("devices/system/node/node0/meminfo", "Node 0 MemTotal: much", "number of kB"),
        ("devices/system/cpu/cpu0/topology/physical_package_id", "one", "invalid digit"),
        ("devices/system/cpu/cpu0/cache/index0/level", "300", "number too large"),
    ] {
        let tree = Tree::small();
        tree.file(path, text);
        let error = tree.read().unwrap_err().to_string();
        assert!(error.contains(why), "{path} holding `{text}`: {error}");
    }
    let tree = Tree::small();
    for (file, text) in [("type", "Round"), ("size", "big")] {
        tree.cache(0, 0, ["1", "Data", "48K", "12", "0"]);
        tree.file(&format!("devices/system/cpu/cpu0/cache/index0/{file}"), text);
        assert!(tree.read().unwrap_err().to_string().contains(&format!("index0/{file} holds `{text}`")));
    }
}

#[test]
fn without_its_sysfs_the_error_says_to_mount_it() {
    let text = |root: &str| SysfsError::NotSysfs { root: root.into() }.to_string();
    assert!(text("/sys").ends_with("mount it (sudo mount -t sysfs sysfs /sys)"), "{}", text("/sys"));
    assert!(text("/saved").ends_with("name the root of a sysfs tree, such as /sys"), "{}", text("/saved"));
}

/// Kernels before 2.6.26 have no lists: not of what is online, nor of CPUs that share something.
#[test]
fn old_kernels_have_folders_and_masks_instead_of_lists() {
    let tree = Tree::new();
    for node in 0..2 {
        let folder = format!("devices/system/node/node{node}");
        tree.file(&format!("{folder}/cpumap"), if node == 0 { "00000000,00000003" } else { "00000000,0000001c" });
        tree.file(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 1024 kB"));
        tree.file(&format!("{folder}/distance"), if node == 0 { "10 20" } else { "20 10" });
    }
    for cpu in 0..5 {
        let folder = format!("devices/system/cpu/cpu{cpu}");
        let pair = if cpu < 2 { "3" } else { "c" };
        tree.file(&format!("{folder}/topology/thread_siblings"), pair);
        tree.file(&format!("{folder}/topology/core_siblings"), pair);
        // The firmware has no number, or the same for both.
        tree.file(&format!("{folder}/topology/physical_package_id"), "-1");
        // The first index is missing, and the line size.
        tree.file(&format!("{folder}/cache/index2/level"), "2").file(&format!("{folder}/cache/index2/type"), "Unified");
        tree.file(&format!("{folder}/cache/index2/size"), "512K");
        tree.file(&format!("{folder}/cache/index2/shared_cpu_map"), pair);
    }
    tree.file("devices/system/cpu/cpu4/online", "0").file("devices/system/cpu/cpu0/online", "");
    for id in ["-1", "7"] {
        for cpu in 0..4 {
            tree.file(&format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"), id);
        }
        let machine = tree.read().unwrap();
        let cpus: Vec<_> = machine.nodes.iter().map(|node| node.cpus.to_string()).collect();
        assert_eq!(cpus, ["0-1", "2-3"], "CPU 4 is offline");
        assert_eq!(machine.smt_cores, [set("0-1"), set("2-3")]);
        let packages: Vec<_> =
            machine.packages.iter().map(|package| (package.id.0, package.cpus.to_string())).collect();
        assert_eq!(packages, [(0, "0-1".to_owned()), (1, "2-3".to_owned())]);
        assert_eq!(machine.distances.as_ref().unwrap().matrix, [[10, 20], [20, 10]]);
        let [cache] = &machine.caches[..] else { panic!("{:?}", machine.caches) };
        assert_eq!((cache.size_bytes, cache.line_bytes, &cache.shared_by), (512 << 10, 64, &Sharing::Core));
    }
}

#[test]
fn what_contradicts_itself_is_left_out_with_a_warning() {
    for (path, text, warning) in [
        ("devices/system/node/node0/distance", "10 -1", "the distances are left out: those of node 0 are `10 -1`"),
        ("devices/system/node/node0/distance", "10", "the distances are left out: those of node 0 are `10`"),
        ("devices/system/node/node0/distance", "0 20", "the distances are left out: those of node 0 are `0 20`"),
        ("devices/system/node/node1/cpulist", "0-1", "CPUs 0 are another node's too: node 1 is without them"),
        ("devices/system/node/online", "0-2", "node 2 is left out: it is online, but has no list of CPUs"),
        ("devices/system/node/node1/cpulist", "", "CPU 1 is left out: no node that is read has it"),
        ("devices/system/cpu/cpu1/topology/core_cpus_list", "0-1", "the cores of CPUs 1 are left out"),
    ] {
        let tree = Tree::small();
        tree.file(path, text);
        let (_, warnings) = Machine::from_saved_sysfs(&tree.root()).unwrap();
        assert!(warnings.iter().any(|found| found.starts_with(warning)), "{path} holding `{text}`: {warnings:?}");
    }
    let tree = Tree::small();
    for (index, size) in [(0, "0K"), (1, "48K")] {
        tree.cache(0, index, ["1", if index == 0 { "Data" } else { "Instruction" }, size, "12", "0"]);
    }
    let (machine, warnings) = Machine::from_saved_sysfs(&tree.root()).unwrap();
    assert_eq!((machine.caches.len(), warnings.len()), (1, 1), "{warnings:?}");
    assert!(warnings[0].contains("/cpu0/cache/index0 is left out: no cache has level 1, 0 bytes in lines of "));
    let tree = Tree::small();
    for node in 0..2 {
        tree.file(&format!("devices/system/node/node{node}/meminfo"), "");
    }
    let (machine, warnings) = Machine::from_saved_sysfs(&tree.root()).unwrap();
    assert_eq!(machine.nodes[0].memory_bytes, 0);
    assert_eq!(warnings, ["some node has memory, but every memory_bytes is 0"]);
}

/// GNU tar fills files of sysfs, which are shorter than they claim to be, with zeros.
#[test]
fn a_tree_is_read_from_an_archive_with_zeros_in_its_files() {
    let padded = |text: &str| [text.as_bytes(), &[0; 4000]].concat();
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in [
        ("x/sys/devices/system/node/online", "0-1\n"),
        ("x/sys/devices/system/cpu/online", "0-1\n"),
        ("x/sys/devices/system/node/node0/cpulist", "0\n"),
        ("x/sys/devices/system/node/node1/cpulist", "1\n"),
        ("x/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1024 kB\n"),
        ("x/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 1024 kB\n"),
    ] {
        let mut header = tar::Header::new_gnu();
        let bytes = padded(text);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, path, &bytes[..]).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &archive).unwrap();
    let packed = packed.finish().unwrap();
    let folder = TempDir::new().unwrap();
    tar::Archive::new(&archive[..]).unpack(folder.path()).unwrap();
    let nodes = Machine::from_sysfs(&folder.path().join("x/sys")).unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.cpus.to_string()).collect::<Vec<_>>(), ["0", "1"]);
    for bytes in [archive, packed] {
        assert_eq!(Machine::from_archive(&bytes, Path::new("x.tar")).unwrap().0.nodes, nodes);
    }
    let refused = Machine::from_archive(&[0x1f, 0x8b, 8, 0], Path::new("x.tar.gz")).unwrap_err();
    assert!(refused.to_string().contains("x.tar.gz"), "{refused}");
}

/// Promise of the design: 1,024 nodes and 8,192 CPUs. Four CPUs per core, so that the tree is quick to create.
#[test]
fn a_machine_of_1024_nodes_and_8192_cpus() {
    let tree = Tree::new();
    tree.file("devices/system/node/online", "0-1023").file("devices/system/cpu/online", "0-8191");
    for node in 0..1024 {
        let distances: Vec<&str> = (0..1024).map(|to| if to == node { "10" } else { "20" }).collect();
        let first = node * 8;
        tree.node(node, &format!("{first}-{}", first + 7), 1 << 20, &distances.join(" "));
        for cpu in [first, first + 4] {
            let core = format!("{cpu}-{}", cpu + 3);
            tree.cpu(cpu, node, &core);
            tree.cache(cpu, 0, ["1", "Data", "32K", "8", &core]);
            tree.cache(cpu, 1, ["3", "Unified", "16M", "16", &format!("{first}-{}", first + 7)]);
            // The other CPUs of the core have the same files.
            for other in cpu + 1..cpu + 4 {
                let folder = tree.root().join("devices/system/cpu");
                std::os::unix::fs::symlink(format!("cpu{cpu}"), folder.join(format!("cpu{other}"))).unwrap();
            }
        }
    }
    let machine = tree.read().unwrap();
    assert_eq!((machine.nodes.len(), machine.cpus().len(), machine.cores().len()), (1024, 8192, 2048));
    let sharing: Vec<_> = machine.caches.iter().map(|cache| &cache.shared_by).collect();
    assert_eq!(sharing, [&Sharing::Core, &Sharing::Node]);
    assert_eq!(machine.node_of_cpu(CpuId(8191)), Some(NodeId(1023)));
}
