//! Reports at every width, with names of any length and any characters.

use crate::support::{Shape, profile, report, view};
use profile::{Filter, Predicate};
use proptest::prelude::*;
use report::{By, Compared, DetailReport, DiffReport, HugePagesReport, Layout, ProfileDetail, ProfileReport, Subject};
use unicode_width::UnicodeWidthStr;

/// The reports of a profile, at this width and with or without colour.
fn texts(shape: &Shape, layout: Layout) -> Vec<String> {
    let profile = profile(shape);
    let view = view(&profile);
    let overview: ProfileReport = report(&view, &shape.name);
    let facts = || overview.trace.clone();
    let compared = || Compared { view: &view, trace: facts() };
    let ((object, _), (site, _)) = (view.objects()[0], view.sites()[0]);
    let detail = |predicate: Predicate, subject: Option<Subject>| {
        let wanted = ProfileDetail { top: 4, by: By::Stores, rows: 12, filter: vec![shape.name.clone()] };
        let only = profile.view(&Filter(vec![predicate]));
        DetailReport::new(subject.unwrap(), &only, view.tally(), facts(), wanted)
    };
    vec![
        layout.text(&overview),
        layout.text(&DiffReport::new(compared(), compared(), 6, Vec::new())),
        layout.text(&HugePagesReport::new(&view, facts(), 5)),
        layout.text(&detail(Predicate::Object(object), Subject::object(&view, object))),
        layout.text(&detail(Predicate::OfSite(site), Subject::site(&view, site))),
    ]
}

/// The text without colours (SGR).
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').unwrap().1)
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_name_is_cut() {
    let name = "std::collections::hash_map::HashMap<std::string::String,recognise::Matrix<double>>";
    let shape = Shape { nodes: 8, threads: 30, name: name.into(), ..Shape::default() };
    for width in [60, 80, 100, 120] {
        for text in texts(&shape, Layout::new(width, false)) {
            for line in text.lines() {
                assert!(line.width() <= width && line.trim_end() == line, "{width}: {line}");
            }
            assert!(!text.contains('…'), "{width}: {text}");
            let joined: String = text.split_whitespace().collect();
            assert!(joined.contains(name) || !joined.contains("HashMap"), "{width}: {text}");
        }
    }
    // The overview names functions at every width.
    let joined: String = texts(&shape, Layout::new(60, false))[0].split_whitespace().collect();
    assert!(joined.contains(&format!("{name}_transpose")), "{joined}");
}

#[test]
fn the_column_of_the_order_is_marked_and_shown_at_any_width() {
    let profile = profile(&Shape::default());
    let view = view(&profile);
    let overview = report(&view, "work");
    for (by, column) in
        [(By::Cost, "cost▼"), (By::Stores, "writes▼"), (By::Samples, "samples▼"), (By::Latency, "latency▼")]
    {
        let overview = ProfileReport { by, ..overview.clone() };
        for width in [60, 120] {
            let text = Layout::new(width, false).text(&overview);
            assert!(text.matches(column).count() >= 3, "{column} at {width}: {text}");
        }
    }
    // The tables of 8 threads are one row.
    let text = Layout::new(100, false).text(&overview);
    let ranking = text.split("\nobjects by").nth(1).unwrap();
    assert!(ranking.contains("8 objects") && ranking.matches("work_table_new+0x59").count() == 1, "{text}");
}

#[test]
fn colours_change_nothing_else() {
    for (plain, coloured) in
        texts(&Shape::default(), Layout::new(80, false)).iter().zip(texts(&Shape::default(), Layout::new(80, true)))
    {
        assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}["), "{coloured}");
        assert_eq!(*plain, without_colours(&coloured));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Escape sequences, wide and right-to-left characters, and names of 10,000 bytes change no line's width or colour.
    #[test]
    fn names_never_change_the_terminal(
        name in prop_oneof![
            ".{0,60}",
            "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{200e}\u{202a}-\u{202e}\u{2066}-\u{2069}א-ת数据库a-z;\\[m]{0,60}",
            Just("\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m".to_owned()),
            Just("x".repeat(10_000)),
            Just("数".repeat(3_333)),
            Just("a b ".repeat(2_500)),
        ],
        width in 20..=160_usize,
    ) {
        let shape = Shape { threads: 3, samples: 300, name, ..Shape::default() };
        for text in texts(&shape, Layout::new(width, false)) {
            for line in text.lines() {
                // Numbers that are wider than a very narrow terminal stay whole.
                prop_assert!(line.width() <= width.max(60), "{width}: {line}");
            }
            let odd = |one: char| one.is_control() && one != '\n' || ('\u{202a}'..='\u{202e}').contains(&one);
            prop_assert!(!text.contains(odd), "{text:?}");
            prop_assert!(text.len() < 200_000);
        }
    }
}
