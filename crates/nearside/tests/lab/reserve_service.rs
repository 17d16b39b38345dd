//! A program that says how it does, and the rest of the machine that follows.

use crate::reserve::run_script;
use crate::support::Lab;
use test_tools::Checks;

const SCRIPT: &str = include_str!("programs/reserve_service.sh");

const SAYS: &str = "its holder says 9 ms (";
const TIGHTENED: &str = "target 3 ms: tightening, the rest has 34.3 % of its limit\n";

/// The 99th percentile of a phase, ms.
fn within(text: &str, phase: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(phase)?.strip_prefix(": "));
    let ms = line.and_then(|line| line.rsplit("within ").next()?.strip_suffix(" ms")?.parse().ok());
    ms.unwrap_or_else(|| panic!("no {phase}: {text}"))
}

#[test]
fn a_target_is_held_while_a_batch_comes_and_goes() {
    let ran = run_script(&Lab::with_whole_model(), "magny-cours-4p-control", &["--memory-per-node", "256M"], SCRIPT);
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
        assert!(
            text.lines().any(|line| line.contains(" its holder says ") && line.contains(" target 2 ms: ")),
            "{text}"
        );
    });
    // 0.7 thrice.
    part("agent", &|text| {
        let shown = text.matches(SAYS).count() == 2 && text.matches(TIGHTENED).count() == 2;
        assert!(text.contains(" 250000000 \n") && shown, "{text}");
        assert!(text.contains("  controller 0: the rest may draw 1.4"), "{text}");
        let json = "    \"course\": \"tightening\",\n    \"latency_ms\": 9.0,\n";
        assert!(text.contains(json) && text.contains("    \"target_ms\": 3.0\n"), "{text}");
        let metrics = [
            "service_latency_seconds{grant=\"1\"} 0.009\n",
            "service_target_seconds{grant=\"1\"} 0.003\n",
            "service_course{grant=\"1\",course=\"tightening\"} 1\n",
            "rest_part_ratio{grant=\"1\"} 0.34",
            "rest_limit_bytes_per_second{grant=\"1\",node=\"0\"} 14",
        ];
        for metric in metrics {
            assert!(text.contains(&format!("nearside_grant_{metric}")), "{metric}: {text}");
        }
    });
    // The next agent goes on where the killed one was: at once with its limit, and then with 0.7 of that.
    part("restart", &|text| {
        assert!(text.starts_with("250000000 \n"), "{text}");
        assert!(text.contains(TIGHTENED) && text.contains("tightening, the rest has 24 % of its limit\n"), "{text}");
        assert!(text.contains("status 7\n"), "{text}");
        assert!(text.contains("--slo-command has printed `nonsense`, which is no number of ms"), "{text}");
        assert!(text.ends_with("nothing runs on\nstatus 0\nstatus 0\n"), "{text}");
    });
}
