//! The page of a profile, as a browser would read it.

use crate::support::html_reader::{read, stays_here};
use crate::support::{Shape, profile, report, view};
use proptest::prelude::*;
use report::profile_to_html;

/// The largest page, bytes.
const LARGEST: usize = 3 << 20;

fn page(shape: &Shape) -> String {
    let profile = profile(shape);
    let view = view(&profile);
    profile_to_html(&view, &report(&view, &shape.name)).unwrap()
}

#[test]
fn a_page_is_well_formed_and_loads_nothing() {
    let usual = Shape::default();
    let shapes = [
        usual.clone(),
        Shape { samples: 0, ..usual.clone() },
        Shape { samples: 1, ..usual.clone() },
        Shape { nodes: 2, threads: 1, samples: 300, ..usual.clone() },
        Shape { timed: false, ..usual.clone() },
        Shape { processes: 12, threads: 3, ..usual.clone() },
    ];
    for shape in shapes {
        let page = page(&shape);
        let read = read(&page);
        stays_here(&read, 1);
        assert!(!page.contains("@import") && !page.contains("http-equiv=\"refresh\""));
        assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
        assert!(!page.contains("NaN") && !page.contains("inf,") && page.len() < LARGEST, "{shape:?}");
    }
}

#[test]
fn a_page_says_what_the_report_says() {
    let shape = Shape::default();
    let profile = profile(&shape);
    let view = view(&profile);
    let report = report(&view, "work");
    let text = read(&profile_to_html(&view, &report).unwrap()).text;
    assert!(text.contains(&report.verdict.text));
    for evidence in report.advice.iter().filter(|row| row.advice.gain.is_some()).flat_map(|row| &row.advice.evidence) {
        assert!(text.contains(&evidence.text), "{}", evidence.text);
    }
    let labels = report.objects.first.iter().map(|row| &row.summary.label);
    let functions = report.functions.first.iter().map(|row| &row.function);
    for name in labels.chain(functions) {
        assert!(text.contains(name.as_str()), "{name}");
    }
    for sentence in ["Accesses of the kernel before the program began.", "samples that found the buffer of work full"] {
        assert!(text.contains(sentence), "{sentence}");
    }
    for heading in ["Access map", "Latency of memory", "Who accesses whose memory", "Timelines of objects"] {
        assert!(text.contains(heading), "{heading}");
    }
    // The array's node, from 0.4 to 0.6 of 200 ms.
    assert!(text.contains("saturated: node 1: 4"), "{text}");
}

/// A time is at the same place in each picture, and each picture names its axis.
#[test]
fn pictures_share_one_time_axis() {
    let page = page(&Shape::default());
    let start = page.find("id=\"map\"").unwrap();
    let pictures =
        || page[start..].split("<svg class=\"picture\"").skip(1).map(|svg| svg.split("</svg>").next().unwrap());
    let place = |svg: &str| {
        let line = svg.lines().find(|line| line.ends_with(">100 ms</text>")).unwrap_or_else(|| panic!("{svg}"));
        line.split("x=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let places: Vec<String> = pictures().map(place).collect();
    assert!(places.len() > 3 && places.iter().all(|other| *other == places[0]), "{places:?}");
    assert!(pictures().all(|svg| svg.contains(">time since the first access</text>")));
}

#[test]
fn what_is_drawn_is_chosen_and_bounded_at_any_size() {
    let shape = Shape { nodes: 64, threads: 300, samples: 60_000, ..Shape::default() };
    let page = page(&shape);
    let read = read(&page);
    stays_here(&read, 1);
    assert!(page.len() < LARGEST / 4, "{} bytes", page.len());
    assert!(read.text.contains("8000 of 5"), "the access map says how many it draws");
    assert!(read.text.contains("2000 of ") && read.text.contains("276 threads with fewer accesses have no lane"));
    assert!(read.text.contains("56 nodes with fewer accesses are left out"));
}

#[test]
fn the_same_profile_is_the_same_page() {
    let shape = Shape { samples: 9000, ..Shape::default() };
    assert_eq!(page(&shape), page(&shape));
}

#[test]
fn a_page_as_it_was_reviewed() {
    let text = read(&page(&Shape { threads: 2, samples: 400, ..Shape::default() })).text;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The text about the machine and the advice are reviewed elsewhere.
    let start = lines.iter().position(|line| *line == "Access map").unwrap();
    let end = lines.iter().rposition(|line| *line == "Trace and machine").unwrap();
    insta::assert_snapshot!(lines[start..end].join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Names of functions, threads, files and hosts are always treated as text.
    #[test]
    fn names_never_break_out_of_text(
        name in prop_oneof![
            ".{0,40}",
            "[<>&\"'/;!\\-\\]\\[(){} a-z=\\\\\u{0}-\u{1f}\u{202e}]{0,60}",
            Just("</script><script>alert(1)</script>".to_owned()),
            Just("\"><img src=x onerror=alert(1)>".to_owned()),
            Just("]]><svg onload=alert(1)>".to_owned()),
            Just("{{ 7 * 7 }}<!-- ${x} </title></style></svg>".to_owned()),
        ]
    ) {
        let shape = |name: &str| Shape { threads: 3, samples: 200, name: name.to_owned(), ..Shape::default() };
        let hostile = read(&page(&shape(&name)));
        stays_here(&hostile, 1);
        // The page of a harmless name has the same elements and attributes.
        prop_assert_eq!(&hostile.elements, &read(&page(&shape("work"))).elements);
        let turns = hostile.text.contains('\u{202e}');
        prop_assert!(!turns);
    }
}
