//! Ways of caches and limits of bandwidth for grants, on a machine with control hardware.

use crate::reserve::run_script;
use crate::support::{Lab, RunOutput};
use test_tools::Checks;

const SCRIPT: &str = include_str!("programs/reserve_control.sh");

/// The number before these words in a section.
fn before(ran: &RunOutput, section: &str, words: &str) -> f64 {
    let text = ran.section(section);
    let at = text.rfind(words).unwrap_or_else(|| panic!("no {words}: {text}"));
    let number = text[..at].trim_end().rsplit([' ', '\n']).next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("{number}: {text}"))
}

/// Nanoseconds of a load, and MB/s of the median and of the worst pass.
fn ns(ran: &RunOutput, section: &str) -> f64 {
    before(ran, section, "ns a load")
}

fn rates(ran: &RunOutput, section: &str) -> (f64, f64) {
    let (median, text) = (before(ran, section, "MB/s beside"), ran.section(section));
    let worst = text.rsplit("(from ").next().and_then(|rest| rest.split(' ').next());
    (median, worst.and_then(|worst| worst.parse().ok()).unwrap_or_else(|| panic!("{text}")))
}

#[test]
fn ways_and_limits_are_obeyed_and_nothing_is_left_of_them() {
    let ran = run_script(&Lab::with_whole_model(), "magny-cours-4p-control", &["--memory-per-node", "256M"], SCRIPT);
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    let (alone, shared) = (ns(&ran, "alone"), ns(&ran, "shared"));
    let ((median, worst), (beside, _)) = (rates(&ran, "alone"), rates(&ran, "shared"));
    // The kernel's own work on the CPU costs a round up to 13 %. Without ways of its own the chase takes six times as long.
    let fits = |ns: f64| ns < 1.25 * alone;
    part("shared", &|text| assert!(shared > 4.0 * alone && beside < 0.5 * median, "{text}"));
    part("20 ways", &|text| {
        assert!(fits(ns(&ran, "20 ways")) && text.contains("20 ways of its cache (0xfffff00000)"), "{text}");
    });
    part("8 ways", &|text| assert!(ns(&ran, "8 ways") > 2.0 * alone, "{text}"));
    part("guarded", &|text| {
        let (guarded, least) = rates(&ran, "guarded");
        assert!(guarded > 0.95 * median && least > 0.92 * worst, "{text}");
        assert!(text.contains("are limited by the hardware: at each moment"), "{text}");
    });
    part("list", &|text| {
        assert!(text.contains(" 0 0xfffff00000 by hardware "), "{text}");
        assert!(text.contains("20 ways of its cache") && text.contains("\"throttle\": \"hardware\""), "{text}");
    });
    part("taken", &|text| {
        assert!(text.contains("status 3\n") && text.contains("plain: 0\n"), "{text}");
        assert_eq!(text.matches("another process's grant has set /lab-control/class-0/limit-0").count(), 2, "{text}");
    });
    // Each word of the killed grant is put back, and the chase and the reader are as before.
    let is_as_before = |name: &'static str, text: &str| {
        assert!((ns(&ran, name) / shared - 1.0).abs() < 0.1 && rates(&ran, name).0 < 0.5 * median, "{text}");
    };
    part("killed", &|text| {
        for word in ["class-0/limit-0", "class-0/ways-0", "class-1/ways-0", "class-2/ways-0", "cpu-0/class"] {
            assert!(text.contains(&format!("/lab-control/{word} has\n")), "{word}: {text}");
        }
        is_as_before("killed", text);
    });
    part("agent", &|text| {
        let load = |line: &str| line.split_once(" ns a load")?.0.rsplit(' ').next()?.parse().ok();
        let loads: Vec<f64> = text.lines().filter_map(load).collect();
        assert!(loads.len() == 3 && loads[..2].iter().all(|&ns| fits(ns)), "{text}");
        assert!(text.contains("\n0xfffff00000\n0xff000\nstatus 0\n"), "{text}");
        is_as_before("agent", text);
    });
    // Only where all words of the rest are as at the start does a process alone get ways.
    part("both", &|text| {
        assert!(text.contains("0xfffff00000\n0xff000\n") && text.ends_with("status 0\n"), "{text}");
    });
}

/// The kernel finds the control hardware by the processor's own instructions, so that its resctrl works, and what is built
/// on that: pqos, grants, and what they draw.
#[test]
fn the_kernels_resctrl_controls_the_lab_s_caches_and_bandwidth() {
    let script = include_str!("programs/reserve_resctrl.sh");
    let ran = run_script(&Lab::with_whole_model(), "magny-cours-4p-control", &["--memory-per-node", "256M"], script);
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    let (alone, shared) = (ns(&ran, "alone"), ns(&ran, "shared"));
    let fits = |ns: f64| ns < 1.25 * alone;
    part("offer", &|text| {
        let masks: Vec<String> = (0..8).map(|cache| format!("{cache}=fffff")).collect();
        assert!(text.contains(&format!("L3:{}\n", masks.join(";"))) && text.contains("MB:0= 2048;"), "{text}");
        assert!(text.ends_with("mon_L3_07\n1\n5120K\n40\n6-11\n"), "{text}");
    });
    part("half each", &|text| {
        assert!(shared > 4.0 * alone && fits(ns(&ran, "half each")), "{alone} {shared} {text}");
    });
    // A limit of 1 GB/s, of five CPUs together.
    part("rates", &|text| {
        let rate = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        assert!(rate("free") > 3000.0 && (900.0..1100.0).contains(&rate("limited")), "{text}");
    });
    part("pqos", &|text| assert_eq!(text, "1-5\n0=   16\n0=003ff\n\n"));
    part("grant", &|text| {
        assert!(fits(ns(&ran, "grant")) && text.contains("10 ways of its cache (0xffc00)"), "{text}");
        assert!(before(&ran, "grant", "MB/s beside") > 5400.0, "{text}");
    });
    part("agent", &|text| {
        assert!(text.contains(" high\nall other CPUs draw ") && text.contains("+5.0 %"), "{text}");
        let group = "/sys/fs/resctrl/nearside-2/mon_groups/nearside-1\n";
        assert!(text.contains(group) && text.contains("status 0\nMB:0= 2048;"), "{text}");
        assert!(text.ends_with(";7=fffff\n"), "{text}");
    });
}
