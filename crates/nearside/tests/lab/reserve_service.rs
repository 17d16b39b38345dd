//! A program that says how it does, and the rest of the machine that follows.

use crate::support::Lab;
use test_tools::Checks;

const SCRIPT: &str = include_str!("programs/reserve_service.sh");

/// The 99th percentile of a phase, ms.
fn within(text: &str, phase: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(phase)?.strip_prefix(": "));
    let ms = line.and_then(|line| line.rsplit("within ").next()?.strip_suffix(" ms")?.parse().ok());
    ms.unwrap_or_else(|| panic!("no {phase}: {text}"))
}

#[test]
fn a_target_is_held_while_a_batch_comes_and_goes() {
    let lab = Lab::new();
    let options = ["--quiet", "--as-root", "--memory-per-node", "256M"];
    let ran = lab.script("magny-cours-4p-control", &options, SCRIPT).succeeded();
    assert!(!ran.text().contains("never: "), "{}", ran.text());
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    part("without", &|text| {
        assert!(within(text, "alone") < 1.6 && within(text, "batch") > 2.3, "{text}");
    });
    // The target is 2 ms.
    part("with", &|text| {
        assert!(within(text, "alone") < 1.6 && within(text, "gone") < 1.6, "{text}");
        assert!(within(text, "batch") < 2.0 && within(text, "batch again") < 2.0, "{text}");
        // The batch is not stopped: it has a hundredth of its limit at least, and in fact a third and more.
        let limits = text.lines().filter(|line| line.starts_with("1875000000 ")).flat_map(str::split_whitespace);
        let least = limits.map(|limit| limit.parse::<u64>().unwrap()).min();
        assert!(least.is_some_and(|least| (250_000_000..1_875_000_000).contains(&least)), "{text}");
    });
    part("agent", &|text| {
        assert!(text.contains(" 250000000 \n") && text.contains("status 7\n"), "{text}");
        assert!(text.contains("--slo-command has printed `nonsense`, which is no number of ms"), "{text}");
        assert!(text.ends_with("nothing runs on\nstatus 0\nstatus 0\n"), "{text}");
    });
}
