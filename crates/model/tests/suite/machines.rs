//! The whole model against table 1.2 of the `MemProf` and Carrefour study, machines A (opteron-8380x4) and B
//! (opteron-6164x2).

use crate::support::{NODE_BYTES, Order, Pattern, Rates, Runner, assert_within, machine, model, rates, run};
#[allow(dead_code, reason = "shared with other tests and the benchmark, which use other parts")]
use machine::{CpuId, CpuSet, Link, LinkDirection, Machine, NodeId, Sharing};
use model::{AccessKind, Counters, Level, Mechanisms, MemoryRange, Model, ModelError, Request};

const MS: u64 = 1_000_000_000;

/// The CPUs of a node of a preset whose nodes all have the same number.
fn cpus_of(preset: &str, node: usize) -> std::ops::Range<usize> {
    let machine = machine(preset);
    let each = machine.nodes[0].cpus.len();
    node * each..(node + 1) * each
}

fn scan(preset: &str, cpus: impl IntoIterator<Item = usize>, node: usize) -> Rates {
    let mut runners: Vec<_> = cpus.into_iter().map(|cpu| Runner::scan(cpu, node)).collect();
    rates(&model(preset), &mut runners, 5 * MS, 3 * MS)
}

#[test]
fn random_loads_take_the_published_latency() {
    for (preset, from, to, cycles, clock_ghz) in [
        ("opteron-8380x4", 0, 0, 261.0, 2.5),
        ("opteron-8380x4", 0, 1, 286.0, 2.5),
        ("opteron-8380x4", 1, 2, 377.0, 2.5),
        ("opteron-8380x4", 0, 3, 377.0, 2.5),
        ("opteron-6164x2", 0, 0, 175.0, 1.7),
        ("opteron-6164x2", 0, 3, 247.0, 1.7),
        ("opteron-6164x2", 2, 1, 247.0, 1.7),
    ] {
        let mut runner = Runner::chase(cpus_of(preset, from).start, to);
        let rates = rates(&model(preset), std::slice::from_mut(&mut runner), MS, 2 * MS);
        // The program's view: the time of a step, including instructions and cache hits.
        let ns_per_line = 64e9 / rates.bytes_per_s[0];
        assert_within(&format!("{preset} {from}->{to}"), ns_per_line, cycles / clock_ghz, 0.03);
    }
}

#[test]
fn all_cores_of_a_node_draw_its_controllers_bandwidth() {
    for (preset, bandwidth) in [("opteron-8380x4", 7.58e9), ("opteron-6164x2", 5.85e9)] {
        for node in 0..4 {
            assert_within(preset, scan(preset, cpus_of(preset, node), node).total(), bandwidth, 0.10);
        }
    }
}

#[test]
fn every_controller_at_once_gives_the_sum() {
    let mut runners: Vec<_> = (0..24).map(|cpu| Runner::scan(cpu, cpu / 6)).collect();
    let rates = rates(&model("opteron-6164x2"), &mut runners, 5 * MS, 2 * MS);
    assert_within("all local", rates.total(), 4.0 * 5.85e9, 0.10);
}

#[test]
fn a_link_carries_its_bandwidth_each_way() {
    for (preset, from, to, bandwidth) in [
        ("opteron-8380x4", 0, 1, 2.85e9),
        ("opteron-8380x4", 1, 0, 2.85e9),
        ("opteron-8380x4", 0, 3, 2.85e9), // two links
        ("opteron-6164x2", 0, 1, 4.81e9),
        ("opteron-6164x2", 0, 3, 2.1e9), // 8 bits wide
        ("opteron-6164x2", 3, 0, 2.1e9),
    ] {
        assert_within(
            &format!("{preset} {from}->{to}"),
            scan(preset, cpus_of(preset, from), to).total(),
            bandwidth,
            0.10,
        );
    }
    // The two directions do not disturb each other.
    let mut runners: Vec<_> =
        (0..6).map(|cpu| Runner::scan(cpu, 3)).chain((18..24).map(|cpu| Runner::scan(cpu, 0))).collect();
    let rates = rates(&model("opteron-6164x2"), &mut runners, 5 * MS, 2 * MS);
    assert_within("both ways", rates.total(), 2.0 * 2.1e9, 0.10);
}

#[test]
fn as_many_cores_saturate_a_controller_or_link_as_published() {
    // Machine A: 3 cores saturate a controller; B: 1. A link: 1 on both.
    for (preset, bandwidth, cores) in [("opteron-8380x4", 7.58e9, 3), ("opteron-6164x2", 5.85e9, 1)] {
        assert_within(preset, scan(preset, 0..cores, 0).total(), bandwidth, 0.02);
        let fewer = scan(preset, 0..cores - 1, 0).total();
        assert!(fewer < 0.95 * bandwidth, "{preset}: {} cores draw {fewer:e}", cores - 1);
    }
    assert_within("link of A", scan("opteron-8380x4", [0], 1).total(), 2.85e9, 0.02);
    assert_within("link of B", scan("opteron-6164x2", [0], 1).total(), 4.81e9, 0.02);
}

#[test]
fn c48_latency_grows_under_contention() {
    // Random reads of all 24 cores from one node: each has a line in flight, and the 8-bit link throttles node 3 more
    // than the others.
    let preset = "opteron-6164x2";
    let mut runners: Vec<_> = (0..24).map(|cpu| Runner::chase(cpu, 0)).collect();
    let random = rates(&model(preset), &mut runners, 5 * MS, 2 * MS);
    assert_within("full controller", random.total(), 5.85e9, 0.02);
    let growth = random.mean_latency_ns() / 102.9;
    assert!((2.0..3.0).contains(&growth), "random reads: {growth:.1} times idle");
    // Streams have up to 16 lines per core in flight.
    let growth = scan(preset, 0..24, 0).mean_latency_ns() / 102.9;
    assert!((10.0..45.0).contains(&growth), "streams: {growth:.1} times idle");
}

#[test]
fn c46_c47_one_node_for_all_costs_more_than_distance() {
    let preset = "opteron-6164x2";
    let remote = scan(preset, [0], 1).total();
    let local = scan(preset, [0], 0).total();
    let one_node = scan(preset, 0..24, 0).total();
    let mut spread: Vec<_> = (0..24).map(|cpu| Runner::scan(cpu, cpu % 4)).collect();
    let spread = rates(&model(preset), &mut spread, 5 * MS, 2 * MS).total();
    assert!(spread / one_node > 2.0 && spread / one_node > local / remote, "{spread:e} {one_node:e}");
}

#[test]
fn work_beside_a_stream_is_hidden() {
    let model = model("opteron-6164x2");
    let mut runner = Runner::scan(0, 0);
    runner.work_ps = 9_000;
    let rates = rates(&model, std::slice::from_mut(&mut runner), 5 * MS, 2 * MS);
    assert_within("a stream with work", rates.total(), 5.85e9, 0.02);
}

#[test]
fn stores_are_buffered() {
    let scatter = |preset| {
        let pattern = Pattern::Scatter { node: 0, random: machine::Random(1) };
        rates(&model(preset), &mut [Runner::new(0, pattern)], MS, 2 * MS).total()
    };
    // 12 lines in flight, 81.4 ns each on an idle machine; they are 17 % of the controller's capacity.
    assert_within("random stores", scatter("xeon-8180x2"), 12.0 * 64e9 / (81.4 * 1.07), 0.03);
    // Above the controller's capacity, as each line is also written back.
    assert_within("random stores", scatter("opteron-6164x2"), 5.85e9 / 2.0, 0.06);
}

#[test]
fn caches_serve_what_fits_them() {
    let model = model("opteron-6164x2");
    for (bytes, level, latency_ps) in [
        (16 << 10, Level::L1, 1_765),
        (256 << 10, Level::L2, 7_059),
        (3 << 20, Level::L3, 35_290),
        (64 << 20, Level::Dram, 102_941),
    ] {
        let mut last = None;
        for _ in 0..3 {
            for address in (0..bytes).step_by(64) {
                last = Some(model.access(0, 0, Request::to(address, AccessKind::Load), || None));
            }
        }
        let last = last.unwrap_or_else(|| unreachable!("bytes is not 0"));
        assert_eq!((last.level, last.latency_ps, last.node), (level, latency_ps, 0));
        assert_eq!(last.stall_ps == 0, level == Level::L1);
    }
    // Another core of the node gets it from the first one's cache, the next one finds it in L3, one of another node
    // does not.
    model.access(0, 0, Request::to(1 << 29, AccessKind::Load), || None);
    assert_eq!(model.access(1, 0, Request::to(1 << 29, AccessKind::Load), || None).level, Level::Peer);
    assert_eq!(model.access(2, 0, Request::to(1 << 29, AccessKind::Load), || None).level, Level::L3);
    assert_eq!(model.access(6, 0, Request::to(1 << 29, AccessKind::Load), || None).level, Level::Dram);
    // Instructions have their own L1.
    model.access(0, 0, Request::to(1 << 28, AccessKind::Instruction), || None);
    assert_eq!(model.access(0, 0, Request::to(1 << 28, AccessKind::Instruction), || None).level, Level::L1);
    assert_eq!(model.access(0, 0, Request::to(1 << 28, AccessKind::Load), || None).level, Level::L2);
}

#[test]
fn counters_add_up() {
    let model = model("opteron-8380x4");
    let mut warm: Vec<_> = (0..16).map(|cpu| Runner::chase(cpu, 1)).collect();
    run(&model, &mut warm, &mut Order::FarAhead, MS);
    model.begin(0);
    // Node 0 reads node 3, two hops away through node 1; node 1 reads its own.
    let mut runners: Vec<_> =
        (0..4).map(|cpu| Runner::scan(cpu, 3)).chain((4..8).map(|cpu| Runner::chase(cpu, 1))).collect();
    run(&model, &mut runners, &mut Order::FarAhead, 10 * MS);
    model.add_l1_hits(0, 1000, 500);
    let end = runners.iter().map(|runner| runner.time_ps).max().unwrap_or(0);
    let counters = model.counters(end);

    let lines = |of: std::ops::Range<usize>| runners[of].iter().map(|runner| runner.lines).sum::<u64>();
    assert_within("time", counters.time_s, 0.010, 0.01);
    assert_eq!(counters.dram_accesses_by_node[0], [0, 0, 0, lines(0..4)]);
    assert_eq!(counters.dram_accesses_by_node[1], [0, lines(4..8), 0, 0]);
    assert_eq!(counters.dram_accesses, lines(0..8));
    assert_eq!(counters.local_access_ratio, Some(lines(4..8) as f64 / lines(0..8) as f64));
    assert_eq!(counters.imbalance, machine::imbalance([0.0, lines(4..8) as f64, 0.0, lines(0..4) as f64]));
    assert_eq!(counters.stores, 500);
    let levels = counters.l1_hits + counters.l2_hits + counters.l3_hits + counters.dram_accesses + counters.peer_hits;
    assert_eq!(counters.loads + counters.stores, levels);
    assert!(counters.stream_misses > lines(0..4) * 99 / 100);
    let latency: u64 = runners.iter().map(|runner| runner.latency_ps).sum();
    let mean = latency as f64 / 1000.0 / lines(0..8) as f64;
    // The latency of accesses includes the second TLB level.
    assert_within("latency", counters.dram_latency_mean_ns.unwrap_or(0.0), mean, 1e-3);

    let used: Vec<_> = counters.links.iter().filter(|link| link.load.bytes > 0).collect();
    let ends: Vec<_> = used.iter().map(|link| (link.from.0, link.to.0)).collect();
    assert_eq!(ends, [(0, 1), (1, 3)], "only the way there is loaded: {:?}", counters.links);
    assert!(used.iter().all(|link| link.load.bytes == 64 * lines(0..4)));
    assert_within("full link", used[0].load.utilisation, 1.0, 0.03);
    assert!(used.iter().map(|link| link.load.queue_delay_mean_ns).sum::<f64>() > 100.0);
    let controllers: Vec<_> = counters.controllers.iter().map(|controller| controller.load.bytes).collect();
    assert_eq!(controllers, [0, 64 * lines(4..8), 0, 64 * lines(0..4)]);

    model.begin(end);
    let empty = model.counters(end);
    assert_eq!((empty.loads, empty.dram_accesses, empty.local_access_ratio, empty.imbalance), (0, 0, None, None));
}

#[test]
fn cpus_run_in_parallel() {
    // All CPUs of one node, on one L3 cache.
    let model = model("opteron-6164x2");
    let each = 100_000;
    std::thread::scope(|scope| {
        for cpu in 0..6 {
            let model = &model;
            scope.spawn(move || {
                let mut random = machine::Random(cpu as u64);
                let mut time_ps = 0;
                for _ in 0..each {
                    time_ps += model
                        .access(cpu, time_ps, Request::to(random.bits() % (16 << 20), AccessKind::Load), || None)
                        .stall_ps;
                    model.advance(time_ps.saturating_sub(20_000_000));
                }
            });
        }
    });
    let counters = model.counters(MS);
    assert_eq!(counters.loads, 6 * each);
    let missed = counters.l2_hits + counters.l3_hits + counters.dram_accesses + counters.peer_hits;
    assert_eq!(counters.l1_hits + missed, 6 * each);
    assert!(counters.l3_hits + counters.peer_hits > each, "{counters:?}");
}

/// Machine B with the given change, and memory on all nodes.
fn changed(change: impl FnOnce(&mut Machine)) -> Result<Model, ModelError> {
    let mut machine = machine("opteron-6164x2");
    change(&mut machine);
    let memory: Vec<_> = (0..machine.nodes.len())
        .map(|node| MemoryRange { start: node as u64 * NODE_BYTES, end: (node as u64 + 1) * NODE_BYTES, node })
        .collect();
    Model::new(&machine, &memory, &Mechanisms::full())
}

#[test]
fn what_the_description_lacks_is_named() {
    let message = |change: fn(&mut Machine)| changed(change).err().map(|error| error.to_string()).unwrap_or_default();
    for (change, named) in [
        ((|m: &mut Machine| m.core = None) as fn(&mut Machine), "lacks core,"),
        (|m| m.latency = None, "lacks latency,"),
        (|m| m.latency.iter_mut().for_each(|l| l.by_hops_ns.truncate(1)), "lacks latency from node 0 to node 1,"),
        (|m| m.latency.iter_mut().for_each(|l| l.by_hops_ns[0] = -1.0), "latency from node 0 to node 0 = -1"),
        (|m| m.nodes[2].bandwidth_bytes_per_s = None, "lacks bandwidth_bytes_per_s of node 2,"),
        (|m| m.links[1].bandwidth_bytes_per_s = f64::NAN, "link[1].bandwidth_bytes_per_s = NaN"),
        (|m| m.caches.clear(), "lacks an L1 data cache of CPU 0,"),
        (|m| m.caches[2].latency_ns = None, "lacks latency_ns of cache[2] (level 2),"),
        (|m| m.caches[3].line_bytes = 128, "cache[3].line_bytes = 128"),
        (|m| m.caches[3].level = 4, "cache[3].level = 4"),
        (|m| m.core.iter_mut().for_each(|core| core.store_lines = 0), "core.store_lines = 0"),
        (|m| m.links.truncate(1), "link: links join all nodes"),
        (|m| m.nodes.clear(), ""),
    ] {
        let message = message(change);
        assert!(message.contains(named) && !message.is_empty(), "`{message}` does not name {named}");
    }
}

#[test]
fn odd_shapes_are_modelled() -> Result<(), ModelError> {
    // Sparse IDs, a node without CPUs, a one-way link, two L3 on a node, memory on some nodes only.
    let mut machine = machine("opteron-6164x2");
    for (node, id) in machine.nodes.iter_mut().zip([1, 5, 6, 900]) {
        node.id = NodeId(id);
    }
    machine.nodes[3].cpus = CpuSet::new();
    machine.nodes[1].bandwidth_bytes_per_s = None;
    machine.links = [(1, 5), (5, 6), (6, 900), (900, 1)]
        .map(|(from, to)| Link {
            nodes: [NodeId(from), NodeId(to)],
            direction: LinkDirection::Forward,
            bandwidth_bytes_per_s: 3e9,
            latency_ns: None,
            source: None,
        })
        .into();
    machine.latency.iter_mut().for_each(|latency| latency.by_hops_ns = vec![100.0, 200.0, 300.0, 400.0]);
    let halves = |first: u32| [first..first + 3, first + 3..first + 6].map(|half| half.map(CpuId).collect::<CpuSet>());
    machine.caches[3].shared_by = Sharing::Cpus([0, 6, 12].into_iter().flat_map(halves).collect());
    let memory =
        [(0, 0), (1, 2), (2, 3)].map(|(part, node)| MemoryRange { start: part << 30, end: (part + 1) << 30, node });
    let model = Model::new(&machine, &memory, &Mechanisms::full())?;
    assert_eq!(model.cpus(), 18);
    // CPU 12 belongs to node 6: its path to node 1 leads through node 900.
    assert_eq!(model.access(12, 0, Request::to(1 << 20, AccessKind::Load), || None).latency_ps, 300_000);
    assert_eq!(model.access(0, 0, Request::to(5 << 29, AccessKind::Load), || None).latency_ps, 400_000);
    // The other half of node 1's CPUs has its own L3.
    assert_eq!(model.access(3, 0, Request::to(5 << 29, AccessKind::Load), || None).level, Level::Dram);
    assert_eq!(model.access(2, 0, Request::to(5 << 29, AccessKind::Load), || None).level, Level::L3);
    let counters = model.counters(MS);
    assert_eq!(counters.links.len(), 4);
    assert_eq!(counters.controllers.iter().map(|c| c.node.0).collect::<Vec<_>>(), [1, 6, 900]);
    Ok(())
}

/// Bytes per second of the first CPU while all of these read their own nodes' memory, 6 CPUs per node.
fn first_of(preset: &str, cpus: impl IntoIterator<Item = usize>) -> f64 {
    let mut runners: Vec<_> = cpus.into_iter().map(|cpu| Runner::scan(cpu, cpu / 6)).collect();
    rates(&model(preset), &mut runners, 5 * MS, 2 * MS).bytes_per_s[0]
}

/// `spec/performance-isolation.md` 4.3: switching the directory off costs one thread's STREAM 46.4 to 48.9 %.
#[test]
fn c13_without_a_directory_one_thread_streams_half_as_fast() {
    let loss = 1.0 - first_of("magny-cours-4p-no-directory", [0]) / first_of("magny-cours-4p", [0]);
    assert!((loss - 0.475).abs() < 0.08, "{loss}");
}

/// `spec/performance-isolation.md` 7.3: 42 threads on their own nodes.
#[test]
fn c7_with_a_directory_local_memory_of_others_costs_nothing() {
    let preset = "magny-cours-4p";
    assert_within("beside 42", first_of(preset, std::iter::once(0).chain(6..48)), first_of(preset, [0]), 0.001);
}

/// `spec/performance-isolation.md` 7.2, C8: with the directory off, six readers of their own memory cost a reader 68 %
/// if its node forwards their probes, and 7 % if it does not.
#[test]
fn c8_without_a_directory_those_pay_who_pass_probes_on() {
    let preset = "magny-cours-4p-no-directory";
    let alone = first_of(preset, [24]);
    let lost = |load| 1.0 - first_of(preset, std::iter::once(24).chain(load)) / alone;
    let (forwards, does_not) = (lost(42..48), lost(6..12));
    assert!((forwards - 0.68).abs() < 0.08 && (does_not - 0.07).abs() < 0.08, "{forwards} and {does_not}");
}

/// The two CPUs of a core share one path to memory (`spec/numa-manager.md` 8.3: the second adds nearly nothing).
#[test]
fn siblings_share_their_cores_path() {
    let preset = "xeon-x5650x2";
    let core: Vec<_> = machine(preset).smt_cores[0].iter().map(|cpu| cpu.0 as usize).collect();
    let [first, second] = core[..] else { panic!("{core:?}") };
    let alone = scan(preset, [first], 0);
    let both = scan(preset, [first, second], 0);
    assert_within("two siblings", both.total(), alone.total(), 0.05);
    assert_within("one of them", both.bytes_per_s[0], alone.bytes_per_s[0] / 2.0, 0.05);
    assert!(scan(preset, [first, first + 2], 0).total() > 1.3 * alone.total(), "other cores have their own");
}

/// A scan that writes fetches each line and writes it back, over the other direction of the link.
#[test]
fn what_is_written_goes_back_to_memory() {
    let model = model("opteron-6164x2");
    let scan = |kind| Runner::new(0, Pattern::Scan { node: 1, line: 0, kind });
    let counters = |kind| {
        model.begin(0);
        run(&model, &mut [scan(kind)], &mut Order::Slowest, 20 * MS);
        model.counters(20 * MS)
    };
    let read = counters(AccessKind::Load);
    assert_eq!(read.write_backs, 0);
    let written = counters(AccessKind::Store);
    let lines = written.dram_accesses as f64;
    // All but what the caches still hold, at most 5 MiB.
    assert!(lines > 100_000.0 && (lines - written.write_backs as f64) < 100_000.0, "{written:?}");
    let bytes = |from, to| {
        let ends = (NodeId(from), NodeId(to));
        written.links.iter().find(|link| (link.from, link.to) == ends).map_or(0, |link| link.load.bytes)
    };
    assert_eq!((bytes(0, 1), bytes(1, 0)), (written.dram_accesses * 64, written.write_backs * 64));
    let controller = written.controllers[1].load.bytes;
    assert_eq!(controller, (written.dram_accesses + written.write_backs) * 64);
}

/// What a core rewrites in its own second level stays there, also after a neighbour's reads have evicted it from the
/// last-level cache.
#[test]
fn what_stays_in_the_second_level_is_not_written_back() {
    let model = model("small-2x2");
    let writer = Runner::new(0, Pattern::Rewrite { node: 0, lines: 6144, line: 0 });
    let time = |runners: &mut [Runner]| {
        model.begin(0);
        run(&model, runners, &mut Order::Slowest, 20 * MS);
        model.counters(20 * MS)
    };
    let alone = time(&mut [writer.clone()]);
    let beside = time(&mut [writer, Runner::scan(1, 0)]);
    let stores = |counters: &Counters| counters.l2_hits;
    assert!(beside.write_backs < stores(&beside) / 100, "{beside:?}");
    assert!(stores(&beside) * 10 > stores(&alone) * 9, "{} stores, {} alone", stores(&beside), stores(&alone));
}

/// A line that only the second level still has to write back, and that another core then reads.
#[test]
fn what_another_core_has_read_is_still_written_back_once() {
    const LINES: u64 = 4096;
    let model = model("small-2x2");
    let mut time_ps = 0;
    let mut pass = |cpu: usize, lines: std::ops::Range<u64>, kind: AccessKind| {
        for line in lines {
            time_ps += 1_000_000;
            model.access(cpu, time_ps, Request::to(line * 64, kind), || None);
            model.advance(time_ps);
        }
        time_ps
    };
    pass(0, 0..LINES, AccessKind::Load);
    // A neighbour's reads evict them from the last level.
    pass(1, 1_000_000..1_200_000, AccessKind::Load);
    pass(0, 0..LINES, AccessKind::Store);
    pass(2, 0..LINES, AccessKind::Load);
    let end_ps = pass(0, 2_000_000..2_200_000, AccessKind::Load);
    let written = model.counters(end_ps).write_backs;
    assert!((LINES * 9 / 10..=LINES).contains(&written), "{written} of {LINES} lines");
}
