//! The parts of the model that can be switched off: the effect of each, and its absence.

use crate::support::{NODE_BYTES, Pattern, Rates, Runner, assert_within, machine, model, model_with, rates};
#[allow(dead_code, reason = "shared with other tests and the benchmark, which use other parts")]
use machine::{PageSize, Random};
use model::{AccessKind, Level, Mechanism, Mechanisms, MemoryRange, Model, PageEntry, Request};

const MS: u64 = 1_000_000_000;

/// A preset with [`NODE_BYTES`] on each node and optionally a part switched off.
fn without(preset: &str, part: Option<Mechanism>) -> Model {
    let mut mechanisms = Mechanisms::full();
    if let Some(part) = part {
        mechanisms.remove(part);
    }
    model_with(preset, &mechanisms)
}

fn measure(preset: &str, part: Option<Mechanism>, runners: &[Runner]) -> Rates {
    rates(&without(preset, part), &mut runners.to_vec(), 5 * MS, 3 * MS)
}

/// Ratio of the runners' total throughput without the part to that with it.
fn gain(preset: &str, part: Mechanism, runners: &[Runner]) -> f64 {
    measure(preset, None, runners).total() / measure(preset, Some(part), runners).total()
}

fn access(model: &Model, cpu: usize, address: u64, kind: AccessKind) -> (Level, f64) {
    let access = model.access(cpu, 0, Request::to(address, kind), || None);
    (access.level, f64::from(access.latency_ps) / 1000.0)
}

#[test]
fn each_part_does_something_and_nothing_when_it_is_off() {
    let scan = |cpus: std::ops::Range<usize>| cpus.map(|cpu| Runner::scan(cpu, 0)).collect::<Vec<_>>();
    let write = |cpu| Runner::new(cpu, Pattern::Scan { node: 0, line: 0, kind: AccessKind::Store });
    let random = |cpu| Runner::new(cpu, Pattern::Gather { node: 0, random: Random(7) });
    let scatter = |cpu| Runner::new(cpu, Pattern::Scatter { node: 0, random: Random(7) });
    // Without prefetchers a line takes its whole latency; with them 16 are in flight, up to the core's bandwidth.
    let streams = gain("opteron-6164x2", Mechanism::Streams, &scan(0..1));
    assert!(streams > 7.0, "{streams}");
    // 12 buffered stores.
    assert_within("stores", gain("xeon-8180x2", Mechanism::StoreBuffer, &[scatter(0)]), 12.0, 0.1);
    // Up to 8 loads, as many as fit into 72 instructions: all, here.
    assert_within("loads", gain("opteron-6164x2", Mechanism::Overlap, &[random(0)]), 8.0, 0.1);
    // Two siblings share one path.
    assert_within("siblings", gain("xeon-x5650x2", Mechanism::Siblings, &scan(0..2)), 0.5, 0.15);
    // Write-backs take half of a full controller.
    let write_backs = gain("opteron-8380x4", Mechanism::WriteBacks, &[write(0), write(1), write(2), write(3)]);
    assert_within("write-backs", write_backs, 0.5, 0.1);
    // Near a controller's full bandwidth, queues are longer with the curve than without.
    let latency = |part| measure("xeon-8180x2", part, &scan(0..7)).mean_latency_ns();
    assert!(latency(None) > 1.2 * latency(Some(Mechanism::LoadCurves)));
}

/// Lines a CPU reads from its L3 in 2 ms, after its core's other CPU has ended. Another core takes a line from memory now
/// and then, as a kernel's tick does: nothing else goes to memory.
fn lines_from_l3(part: Option<Mechanism>) -> u64 {
    let model = without("xeon-6130x2", part);
    let [first, second] = *machine("xeon-6130x2").smt_cores[0].iter().collect::<Vec<_>>() else {
        panic!("no siblings")
    };
    let far = machine("xeon-6130x2").nodes[1].cpus.first().unwrap().0 as usize;
    let mut cpus = vec![(first.0 as usize, 0, 0_u64), (second.0 as usize, 0, 0)];
    let (mut ticks, mut lines) = (0, 0);
    while let Some((at, (cpu, time_ps, line))) =
        cpus.iter().copied().enumerate().min_by_key(|(_, (_, time_ps, _))| *time_ps)
    {
        if time_ps >= 5 * MS {
            break;
        }
        model.advance(time_ps);
        if time_ps >= ticks * MS {
            ticks += 1;
            model.access(far, time_ps, Request::to(NODE_BYTES + ticks * 8192, AccessKind::Load), || None);
        }
        // Of 6 MiB each.
        let address = (at as u64) * (8 << 20) + line % (6 << 14) * 64;
        let access = model.access(cpu, time_ps, Request::to(address, AccessKind::Load), || None);
        lines += u64::from(time_ps >= 3 * MS);
        cpus[at] = (cpu, time_ps + 500 + access.stall_ps, line + 1);
        if at == 1 && time_ps >= 2 * MS {
            cpus.pop();
        }
    }
    lines
}

#[test]
fn a_core_is_not_shared_with_a_cpu_that_has_ended() {
    let (with, without) = (lines_from_l3(None), lines_from_l3(Some(Mechanism::Siblings)));
    assert!(without > 1_000_000, "{without}");
    assert_within("lines in 2 ms", with as f64, without as f64, 0.01);
}

/// `spec/field.md` 5.4, row C: 53.8 ns within the socket, 113.9 for the owner's own memory, 175.7 for the reader's.
#[test]
fn a_line_comes_from_the_cache_that_has_written_it() {
    for (reader, home, published) in [(1, 0, 53.8), (28, 0, 113.9), (28, 1, 175.7)] {
        let address = home * NODE_BYTES + (1 << 20);
        let model = model("xeon-8180x2");
        access(&model, 0, address, AccessKind::Store);
        let (level, ns) = access(&model, reader, address, AccessKind::Load);
        assert_eq!(level, Level::Peer, "CPU {reader}");
        assert_within(&format!("to CPU {reader}, homed on {home}"), ns, published, 0.02);
        assert_eq!(access(&model, reader, address, AccessKind::Load).0, Level::L1, "it has a copy now");
        let without = without("xeon-8180x2", Some(Mechanism::Coherence));
        access(&without, 0, address, AccessKind::Store);
        assert_ne!(access(&without, reader, address, AccessKind::Load).0, Level::Peer);
    }
}

#[test]
fn a_line_that_was_read_is_written_for_the_first_time_once() {
    let model = model("opteron-6164x2");
    let is_first = |address, kind| model.access(0, 0, Request::to(address, kind), || None).first_write;
    let kinds = [AccessKind::Load, AccessKind::Load, AccessKind::Store, AccessKind::Store, AccessKind::Load];
    assert_eq!(kinds.map(|kind| is_first(64, kind)), [false, false, true, false, false]);
    // A store miss is reported as such.
    assert_eq!([is_first(4096, AccessKind::Store), is_first(4096, AccessKind::Store)], [false, false]);
}

#[test]
fn who_writes_a_line_takes_it_from_all_others() {
    let model = model("opteron-6174x4");
    let readers = [1, 7, 20, 47];
    for cpu in std::iter::once(0).chain(readers) {
        access(&model, cpu, 64, AccessKind::Load);
    }
    assert!(readers.iter().all(|&cpu| access(&model, cpu, 64, AccessKind::Load).0 == Level::L1));
    let write = model.access(0, 0, Request::to(64, AccessKind::Store), || None);
    assert_eq!(write.level, Level::L1);
    assert!(write.stall_ps > 0, "the others are asked");
    assert_eq!(access(&model, 0, 64, AccessKind::Store), access(&model, 0, 64, AccessKind::Store), "once");
    for cpu in readers {
        let level = access(&model, cpu, 64, AccessKind::Load).0;
        // The first reader gets it from the writer, the others find it in memory or in a cache of their node.
        let expected = if cpu == 1 { [Level::Peer; 2] } else { [Level::Dram, Level::Peer] };
        assert!(expected.contains(&level), "CPU {cpu}: {level:?}");
    }
}

#[test]
fn readers_of_other_nodes_lose_their_copies_too() {
    let model = model("opteron-6174x4");
    let readers = [7, 20, 47];
    for cpu in readers {
        assert_eq!(access(&model, cpu, 64, AccessKind::Load).0, Level::Dram, "CPU {cpu}");
    }
    access(&model, 20, 64, AccessKind::Store);
    assert_eq!(access(&model, 7, 64, AccessKind::Load).0, Level::Peer);
    assert_eq!(access(&model, 47, 64, AccessKind::Load).0, Level::Dram, "the writer's copy is memory's by now");
}

#[test]
fn a_reader_and_a_writer_hand_a_line_to_and_fro() {
    let model = model("opteron-6174x4");
    access(&model, 0, 64, AccessKind::Store);
    for turn in 0..10 {
        assert_eq!(access(&model, 20, 64, AccessKind::Load).0, Level::Peer, "turn {turn}");
        let write = model.access(0, 0, Request::to(64, AccessKind::Store), || None);
        assert!(write.stall_ps > 0, "turn {turn}: the reader gives its copy up");
    }
}

/// However long the lab lets a CPU run before another, lines that both write change hands at each increment.
#[test]
fn a_line_that_is_written_in_turns_changes_hands_at_each_turn() {
    let model = model("opteron-6174x4");
    let peers = |cpu, window, address| increments(&model, cpu, window * model::WINDOW_PS, 300_000, address);
    for window in 0..4 {
        peers(0, window, 64);
        peers(20, window, 64);
    }
    // The first has come in the window before.
    assert!(peers(0, 4, 64) >= 99 && peers(20, 4, 64) >= 99);
    let write = |time_ps| model.access(0, time_ps, Request::to(64, AccessKind::Store), || None);
    assert!((0..100).all(|index| !write(5 * model::WINDOW_PS + index).keep));
    assert!(peers(0, 20, 64) <= 1, "no other core has wanted it for a while");
    // Neighbouring lines, each used by one core only.
    for window in 0..4 {
        peers(0, window, 128);
        peers(20, window, 192);
    }
    assert_eq!((peers(0, 4, 128), peers(20, 4, 192)), (0, 0));
}

/// Two cores that increment a word a hundred times each, one after the other, as with a futex: the line moves once a
/// turn, not at each increment.
#[test]
fn a_line_that_is_used_in_bursts_changes_hands_once_a_burst() {
    let model = model("opteron-6174x4");
    let turn = |cpu, index: u64| {
        let begin_ps = index * 10_000_000;
        model.advance(begin_ps);
        increments(&model, cpu, begin_ps, 10_000, 64)
    };
    let turns: Vec<usize> = (0..10).map(|index| turn([0, 20][index as usize % 2], index)).collect();
    assert!(turns.iter().skip(4).all(|&peers| (1..=10).contains(&peers)), "{turns:?}");
}

/// A CPU increments a word a hundred times, this far apart, ps. Returns how often the line came from another core.
fn increments(model: &Model, cpu: usize, begin_ps: u64, every_ps: u64, address: u64) -> usize {
    let mut time_ps = begin_ps;
    let came = |_: &usize| {
        let mut access = |kind| {
            let access = model.access(cpu, time_ps, Request::to(address, kind), || None);
            time_ps += access.stall_ps;
            access.level
        };
        let came = [AccessKind::Load, AccessKind::Store].map(&mut access).contains(&Level::Peer);
        time_ps += every_ps;
        came
    };
    (0..100).filter(came).count()
}

#[test]
fn lines_that_one_core_uses_cost_nothing_more() {
    let (with, without) = (model("opteron-6164x2"), without("opteron-6164x2", Some(Mechanism::Coherence)));
    let mut random = Random(3);
    for _ in 0..100_000 {
        let (address, store) = (random.bits() % (64 << 20), random.bits().is_multiple_of(3));
        let request = Request::to(address, if store { AccessKind::Store } else { AccessKind::Load });
        assert_eq!(with.access(0, 0, request, || None), without.access(0, 0, request, || None));
    }
}

/// Time per load, each of another small page, with page table entries on a given node, ns.
fn walks(pages: u64, stride: u64, table: u64, part: Option<Mechanism>) -> f64 {
    let mut machine = machine("opteron-8380x4");
    machine.coherence = None;
    if let Some(core) = &mut machine.core {
        core.load_lines = None;
    }
    assert!(machine.tlbs.iter().any(|tlb| tlb.pages.contains(&PageSize::Small)));
    let memory: Vec<_> =
        (0..4).map(|node| MemoryRange { start: node << 30, end: (node + 1) << 30, node: node as usize }).collect();
    let mut mechanisms = Mechanisms::full();
    if let Some(part) = part {
        mechanisms.remove(part);
    }
    let model = Model::new(&machine, &memory, &mechanisms).unwrap_or_else(|error| panic!("{error}"));
    let mut time_ps = 0;
    for round in 0..2 {
        let begin = time_ps;
        for page in 0..pages {
            let physical = page * 4096 + page % 64 * 64;
            let request = Request {
                kind: AccessKind::Load,
                physical,
                virtual_address: (7 << 40) + physical + 8192,
                instruction: 1,
            };
            let address = table * (1 << 30) + (512 << 20) + page * stride;
            let entry = || Some(PageEntry { address, huge: false });
            time_ps += model.access(0, time_ps, request, entry).stall_ps;
            model.advance(time_ps);
        }
        if round == 1 {
            return (time_ps - begin) as f64 / pages as f64 / 1000.0;
        }
    }
    unreachable!("the second round returns")
}

#[test]
fn a_page_walk_reads_the_page_tables_own_node() {
    // 32,768 pages, with neither line nor entry in any cache, as each entry is alone in its line.
    let (local, far) = (walks(1 << 15, 4096, 0, None), walks(1 << 15, 4096, 3, None));
    assert_within("local", local, 2.0 * 104.4, 0.05);
    assert_within("two hops", far, 104.4 + 150.8, 0.05);
    // Adjacent entries: eight per line, most of which are cached.
    let dense = walks(1 << 15, 8, 3, None);
    assert!(dense > 105.0 && dense < 145.0, "{dense}");
    let none = walks(1 << 15, 4096, 3, Some(Mechanism::Translation));
    assert_within("without", none, 104.4, 0.05);
}

#[test]
fn pages_that_the_buffers_hold_need_no_walk() {
    let few = walks(400, 4096, 3, None);
    assert!(few < 30.0, "{few}");
}
