//! Controllers and links under load: the throughput of a full one, how it settles, and its independence of the host.
//! Without the unrelated parts of the model.

use crate::support::{Order, Pattern, Runner, machine, model_with, rates, run};
#[allow(dead_code, reason = "shared with other tests and the benchmark, which use other parts")]
use machine::{CpuId, Link, Random};
use model::{AccessKind, Mechanisms, Model, Request, WINDOW_PS};
use proptest::prelude::*;

const MS: u64 = 1_000_000_000;

fn within(measured: f64, expected: f64, tolerance: f64) -> bool {
    (measured / expected - 1.0).abs() <= tolerance
}

/// Machine B with one node of this many cores.
fn one_node(cores: u32) -> Model {
    let mut machine = machine("opteron-6164x2");
    machine.nodes.truncate(1);
    machine.packages.truncate(1);
    machine.links.clear();
    machine.nodes[0].cpus = (0..cores).map(CpuId).collect();
    machine.packages[0].cpus = (0..cores).map(CpuId).collect();
    let memory = model::MemoryRange { start: 0, end: crate::support::NODE_BYTES, node: 0 };
    Model::new(&machine, &[memory], &Mechanisms::fast()).unwrap_or_else(|error| panic!("{error}"))
}

/// The bandwidth of each window after a step from nothing to all cores, over the controller's.
fn step_response(runners: &mut [Runner], model: &Model, windows: u64) -> Vec<f64> {
    let mut order = Order::FarAhead;
    let mut before = 0;
    (1..=windows)
        .map(|window| {
            run(model, runners, &mut order, window * WINDOW_PS);
            let lines = runners.iter().map(|runner| runner.lines).sum::<u64>();
            let bandwidth = (lines - before) as f64 * 64e12 / WINDOW_PS as f64;
            before = lines;
            bandwidth / 5.85e9
        })
        .collect()
}

#[test]
fn a_step_of_load_settles_at_the_controllers_bandwidth() {
    for cores in [1, 6, 24, 48] {
        for streaming in [true, false] {
            let model = one_node(cores);
            let runner = |cpu| if streaming { Runner::scan(cpu, 0) } else { Runner::chase(cpu, 0) };
            let mut runners: Vec<_> = (0..cores as usize).map(runner).collect();
            let response = step_response(&mut runners, &model, 800);
            let settled = &response[600..];
            let mean_of = |windows: &[f64]| windows.iter().sum::<f64>() / windows.len() as f64;
            let mean = mean_of(settled);
            // The cores' demand while nothing is busy, over the controller's bandwidth.
            let demand = f64::from(cores) * if streaming { 6.2 / 5.85 } else { 64.0 / 103.3 / 5.85 };
            assert!(within(mean, demand.min(1.0), 0.02), "{cores} cores: settled at {mean:.3} of {demand:.3}");
            // The traffic before the delays took effect is paid back.
            let mean = mean_of(&response);
            assert!(within(mean, demand.min(1.0), 0.03), "{cores} cores: {mean:.3} of {demand:.3} from the start");
            // A window holds about 900 lines, and a core's share of them may fall on either side of its edge.
            let swing = settled.iter().map(|window| (window / mean - 1.0).abs()).fold(0.0, f64::max);
            assert!(swing < 0.15, "{cores} cores: windows are up to {:.0} % off", swing * 100.0);
        }
    }
}

#[test]
fn a_full_controller_is_shared_evenly() {
    let model = one_node(24);
    let mut runners: Vec<_> = (0..24).map(|cpu| Runner::scan(cpu, 0)).collect();
    let rates = rates(&model, &mut runners, 6 * MS, 2 * MS);
    let mean = rates.total() / 24.0;
    assert!(rates.bytes_per_s.iter().all(|&rate| within(rate, mean, 0.03)), "{rates:?}");
}

#[test]
fn delays_go_when_the_load_goes() {
    let model = one_node(24);
    let mut runners: Vec<_> = (0..24).map(|cpu| Runner::chase(cpu, 0)).collect();
    run(&model, &mut runners, &mut Order::FarAhead, MS);
    let mut last = runners.swap_remove(0);
    let crowded = rates(&model, std::slice::from_mut(&mut last), 0, WINDOW_PS).latency_ns[0];
    let alone = rates(&model, std::slice::from_mut(&mut last), MS / 2, MS / 2).latency_ns[0];
    assert!(crowded > 200.0 && within(alone, 102.9412, 0.001), "{crowded} then {alone}");
}

#[test]
fn a_long_pause_is_closed_at_once_and_leaves_no_delay() {
    let model = one_node(24);
    let mut runners: Vec<_> = (0..24).map(|cpu| Runner::chase(cpu, 0)).collect();
    run(&model, &mut runners, &mut Order::FarAhead, MS);
    // A hundred days, 8 * 10^11 windows: this ends only if they are not processed one by one.
    let later = 100 * 24 * 3600 * 1000 * MS;
    model.advance(later);
    let access = model.access(0, later, Request::to(12_345_600, AccessKind::Load), || None);
    assert_eq!(access.latency_ps, 102_941);
    model.begin(0);
    assert_eq!(model.access(0, 0, Request::to(32_345_600, AccessKind::Load), || None).latency_ps, 102_941);
}

#[test]
fn resources_in_series_do_not_swing() {
    // Every link and every controller has the same bandwidth, so that all on a route are full at once.
    let mut machine = machine("opteron-8380x4");
    for Link { bandwidth_bytes_per_s, .. } in &mut machine.links {
        *bandwidth_bytes_per_s = 2.85e9;
    }
    for node in &mut machine.nodes {
        node.bandwidth_bytes_per_s = Some(2.85e9);
    }
    let memory: Vec<_> = (0..4)
        .map(|node| model::MemoryRange { start: node << 30, end: (node + 1) << 30, node: node as usize })
        .collect();
    let model = Model::new(&machine, &memory, &Mechanisms::fast()).unwrap_or_else(|error| panic!("{error}"));
    // CPUs of node 3 read node 0, two hops away.
    let mut runners: Vec<_> = (12..16).map(|cpu| Runner::scan(cpu, 0)).collect();
    let mut order = Order::FarAhead;
    let mut before = 0;
    for window in 1..800 {
        run(&model, &mut runners, &mut order, window * WINDOW_PS);
        let lines = runners.iter().map(|runner| runner.lines).sum::<u64>();
        let bandwidth = (lines - before) as f64 * 64e12 / WINDOW_PS as f64;
        assert!(window < 600 || within(bandwidth, 2.85e9, 0.05), "window {window}: {bandwidth:e}");
        before = lines;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// One CPU on each node, so that no cache is shared: the contents of a cache shared by two may depend on the order
    /// of accesses.
    #[test]
    fn the_order_in_which_the_host_runs_cpus_changes_nothing(seed in any::<u64>(), kinds in prop::array::uniform4(0..3)) {
        let results = [Order::Slowest, Order::FarAhead, Order::Any(Random(seed))].map(|mut order| {
            let model = model_with("opteron-6164x2", &Mechanisms::fast());
            let mut runners: Vec<_> = kinds.iter().enumerate().map(|(node, kind)| {
                let (cpu, random) = (node * 6, Random(seed ^ node as u64));
                Runner::new(cpu, match kind {
                    0 => Pattern::Chase { node: 0, random },
                    1 => Pattern::Scan { node: 0, line: cpu as u64 * 262_144, kind: AccessKind::Load },
                    _ => Pattern::Scatter { node: 0, random },
                })
            }).collect();
            run(&model, &mut runners, &mut order, 2 * MS);
            let end = runners.iter().map(|runner| runner.time_ps).max().unwrap_or(0);
            model.advance(end + 100 * WINDOW_PS);
            let times: Vec<_> = runners.iter().map(|runner| (runner.time_ps, runner.lines, runner.latency_ps)).collect();
            (times, model.counters(end))
        });
        prop_assert_eq!(&results[0], &results[1]);
        prop_assert_eq!(&results[0], &results[2]);
    }
}

/// Lines written back are a flow of lines in flight, too. Six cores read their own memory, and evict lines of a memory
/// whose link carries a third of that: they wait for room, and the link's queue is as long as the room for lines that
/// they have, not as the traffic that they could make.
#[test]
fn queues_of_lines_written_back_are_as_long_as_what_cores_hold() {
    let model = model_with("opteron-6164x2", &Mechanisms::full());
    let writer =
        |cpu: usize| Runner::new(cpu, Pattern::WriteFar { far: 3, near: 0, begin: cpu as u64 * 50_000, step: 0 });
    let mut runners: Vec<_> = (0..6).map(writer).collect();
    runners.push(Runner::chase(18, 0));
    run(&model, &mut runners, &mut Order::FarAhead, 20 * MS);
    model.begin(0);
    for runner in &mut runners {
        (runner.time_ps, runner.lines, runner.latency_ps) = (0, 0, 0);
    }
    run(&model, &mut runners, &mut Order::FarAhead, 50 * MS);
    let counters = model.counters(50 * MS);
    let slow = |link: &&model::LinkCounters| (link.from.0, link.to.0) == (3, 0);
    let load = counters.links.iter().find(slow).map(|link| link.load).unwrap();
    // A line takes 30 ns there, and 96 of them may be on their way; half as many again while bursts are paid back.
    assert!(load.utilisation > 0.5 && load.queue_delay_mean_ns < 4500.0, "{load:?}");
    let chase = &runners[6];
    let latency_ns = chase.latency_ps as f64 / chase.lines as f64 / 1000.0;
    assert!(latency_ns < 5000.0, "{latency_ns} beside {load:?}");
}
