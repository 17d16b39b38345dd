use super::*;

fn memory() -> Vec<AtomicU64> {
    (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn only_a_pmu_is_opened() -> Result<(), NoPmu> {
    let memory = memory();
    assert!(Pmu::open(&memory).is_err());
    assert!(Pmu::create(&memory[1..]).is_err());
    Pmu::create(&memory)?;
    Pmu::open(&memory)?;
    memory[word::VERSION].store(9, Relaxed);
    assert!(Pmu::open(&memory).is_err());
    Ok(())
}

#[test]
fn questions_for_input_are_answered_by_their_number() -> Result<(), NoPmu> {
    let memory = memory();
    let pmu = Pmu::create(&memory)?;
    assert!(!pmu.waits_for_input());
    pmu.ask_for_input();
    assert!(pmu.waits_for_input());
    pmu.answer_input(1);
    assert!(!pmu.waits_for_input());
    // The answer may overtake the request, and come twice.
    pmu.answer_input(2);
    pmu.answer_input(1);
    pmu.ask_for_input();
    assert!(!pmu.waits_for_input());
    Ok(())
}

#[test]
fn a_full_ring_counts_what_it_drops() -> Result<(), NoPmu> {
    let memory = memory();
    let pmu = Pmu::create(&memory)?;
    let sample = |n: u64| Sample {
        time_ps: n,
        ticks: n + 1,
        clock_ns: n + 2,
        period: n + 3,
        latency_ps: n + 4,
        stall_ps: n + 5,
        cpu: 3,
        tid: 7,
        name: *b"a thread's name!",
        ..Sample::default()
    };
    for n in 0..SLOTS + 5 {
        pmu.push(&sample(n));
    }
    assert_eq!(pmu.dropped(), 5);
    for n in 0..SLOTS {
        assert_eq!(pmu.pop(), Some(sample(n)));
    }
    assert_eq!(pmu.pop(), None);
    pmu.push(&sample(1));
    assert_eq!(pmu.pop(), Some(sample(1)));
    Ok(())
}

#[test]
fn the_last_pause_holds() -> Result<(), NoPmu> {
    let memory = memory();
    let pmu = Pmu::create(&memory)?;
    for (ticks, clock_ns) in [(7, 70), (9, 90), (8, 80)] {
        pmu.note_pause(ticks, clock_ns);
    }
    assert_eq!((pmu.pause_ticks(), pmu.pause_clock_ns()), (9, 90));
    Ok(())
}

#[test]
fn counters_are_read_as_they_were_written() -> Result<(), NoPmu> {
    let memory = memory();
    let pmu = Pmu::create(&memory)?;
    for text in ["", "{}", "{\"a\": 123}", "12345678"] {
        let round = pmu.counters_round();
        pmu.set_counters_json(text.as_bytes(), 77)?;
        assert_eq!(pmu.counters_json(), Some(Published { json: text.as_bytes().to_vec(), clock_ns: 77 }));
        assert_eq!(pmu.counters_round(), round + 1);
    }
    assert!(pmu.set_counters_json(&vec![0; COUNTERS_MAX + 1], 0).is_err());
    memory[word::COUNTERS_BYTES].store(u64::MAX, Relaxed);
    assert_eq!(pmu.counters_json().map(|published| published.json.len()), Some(COUNTERS_MAX));
    memory[word::COUNTERS_CHANGES].fetch_add(1, Relaxed);
    assert_eq!(pmu.counters_json(), None, "they are being changed");
    std::thread::scope(|scope| {
        let last = scope.spawn(|| pmu.last_counters_json());
        std::thread::sleep(std::time::Duration::from_millis(20));
        memory[word::COUNTERS_CHANGES].fetch_add(1, Relaxed);
        let published = last.join().map(|read| read.map(|published| published.json.len()).ok());
        assert!(matches!(published, Ok(Some(COUNTERS_MAX))));
    });
    Ok(())
}
