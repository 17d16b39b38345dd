//! False sharing of cache lines: F32 of the huge-pages study's specification.

use crate::support::Lab;
use serde_json::Value;

/// The report, and the simulated time in seconds, of counters that are that many bytes apart.
fn recorded(lab: &Lab, bytes: &str) -> (Value, f64) {
    let mut record = lab.nearside();
    record.args(["lab", "record", "--machine", "small-4x2", "--quiet", "--period", "100"]);
    record.args(["--output", bytes, "--", "./counters", bytes, "1000000", "0", "2", "4", "6"]);
    let ran = lab.run(record, b"").succeeded();
    let mut report = lab.nearside();
    let reported = lab
        .run(
            {
                report.args(["report", bytes, "--json"]);
                report
            },
            b"",
        )
        .succeeded();
    let report: Value = serde_json::from_str(reported.text()).unwrap();
    (report, ran.text().trim().parse().unwrap())
}

/// Counters of four threads in one line: padding is advised, and is what helps.
#[test]
fn threads_that_count_in_one_line_are_advised_to_pad() {
    let lab = Lab::new();
    lab.compile("counters.c");
    let (close, close_s) = recorded(&lab, "8");
    assert_eq!(close["advice"][0]["action"], "pad", "{close:#}");
    let (apart, apart_s) = recorded(&lab, "64");
    assert_ne!(apart["advice"][0]["action"], "pad", "{apart:#}");
    assert!(apart_s < 0.7 * close_s, "{apart_s} s padded, {close_s} s not");
    lab.assert_nothing_left();
}
