use super::*;
use proptest::prelude::*;

const US: u64 = 1_000_000;
const DISK: Disk = Disk { latency_ps: 50 * US, ps_per_byte: 2000.0 };

/// QEMU's main loop waits, and has seen all work.
fn waits(times: &mut Times, timer_ps: Option<u64>) -> Idle {
    times.main_loop_waits(timer_ps, times.calls())
}

/// Simulated time with some running CPUs, while QEMU's main loop waits for a timer.
fn started(cpus: usize, timer_ps: Option<u64>) -> Times {
    let mut times = Times::new(cpus, DISK, false);
    times.start();
    assert_eq!(waits(&mut times, timer_ps), Idle::Wait);
    times
}

/// Moves the clock. Returns its time, and the waiters that may continue.
fn advanced(times: &mut Times) -> (u64, Vec<Wakes>) {
    let mut wakes = Vec::new();
    times.advance(|who| wakes.push(who));
    (times.now_ps(), wakes)
}

#[test]
fn the_clock_shows_the_slowest_that_runs() {
    let mut times = started(3, None);
    for (cpu, us) in [9, 7, 30].into_iter().enumerate() {
        times.report(cpu, us * US);
    }
    assert_eq!(advanced(&mut times).0, 7 * US);
    times.halt(1, 7 * US);
    assert_eq!(advanced(&mut times).0, 9 * US);
    assert!(times.wake(1, 5 * US, None), "it was halted");
    assert_eq!(times.time_of(1), 9 * US, "no CPU sleeps in the past");
    assert!(!times.wake(1, 20 * US, None), "already running");
}

#[test]
fn a_woken_cpu_runs_from_the_wakers_time_on_whenever_the_host_has_time_for_it() {
    let mut times = started(2, Some(1000 * US));
    times.halt(1, 0);
    times.report(0, 40 * US);
    assert_eq!(advanced(&mut times).0, 40 * US);
    assert!(times.wake(1, 45 * US, None));
    times.halt(0, 50 * US);
    // Its thread has not run yet, but the clock waits for it.
    assert_eq!(advanced(&mut times), (45 * US, vec![]));
}

#[test]
fn each_waits_for_the_slowest_as_near_as_it_must() {
    let mut times = started(2, None);
    times.report(0, 30 * US);
    assert!(times.may_go_on(0, Lead::WORKING, false));
    assert!(!times.may_go_on(0, Lead::spinning(u64::MAX), false));
    assert!(!times.may_go_on(0, Lead::READING_CLOCK, false));
    times.report(0, 70 * US);
    assert!(!times.may_go_on(0, Lead::WORKING, false));
    times.report(1, 59 * US);
    assert_eq!(advanced(&mut times), (59 * US, vec![]), "not near enough");
    times.report(1, 60 * US);
    assert_eq!(advanced(&mut times), (60 * US, vec![Wakes::Cpu(0)]));
    assert!(times.may_go_on(0, Lead::WORKING, true) && !times.may_go_on(0, Lead::spinning(0), true));
    assert!(times.may_go_on(1, Lead::READING_CLOCK, false), "the slowest never waits");
}

#[test]
fn who_waits_for_a_short_time_needs_no_wake_up() {
    let mut times = started(2, None);
    times.report(0, 30 * US);
    times.report(1, 28 * US);
    assert_eq!(advanced(&mut times).0, 28 * US);
    assert!(!times.may_go_on(0, Lead::READING_CLOCK, false));
    assert_eq!(times.soon(0), None, "2 us are long");
    times.report(1, 29 * US);
    assert_eq!(advanced(&mut times), (29 * US, vec![]));
    assert_eq!((times.soon(0), times.soon(0)), (Some(30 * US), None), "it asks again before it sleeps");
    times.report(1, 31 * US);
    assert_eq!(advanced(&mut times), (30 * US, vec![]), "it is awake");
    assert!(times.may_go_on(0, Lead::READING_CLOCK, true));
}

#[test]
fn who_spins_is_ahead_by_a_part_of_its_wait() {
    let is_ahead = |spun_us: u64, by_ps: u64| {
        let mut times = started(2, None);
        times.report(0, by_ps);
        times.may_go_on(0, Lead::spinning(spun_us * US), false)
    };
    for (spun_us, most_ps) in [(0, 100_000), (1, 100_000), (8, 500_000), (16, 1_000_000), (1000, 1_000_000)] {
        assert!(is_ahead(spun_us, most_ps) && !is_ahead(spun_us, most_ps + 1), "{spun_us} us");
    }
}

#[test]
fn while_no_cpu_runs_the_next_timer_is_due_at_once() {
    let mut times = started(1, Some(10_000_000 * US));
    times.halt(0, 3 * US);
    assert_eq!(advanced(&mut times), (10_000_000 * US, vec![Wakes::MainLoop]));
    assert_eq!(advanced(&mut times), (10_000_000 * US, vec![]), "the main loop is at work");
    assert!(times.wake(0, 0, None));
    assert_eq!(times.time_of(0), 10_000_000 * US);
    assert_eq!(waits(&mut times, Some(9 * US)), Idle::Over);
}

#[test]
fn work_that_comes_while_the_main_loop_is_about_to_wait_is_seen() {
    let mut times = started(1, Some(1000 * US));
    times.halt(0, 3 * US);
    times.main_loop_works();
    let calls = times.calls();
    assert!(!times.call_main_loop(4 * US), "not waiting yet");
    assert_eq!(times.main_loop_waits(Some(1000 * US), calls), Idle::Called);
    assert_eq!(advanced(&mut times), (0, vec![]), "it must check for the work first");
    assert_eq!(waits(&mut times, Some(154 * US)), Idle::Wait);
    assert_eq!(advanced(&mut times).0, 154 * US);
}

#[test]
fn no_cpu_takes_the_clock_past_a_timer() {
    let mut times = started(2, Some(20 * US));
    times.report(0, 45 * US);
    times.report(1, 30 * US);
    assert_eq!(advanced(&mut times), (20 * US, vec![Wakes::MainLoop]));
    assert_eq!(waits(&mut times, Some(100 * US)), Idle::Wait);
    assert_eq!(advanced(&mut times).0, 30 * US);
}

#[test]
fn the_hosts_work_takes_no_time_and_a_transfer_the_disks() {
    let mut times = started(1, Some(1000 * US));
    times.add_worker();
    times.worker_rests();
    // The CPU asks for a file, and halts; the request goes from the main loop to a worker.
    assert!(times.call_main_loop(12 * US));
    times.halt(0, 13 * US);
    assert_eq!(advanced(&mut times), (0, vec![]));
    times.call_worker();
    assert_eq!(waits(&mut times, Some(1000 * US)), Idle::Wait);
    assert_eq!(advanced(&mut times), (0, vec![]), "a request is not taken yet");
    assert!(times.worker_works() && !times.worker_works(), "there is one request");
    assert_eq!(advanced(&mut times), (0, vec![]), "the worker reads the host's file");
    times.transfer(7, 4096);
    assert!(times.is_transferring(7));
    let done_ps = (12 + 50) * US + 4096 * 2000;
    assert_eq!(advanced(&mut times), (done_ps, vec![Wakes::Workers]));
    assert!(!times.is_transferring(7));
    assert_eq!(advanced(&mut times), (done_ps, vec![]), "the worker has not reported yet");
    assert!(times.call_main_loop(0));
    times.worker_rests();
    assert_eq!(advanced(&mut times), (done_ps, vec![]), "the main loop has not woken the CPU yet");
    assert!(times.wake(0, 0, None));
    assert_eq!(times.time_of(0), done_ps);
}

#[test]
fn bytes_go_over_the_disk_in_turn() {
    let mut times = started(1, None);
    times.halt(0, 0);
    (0..3).for_each(|_| times.add_worker());
    (0..3).for_each(|worker| times.transfer(worker, 500_000));
    for moved in 1..=3 {
        assert_eq!(advanced(&mut times).0, 50 * US + moved * 1000 * US);
        assert_eq!(advanced(&mut times).1, [], "its worker has not rested yet");
        times.worker_rests();
    }
}

#[test]
fn time_stands_while_input_is_on_its_way_or_output_waits() {
    let mut times = started(1, Some(500 * US));
    times.set_input(true);
    times.halt(0, 3 * US);
    assert_eq!(advanced(&mut times), (0, vec![]));
    times.set_input(false);
    times.set_output(true);
    assert_eq!(advanced(&mut times), (0, vec![]), "its output has not been read yet");
    times.set_output(false);
    assert_eq!(advanced(&mut times).0, 500 * US);
}

#[test]
fn none_is_held_while_a_thread_waits_for_cpus_to_stop() {
    let mut times = started(2, None);
    times.report(0, 70 * US);
    assert!(!times.may_go_on(0, Lead::WORKING, false));
    times.wait_inside(true);
    assert!(times.may_go_on(0, Lead::WORKING, false));
    times.wait_inside(false);
    assert!(!times.may_go_on(0, Lead::WORKING, false));
    times.stop(80 * US);
    assert!(times.may_go_on(0, Lead::WORKING, false), "simulated time has ended");
    assert_eq!(times.now_ps(), 80 * US);
}

#[test]
fn with_a_person_idle_time_passes_as_on_the_host() {
    let mut times = Times::new(1, DISK, true);
    times.start();
    assert_eq!(waits(&mut times, Some(500 * US)), Idle::Wait);
    times.halt(0, 3 * US);
    assert_eq!(advanced(&mut times), (0, vec![Wakes::MainLoop]), "the main loop must read the host's clock");
    assert_eq!(waits(&mut times, Some(500 * US)), Idle::WithHost(500_000));
    times.pass(200_000);
    assert_eq!(waits(&mut times, Some(500 * US)), Idle::WithHost(300_000));
    times.pass(300_000);
    assert_eq!(waits(&mut times, Some(500 * US)), Idle::Over);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Report(usize, u64),
    Halt(usize),
    Wake(usize, u64),
    Timer(u64),
    Work,
    Transfer(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..4_usize, 0..100 * US).prop_map(|(cpu, ps)| Step::Report(cpu, ps)),
        (0..4_usize).prop_map(Step::Halt),
        (0..4_usize, 0..1000 * US).prop_map(|(cpu, ps)| Step::Wake(cpu, ps)),
        (1..1000 * US).prop_map(Step::Timer),
        Just(Step::Work),
        (0..4_u32).prop_map(Step::Transfer),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// In any sequence of events the clock never goes back, never passes a running CPU, a timer or a transfer, and
    /// stands still while there is work.
    #[test]
    fn the_clock_passes_nothing(steps in steps()) {
        let mut times = started(4, None);
        let (mut timer, mut busy) = (None, false);
        for step in steps {
            let before_ps = times.now_ps();
            match step {
                Step::Report(cpu, ps) if times.is_active(cpu) => times.report(cpu, times.time_of(cpu) + ps),
                Step::Halt(cpu) if times.is_active(cpu) => times.halt(cpu, times.time_of(cpu)),
                Step::Wake(cpu, ps) => _ = times.wake(cpu, ps, None),
                Step::Timer(ps) => {
                    timer = Some(before_ps + ps);
                    busy = waits(&mut times, timer) == Idle::Over;
                }
                Step::Work => { times.call_main_loop(0); busy = true; }
                Step::Transfer(worker) if !times.is_transferring(worker) => times.transfer(worker, 1000),
                _ => {}
            }
            let (now_ps, wakes) = advanced(&mut times);
            prop_assert!(now_ps >= before_ps);
            prop_assert!(!busy || now_ps == before_ps);
            prop_assert!(timer.is_none_or(|timer| busy || now_ps <= timer));
            let late = |cpu: &usize| times.is_active(*cpu) && times.time_of(*cpu) < now_ps;
            prop_assert!(!(0..4).any(|cpu| late(&cpu)) || now_ps == before_ps);
            if wakes.contains(&Wakes::MainLoop) {
                busy = true;
                prop_assert_eq!(times.main_loop, MainLoop::Busy);
            }
        }
    }
}
