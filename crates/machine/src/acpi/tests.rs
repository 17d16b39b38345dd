//! Tables built byte by byte, and real ones made by QEMU 10.0 (see `tests/fixtures/acpi/README.md`).

use super::*;
use crate::chain;
use proptest::prelude::*;
use std::fs;

const REAL: [&[u8]; 3] = [
    include_bytes!("../../tests/fixtures/acpi/4-nodes-6-cpus-hmat/SRAT"),
    include_bytes!("../../tests/fixtures/acpi/4-nodes-6-cpus-hmat/SLIT"),
    include_bytes!("../../tests/fixtures/acpi/4-nodes-6-cpus-hmat/HMAT"),
];

/// A table with a valid length and checksum around a body.
fn table(signature: &str, revision: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = signature.as_bytes().to_vec();
    bytes.extend((36 + body.len() as u32).to_le_bytes());
    bytes.extend([revision, 0]);
    bytes.extend(b"NEARSDTESTED  \0\0\0\0\0\0\0\0\0\0\0\0");
    bytes.extend(body);
    bytes[9] = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    bytes
}

fn srat(revision: u8, entries: &[Vec<u8>]) -> Vec<u8> {
    table("SRAT", revision, &[vec![0; 12], entries.concat()].concat())
}

fn apic(domain: u32, id: u8, flags: u32) -> Vec<u8> {
    let [low, high @ ..] = domain.to_le_bytes();
    [&[0, 16, low, id][..], &flags.to_le_bytes(), &[0], &high, &[0; 4]].concat()
}

fn x2apic(domain: u32, id: u32, flags: u32) -> Vec<u8> {
    [&[2, 24, 0, 0][..], &domain.to_le_bytes(), &id.to_le_bytes(), &flags.to_le_bytes(), &[0; 8]].concat()
}

fn gicc(domain: u32, uid: u32, flags: u32) -> Vec<u8> {
    [&[3, 18][..], &domain.to_le_bytes(), &uid.to_le_bytes(), &flags.to_le_bytes(), &[0; 4]].concat()
}

fn initiator(domain: u32, flags: u32) -> Vec<u8> {
    [&[5, 32, 0, 1][..], &domain.to_le_bytes(), &[0; 16], &flags.to_le_bytes(), &[0; 4]].concat()
}

fn memory(domain: u32, base: u64, length: u64, flags: u32) -> Vec<u8> {
    let head = [&[1, 40][..], &domain.to_le_bytes(), &[0; 2], &base.to_le_bytes(), &length.to_le_bytes()].concat();
    [&head[..], &[0; 4], &flags.to_le_bytes(), &[0; 8]].concat()
}

fn slit(count: u64, matrix: &[u8]) -> Vec<u8> {
    table("SLIT", 1, &[&count.to_le_bytes()[..], matrix].concat())
}

fn hmat(revision: u8, structures: &[Vec<u8>]) -> Vec<u8> {
    table("HMAT", revision, &[vec![0; 4], structures.concat()].concat())
}

fn locality(flags: u8, data_type: u8, unit: u64, initiators: &[u32], targets: &[u32], entries: &[u16]) -> Vec<u8> {
    let domains = initiators.iter().chain(targets).flat_map(|domain| domain.to_le_bytes());
    let lists: Vec<u8> = domains.chain(entries.iter().flat_map(|entry| entry.to_le_bytes())).collect();
    let mut bytes = vec![1, 0, 0, 0];
    bytes.extend((32 + lists.len() as u32).to_le_bytes());
    bytes.extend([flags, data_type, 0, 0]);
    bytes.extend((initiators.len() as u32).to_le_bytes());
    bytes.extend((targets.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(unit.to_le_bytes());
    bytes.extend(lists);
    bytes
}

/// Two nodes of one CPU and 1 GiB each.
fn two_nodes() -> Vec<u8> {
    srat(3, &[apic(0, 0, 1), apic(1, 4, 1), memory(0, 0, 1 << 30, 1), memory(1, 1 << 30, 1 << 30, 1)])
}

fn refused(srat: &[u8], slit: Option<&[u8]>, hmat: Option<&[u8]>) -> String {
    chain(&Machine::from_acpi(srat, slit, hmat).expect_err("must be refused"))
}

#[test]
fn the_tables_of_qemu_give_the_machine_that_qemu_emulates() {
    let [srat, slit, hmat] = REAL;
    let machine = Machine::from_acpi(srat, Some(slit), Some(hmat)).unwrap();
    let nodes: Vec<_> = machine.nodes.iter().map(|n| (n.id.0, n.cpus.to_string(), n.memory_bytes >> 10)).collect();
    // 384 KiB below 1 MiB are not memory on a PC.
    let expected = [(0, "0-1", 65_536 - 384), (1, "2-3", 32_768), (2, "4-5", 0), (3, "", 32_768)];
    assert_eq!(nodes, expected.map(|(id, cpus, kib)| (id, cpus.to_owned(), kib)));
    let distances = machine.distances.unwrap().matrix;
    assert_eq!(distances, [[10, 21, 31, 17], [22, 10, 21, 28], [31, 21, 10, 30], [28, 28, 30, 10]]);
    // QEMU was given no latency from node 3 (no CPUs) nor to node 2 (no memory).
    let latency = machine.latency.unwrap().matrix_ns;
    let expected = [
        [90.0, 140.0, 180.0, 250.0],
        [145.0, 95.0, 185.0, 300.0],
        [180.0, 185.0, 350.0, 350.0],
        [250.0, 300.0, 350.0, 350.0],
    ];
    assert_eq!(latency, expected);
    let bandwidth: Vec<_> = machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect();
    assert_eq!(bandwidth, [Some(20_480e6), Some(18_432e6), None, Some(4_096e6)]);
    assert_eq!(machine.description, "as the firmware tables of BOCHS BXPC describe it");

    let hmat = Hmat::parse(hmat).unwrap();
    let initiators: Vec<_> = hmat.attributes.iter().map(|a| (a.memory, a.initiator)).collect();
    assert_eq!(initiators, [(0, Some(0)), (1, Some(1)), (3, Some(1))]);
    let cache = MemorySideCache {
        memory: 3,
        size_bytes: 16 << 20,
        levels: 1,
        level: 1,
        associativity: 1,
        write_policy: 1,
        line_bytes: 64,
    };
    assert_eq!(hmat.caches, [cache]);
}

#[test]
fn a_folder_of_tables_is_read_and_only_the_srat_must_be_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/acpi/4-nodes-6-cpus-hmat");
    let [srat, slit, hmat] = REAL;
    let (machine, warnings) = Machine::from_acpi_dir(&folder).unwrap();
    assert_eq!((machine, warnings.len()), (Machine::from_acpi(srat, Some(slit), Some(hmat)).unwrap(), 0));
    let error = Machine::from_acpi_dir(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the table /nonexistent/SRAT"), "{error}");
}

/// Linux ignores a SLIT of equal distances: "SLIT table looks invalid. Not used."
#[test]
fn a_wrong_slit_or_hmat_is_left_out_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for (name, table) in [("SRAT", two_nodes()), ("SLIT", slit(2, &[10; 4])), ("HMAT", b"none".to_vec())] {
        fs::write(folder.path().join(name), table).unwrap();
    }
    let (machine, warnings) = Machine::from_acpi_dir(folder.path()).unwrap();
    assert_eq!(machine, Machine::from_acpi(&two_nodes(), None, None).unwrap());
    let begins = ["the table SLIT is left out: ", "the table HMAT is left out: "];
    assert!(warnings.iter().zip(begins).all(|(warning, begins)| warning.starts_with(begins)), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
}

#[test]
fn nodes_are_numbered_in_order_of_appearance_with_processors_first() {
    let entries = [
        memory(40, 0, 1 << 30, 1),
        memory(7, 1 << 30, 1 << 30, 1),
        x2apic(9, 300, 1),
        gicc(8, 1, 0),
        initiator(70_000, 1),
        initiator(3, 0),
        x2apic(7, 301, 1),
        vec![200, 5, 1, 2, 3],
        apic(9, 3, 0),
    ];
    let machine = Machine::from_acpi(&srat(3, &entries), None, None).unwrap();
    let nodes: Vec<_> = machine.nodes.iter().map(|n| (n.id.0, n.cpus.to_string(), n.memory_bytes >> 30)).collect();
    let expected = [(0, "0", 0), (1, "", 0), (2, "1", 1), (3, "", 1)];
    assert_eq!(nodes, expected.map(|(id, cpus, gib)| (id, cpus.to_owned(), gib)));
    assert_eq!(machine.distances, None);
}

#[test]
fn memory_that_may_come_later_or_is_persistent_is_no_nodes_memory() {
    let entries = [
        gicc(0, 5, 1),
        memory(0, 0, 4096, 1),
        memory(0, 2048, 4096, 1),
        memory(1, 1 << 30, 1 << 30, 3),
        memory(2, 2 << 30, 1 << 30, 5),
        memory(3, 3 << 30, 1 << 30, 0),
        memory(4, 4 << 30, 1 << 30, 1),
    ];
    let machine = Machine::from_acpi(&srat(3, &entries), None, None).unwrap();
    let nodes: Vec<_> = machine.nodes.iter().map(|n| (n.id.0, n.memory_bytes)).collect();
    assert_eq!(nodes, [(0, 6144), (3, 1 << 30)]);
}

#[test]
fn before_revision_2_a_domain_has_8_bits() {
    let entries = [apic(0x0102_0301, 0, 1), memory(0xffff_ff01, 0, 4096, 1)];
    assert_eq!(Srat::parse(&srat(1, &entries)).unwrap().nodes.keys().copied().collect::<Vec<_>>(), [1]);
    let wide: Vec<u32> = Srat::parse(&srat(2, &entries)).unwrap().nodes.keys().copied().collect();
    assert_eq!(wide, [0x0102_0301, 0xffff_ff01]);
}

#[test]
fn a_broken_table_is_refused_with_table_offset_field_and_rule() {
    let mut checksum = two_nodes();
    checksum[100] ^= 1;
    let crossing = srat(3, &[memory(0, 0, 8192, 1), memory(1, 4096, 4096, 1)]);
    let twice = srat(3, &[apic(0, 3, 1), x2apic(1, 3, 1)]);
    let beyond = srat(3, &[memory(0, u64::MAX, 2, 1)]);
    let many: Vec<_> = (0..4097).map(|domain| memory(domain, 0, 0, 1)).collect();
    let cases = [
        (b"SRA".to_vec(), "SRAT, byte 0 (0x0): header: takes 36 bytes, but what it is part of ends at byte 3"),
        (slit(0, &[]), "SRAT, byte 0 (0x0): signature: must be `SRAT`, is `SLIT`"),
        (checksum, "SRAT, byte 9 (0x9): checksum: all bytes must add up to 0, they add up to"),
        (
            srat(3, &[vec![0, 1]]),
            "SRAT, byte 48 (0x30): entry length: must be from 2 to the 2 bytes left of the table, is 1",
        ),
        (srat(3, &[vec![0, 8, 0, 0, 0, 0, 0, 0]]), "SRAT, byte 48 (0x30): processor affinity: takes 16 bytes"),
        (srat(3, &[apic(0, 0, 0)]), "SRAT, byte 48 (0x30): entries: none is enabled"),
        (crossing, "SRAT, byte 88 (0x58): memory range: overlaps that of domain 0 at byte 48 from address 0x1000 on"),
        (twice, "SRAT, byte 64 (0x40): processor id: Apic(3) is in domain 0 already, here in 1"),
        (beyond, "SRAT, byte 48 (0x30): memory range: 0x2 bytes from 0xffffffffffffffff on end beyond"),
        (srat(3, &many), "SRAT, byte 163888 (0x28030): proximity domain: 4096 would be one node more than the 4096"),
    ];
    for (bytes, message) in cases {
        let error = refused(&bytes, None, None);
        assert!(error.starts_with(message), "{error}\n{message}");
    }
}

#[test]
fn a_broken_slit_is_refused() {
    let cases = [
        (
            slit(1 << 63, &[10]),
            "SLIT, byte 36 (0x24): number of localities: is 9223372036854775808, more than any table",
        ),
        (
            slit(1 << 20, &[10]),
            "SLIT, byte 44 (0x2c): matrix: takes 1099511627776 bytes, but what it is part of ends at byte 45",
        ),
        (slit(2, &[10, 20, 20, 11]), "SLIT, byte 47 (0x2f): distance: from domain 1 to 1 is 11"),
        (slit(2, &[10, 10, 20, 10]), "SLIT, byte 45 (0x2d): distance: from domain 0 to 1 is 10"),
        (slit(2, &[10, 20, 9, 10]), "SLIT, byte 46 (0x2e): distance: from domain 1 to 0 is 9"),
    ];
    for (bytes, message) in cases {
        let error = refused(&two_nodes(), Some(&bytes), None);
        assert!(error.starts_with(message), "{error}\n{message}");
    }
}

#[test]
fn distances_are_by_domain_and_default_as_in_linux_where_the_slit_ends() {
    let entries = [apic(1, 0, 1), apic(0, 1, 1), apic(5, 2, 1), memory(0, 0, 4096, 1)];
    let machine = Machine::from_acpi(&srat(3, &entries), Some(&slit(2, &[10, 21, 255, 10])), None).unwrap();
    assert_eq!(machine.distances.unwrap().matrix, [[10, 255, 20], [21, 10, 20], [20, 20, 10]]);
}

#[test]
fn hmat_units_of_each_revision() {
    let structures = [locality(0, 0, 100, &[0], &[0], &[10]), locality(0, 3, 1000, &[0], &[0], &[50])];
    let values = |revision| {
        let hmat = Hmat::parse(&hmat(revision, &structures)).unwrap();
        [Quantity::AccessLatency, Quantity::AccessBandwidth].map(|quantity| hmat.memory(quantity).collect::<Vec<_>>())
    };
    assert_eq!(values(1), [[(0, 0, Performance::Known(100.0))], [(0, 0, Performance::Known(5e9))]]);
    assert_eq!(values(2), [[(0, 0, Performance::Known(1.0))], [(0, 0, Performance::Known(5e10))]]);
}

#[test]
fn reads_are_preferred_and_caches_and_holes_are_no_latency() {
    let all = [0, 1];
    let given = |structures: &[Vec<u8>]| Machine::from_acpi(&two_nodes(), None, Some(&hmat(2, structures))).unwrap();
    let access = locality(0, 0, 1000, &all, &all, &[1, 2, 3, 4]);
    let read = locality(0, 1, 1000, &[1], &[0], &[9]);
    let of_a_cache = locality(1, 1, 1000, &all, &all, &[7; 4]);
    let unknown_type = locality(0, 6, 0, &all, &all, &[7; 4]);
    let machine = given(&[read, access, of_a_cache, unknown_type]);
    assert_eq!(machine.latency.unwrap().matrix_ns, [[1.0, 2.0], [9.0, 4.0]]);
    for hole in [0, 0xffff] {
        assert_eq!(given(&[locality(0, 0, 1000, &all, &all, &[1, hole, 3, 4])]).latency, None);
    }
    let bandwidth = given(&[locality(0, 4, 10, &all, &all, &[100, 50, 0, 0xffff])]);
    assert_eq!(bandwidth.nodes[0].bandwidth_bytes_per_s, Some(1e9));
    assert_eq!(bandwidth.nodes[1].bandwidth_bytes_per_s, Some(5e8));
}

#[test]
fn hmat_numbers_that_no_machine_has_are_left_out_with_a_warning() {
    let all = [0, 1];
    // In revision 2, latencies are picoseconds and bandwidths megabytes, times the base unit.
    let latency = locality(0, 0, 1, &all, &all, &[5, 100, 100, 100]);
    let bandwidth = locality(0, 3, 1_000_000, &all, &all, &[500, 50, 0, 20]);
    let folder = tempfile::tempdir().unwrap();
    for (name, table) in [("SRAT", two_nodes()), ("HMAT", hmat(2, &[latency, bandwidth]))] {
        fs::write(folder.path().join(name), table).unwrap();
    }
    let (machine, warnings) = Machine::from_acpi_dir(folder.path()).unwrap();
    let bandwidths: Vec<_> = machine.nodes.iter().map(|node| node.bandwidth_bytes_per_s).collect();
    assert_eq!((machine.latency, bandwidths), (None, vec![None, Some(5e13)]));
    assert!(warnings.iter().any(|warning| warning.contains("0.01 to 1e7 ns, not 0.005 (1 in all)")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.starts_with("bandwidths are left out")), "{warnings:?}");
}

#[test]
fn a_broken_hmat_is_refused() {
    let mut huge = locality(0, 0, 1, &[0], &[0], &[1]);
    huge[12..20].fill(0xff);
    let mut handles = vec![2, 0, 0, 0, 32, 0, 0, 0];
    handles.extend([0; 22]);
    handles.extend([255, 255]);
    let cases = [
        (hmat(0, &[]), "HMAT, byte 8 (0x8): revision: must be 1"),
        (hmat(2, &[vec![1, 0, 0, 0, 7, 0, 0, 0]]), "HMAT, byte 40 (0x28): entry length: must be from 8 to the 8 bytes"),
        (
            hmat(2, &[huge]),
            "HMAT, byte 72 (0x48): initiator list: takes 17179869180 bytes, but what it is part of ends at byte 82",
        ),
        (hmat(2, &[handles]), "HMAT, byte 72 (0x48): SMBIOS handles: takes 131070 bytes"),
        (hmat(2, &[locality(0, 0, 0, &[0], &[0], &[1])]), "HMAT, byte 64 (0x40): entry base unit: must not be 0"),
    ];
    for (bytes, message) in cases {
        let error = refused(&two_nodes(), None, Some(&bytes));
        assert!(error.starts_with(message), "{error}\n{message}");
    }
}

/// Fixes length and checksum, so that the code after their checks is tested too.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.len() as u32;
    if let Some(field) = bytes.get_mut(4..8) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    if bytes.len() > 9 {
        bytes[9] = 0;
        bytes[9] = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    }
    bytes
}

#[test]
fn a_table_cut_anywhere_is_refused() {
    let [srat, slit, hmat] = REAL;
    for end in 0..srat.len() {
        refused(&srat[..end], None, None);
    }
    for end in 0..slit.len() {
        refused(srat, Some(&slit[..end]), None);
        refused(srat, Some(&sealed(slit[..end].to_vec())), None);
    }
    for end in 0..hmat.len() {
        refused(srat, None, Some(&hmat[..end]));
    }
}

#[test]
fn a_table_of_1024_nodes_and_8192_cpus_is_read() {
    let cpus = (0..8192).map(|cpu| x2apic(cpu / 8, cpu, 1));
    let entries: Vec<_> = cpus.chain((0..1024).map(|n| memory(n, u64::from(n) << 30, 1 << 30, 1))).collect();
    let distances: Vec<u8> = (0..1024 * 1024).map(|cell| if cell % 1025 == 0 { 10 } else { 20 }).collect();
    let domains: Vec<u32> = (0..1024).collect();
    let latency = hmat(2, &[locality(0, 0, 1000, &domains, &domains, &vec![100; 1024 * 1024])]);
    let machine = Machine::from_acpi(&srat(3, &entries), Some(&slit(1024, &distances)), Some(&latency)).unwrap();
    assert_eq!((machine.nodes.len(), machine.cpus().len()), (1024, 8192));
    assert_eq!(machine.latency.unwrap().matrix_ns.len(), 1024);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (Srat::parse(&bytes), Slit::parse(&bytes), Hmat::parse(&bytes));
    }

    #[test]
    fn damaged_tables_never_panic(which in 0..3_usize, damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..9), cut in any::<proptest::sample::Index>()) {
        let mut bytes = REAL[which].to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes[..4].copy_from_slice(&REAL[which][..4]);
        for bytes in [sealed(bytes[..cut.index(bytes.len()).max(4)].to_vec()), sealed(bytes)] {
            let given = |table| if which == table { &bytes[..] } else { REAL[table] };
            let _ = Machine::from_acpi(given(0), Some(given(1)), Some(given(2)));
        }
    }

    #[test]
    fn any_processors_and_memory_are_found_again(cpus in proptest::collection::vec(0..6_u32, 1..40), memory_of in proptest::collection::vec(0..9_u32, 1..20)) {
        let processors = (0..).zip(&cpus).map(|(id, &domain)| x2apic(domain * 1000, id, 1));
        let ranges = (0..).zip(&memory_of).map(|(n, &domain)| memory(domain * 1000, n << 30, 1 << 30, 1));
        let machine = Machine::from_acpi(&srat(3, &processors.chain(ranges).collect::<Vec<_>>()), None, None).unwrap();
        prop_assert_eq!(machine.cpus().len(), cpus.len());
        prop_assert_eq!(machine.nodes.iter().map(|node| node.memory_bytes >> 30).sum::<u64>(), memory_of.len() as u64);
        for (cpu, other) in (0..).zip(&cpus).flat_map(|a| (0..).zip(&cpus).map(move |b| (a, b))) {
            let together = machine.node_of_cpu(CpuId(cpu.0)) == machine.node_of_cpu(CpuId(other.0));
            prop_assert_eq!(together, cpu.1 == other.1);
        }
    }
}
