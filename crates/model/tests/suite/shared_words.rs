//! Words that several cores write: their line goes from core to core, one after another.

use crate::support::{NODE_BYTES, assert_within, machine, model};
use model::{AccessKind, Level, Mechanisms, MemoryRange, Model, Request};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};

/// What counts begins after a warm-up.
const BEGIN_PS: u64 = 1_000_000_000;
const END_PS: u64 = 3_000_000_000;

/// Cores of a node that each add to the same word with this pause between two additions, ps, for 2 ms after one of
/// warm-up. The lab runs each, the slowest first, until it is `lead_ps` ahead. Returns the mean time between two
/// additions of all, ns.
fn additions(cores: usize, pause_ps: u64, lead_ps: u64) -> f64 {
    let model = model("opteron-6164x2");
    let mut times = vec![0; cores];
    let mut count = 0;
    loop {
        let (cpu, &slowest_ps) = times.iter().enumerate().min_by_key(|(_, time)| **time).unwrap();
        if slowest_ps >= END_PS {
            return (END_PS - BEGIN_PS) as f64 / f64::from(count) / 1000.0;
        }
        model.advance(slowest_ps);
        while times[cpu] <= slowest_ps + lead_ps {
            for kind in [AccessKind::Load, AccessKind::Store] {
                times[cpu] += model.access(cpu, times[cpu], Request::to(64, kind), || None).stall_ps;
            }
            times[cpu] += pause_ps;
            count += u32::from(times[cpu] >= BEGIN_PS);
        }
    }
}

/// However far the lab lets CPUs run ahead of each other, the line is with one of them at a time.
#[test]
fn additions_to_one_word_take_turns() {
    let transfer = machine("opteron-6164x2").coherence.and_then(|coherence| coherence.sibling_ns).unwrap();
    for pause in [1, 100, 1000] {
        for lead in [100_000, 1_000_000, 25_000_000] {
            assert_within("alone", additions(1, pause * 1000, lead), pause as f64, 0.02);
            for cores in [2, 6] {
                let expected = transfer.max((pause as f64 + transfer) / cores as f64);
                let measured = additions(cores, pause * 1000, lead) / expected;
                // A core adds twice before it gives the line up, or waits for a transfer with the load and with the store.
                assert!((0.7..1.4).contains(&measured), "{cores} cores, pause {pause} ns, lead {lead} ps: {measured}");
            }
        }
    }
}

/// The same with a thread of the host for each CPU, as in the lab.
fn additions_in_parallel(cores: usize, pause_ps: u64) -> f64 {
    const LEAD_PS: u64 = 25_000_000;
    const REPORT_PS: u64 = 1_000_000;
    let model = model("opteron-6164x2");
    let times: Vec<AtomicU64> = (0..cores).map(|_| AtomicU64::new(0)).collect();
    let slowest = || times.iter().map(|time| time.load(Relaxed)).min().unwrap_or(0);
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for cpu in 0..cores {
            let (model, times, slowest, count) = (&model, &times, &slowest, &count);
            scope.spawn(move || {
                let mut time = 0;
                while time < END_PS {
                    for kind in [AccessKind::Load, AccessKind::Store] {
                        time += model.access(cpu, time, Request::to(64, kind), || None).stall_ps;
                    }
                    time += pause_ps;
                    count.fetch_add(u64::from(time >= BEGIN_PS), Relaxed);
                    if time >= times[cpu].load(Relaxed) + REPORT_PS {
                        times[cpu].store(time, Release);
                        model.advance(slowest());
                        while slowest() + LEAD_PS < time {
                            std::thread::yield_now();
                        }
                    }
                }
                times[cpu].store(u64::MAX - LEAD_PS, Release);
            });
        }
    });
    (END_PS - BEGIN_PS) as f64 / count.load(Relaxed) as f64 / 1000.0
}

/// Threads of the host race for the line's record: none may take a turn that another one has taken.
#[test]
fn threads_of_the_host_do_not_change_that() {
    let transfer = machine("opteron-6164x2").coherence.and_then(|coherence| coherence.sibling_ns).unwrap();
    for cores in [2, 4] {
        let measured = additions_in_parallel(cores, 3000) / transfer;
        assert!((0.9..2.1).contains(&measured), "{cores} cores: {measured}");
    }
}

/// A measurement begins at time 0: no core waits for a line that was on its way before.
#[test]
fn lines_that_were_under_way_are_not_waited_for_when_time_begins_anew() {
    let model = model("opteron-6164x2");
    let access = |cpu, time_ps, kind| model.access(cpu, time_ps, Request::to(64, kind), || None).stall_ps;
    for turn in 0..100 {
        model.advance(BEGIN_PS + turn * 1000);
        for kind in [AccessKind::Load, AccessKind::Store] {
            access(turn as usize % 2, BEGIN_PS + turn * 1000, kind);
        }
    }
    for time_ps in [0, 1000, 2000] {
        for cpu in 0..2 {
            assert!(access(cpu, time_ps, AccessKind::Load) <= 500_000, "CPU {cpu} at {time_ps} ps");
        }
    }
}

/// CPUs of a core have a line at the same time, however far apart the lab lets them run.
#[test]
fn a_sibling_that_is_behind_does_not_wait_for_its_cores_line() {
    let model = model("xeon-x5650x2");
    let access = |cpu, time_ps, kind| model.access(cpu, time_ps, Request::to(64, kind), || None).stall_ps;
    let add = |cpu, time_ps| [AccessKind::Load, AccessKind::Store].map(|kind| access(cpu, time_ps, kind));
    for turn in 0..100 {
        // CPUs 0 and 1 are of the first core, CPU 2 of the second.
        add(0, 80_000_000 + turn * 1000);
        add(2, 80_000_000 + turn * 1000);
    }
    add(0, 81_000_000);
    assert!(access(1, 50_000_000, AccessKind::Load) < 1_000_000);
}

/// Without `sibling_ns` a line comes from a neighbour in no time, and is taken from it all the same.
#[test]
fn without_a_time_between_neighbours_they_take_lines_from_each_other() {
    let mut machine = machine("opteron-6164x2");
    machine.coherence.as_mut().unwrap().sibling_ns = None;
    let memory = [MemoryRange { start: 0, end: NODE_BYTES, node: 0 }];
    let model = Model::new(&machine, &memory, &Mechanisms::full()).unwrap();
    let access = |cpu, time_ps, kind| model.access(cpu, time_ps, Request::to(64, kind), || None).level;
    for turn in 0..10 {
        access(turn as usize % 2, turn * 1000, AccessKind::Store);
    }
    assert_ne!(access(0, 11_000, AccessKind::Load), Level::L1, "CPU 1 wrote last");
}
