//! Masks of ways and limits of bandwidth, as the whole model obeys them.

use crate::support::{Order, Rates, Runner, machine, model, rates, run};
use model::{Controls, Model, Request, Share};

const MS: u64 = 1_000_000_000;
const PRESET: &str = "magny-cours-4p-control";

/// Puts CPUs into a class and lets the model obey.
fn obey(model: &Model, cpus: impl IntoIterator<Item = usize>, class: u64, change: impl FnOnce(&mut Controls)) {
    let hardware = model.control().unwrap();
    let mut controls = hardware.at_start();
    cpus.into_iter().for_each(|cpu| controls.classes[cpu] = class);
    change(&mut controls);
    assert_eq!(hardware.unacceptable(&controls), None);
    model.obey(&controls);
}

fn six_readers(model: &Model) -> Rates {
    let mut runners: Vec<_> = (0..6).map(|cpu| Runner::scan(cpu, 0)).collect();
    // Not so long that one reaches what another one has read.
    rates(model, &mut runners, MS, MS)
}

#[test]
fn limits_hold_each_reader_and_leave_the_rest_to_the_others() {
    let (limited, free) = (model(PRESET), model(PRESET));
    obey(&limited, 1..6, 1, |controls| controls.shares[1][0].bytes_per_s = 750_000_000);
    let alone = rates(&free, &mut [Runner::scan(0, 0)], MS, MS).bytes_per_s[0];
    let rates = six_readers(&limited);
    for rate in &rates.bytes_per_s[1..] {
        assert!((rate / 0.75e9 - 1.0).abs() < 0.02, "{rate}");
    }
    assert!(rates.bytes_per_s[0] > 0.95 * alone, "{} of {alone}", rates.bytes_per_s[0]);
    // Of another cache's CPUs the class takes what it likes.
    obey(&limited, 1..6, 1, |controls| controls.shares[1][1].bytes_per_s = 750_000_000);
    assert!(six_readers(&limited).bytes_per_s[1] > 1e9);
}

#[test]
fn what_waits_is_the_cpu_and_not_the_line() {
    let latency = |bytes_per_s| {
        let model = model(PRESET);
        obey(&model, [0], 1, |controls| controls.shares[1][0].bytes_per_s = bytes_per_s);
        rates(&model, &mut [Runner::chase(0, 0)], MS, MS)
    };
    let (free, limited) = (latency(0), latency(125_000_000));
    assert!((limited.latency_ns[0] / free.latency_ns[0] - 1.0).abs() < 0.01, "{limited:?} and {free:?}");
    assert!((limited.bytes_per_s[0] / 125e6 - 1.0).abs() < 0.02, "{limited:?}");
}

/// Hits in caches of loads at random to 2 MiB by CPU 0, with 20 and 8 of the 40 ways of 5 MiB, beside five streams.
#[test]
fn ways_keep_a_working_set_beside_streams() {
    let hits = |own: u64| {
        let model = model(PRESET);
        obey(&model, [0], 1, |controls| {
            controls.shares[1][0].ways = own;
            controls.shares[0][0].ways = model.control().unwrap().ways.unwrap().all & !own;
        });
        let mut streams: Vec<_> = (1..6).map(|cpu| Runner::scan(cpu, 0)).collect();
        let (mut time_ps, mut random, base) = (0, machine::Random(7), 512 << 20);
        for access in 0..400_000 {
            if access % 100 == 0 {
                run(&model, &mut streams, &mut Order::FarAhead, time_ps);
            }
            if access == 300_000 {
                model.begin(time_ps);
            }
            let address = base + random.below(2 << 14) as u64 * 64;
            time_ps += model.access(0, time_ps, Request::to(address, model::AccessKind::Load), || None).stall_ps + 400;
        }
        let cpu = model.counters(time_ps).cpus.swap_remove(0);
        let memory: u64 = cpu.dram_accesses_by_node.iter().sum();
        let hits = cpu.l2_hits + cpu.l3_hits;
        hits as f64 / (hits + memory) as f64
    };
    assert!(hits(0xf_ffff << 20) > 0.999);
    // Of 2 MiB, 1 MiB fits; L2 holds a little beside it.
    let fifth = hits(0xff << 32);
    assert!((0.48..0.58).contains(&fifth), "{fifth}");
}

#[test]
fn counters_are_by_cpu_and_node() {
    let model = model(PRESET);
    let mut runners = [Runner::scan(0, 1), Runner::scan(7, 0)];
    rates(&model, &mut runners, 0, MS);
    let counters = model.counters(MS);
    let lines = |cpu: usize| counters.cpus[cpu].dram_accesses_by_node.iter().position(|&lines| lines > 0);
    assert_eq!((lines(0), lines(7), lines(1)), (Some(1), Some(0), None));
    assert!(counters.cpus.iter().all(|cpu| cpu.write_backs_by_node.len() == 8 && cpu.transfers_by_node.len() == 8));
}

#[test]
fn without_the_hardware_there_are_no_controls() {
    let model = model("magny-cours-4p");
    assert!(model.control().is_none() && machine("magny-cours-4p").control.is_none());
    let everything = Controls { classes: vec![0; 48], shares: vec![vec![Share { ways: 1, bytes_per_s: 1 }; 8]] };
    model.obey(&everything);
    assert_eq!(six_readers(&model).bytes_per_s, six_readers(&self::model("magny-cours-4p")).bytes_per_s);
}
