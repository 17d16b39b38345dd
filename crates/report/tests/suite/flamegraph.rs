//! The flame graph of remote cost.

use crate::support::{Shape, profile, view};
use quick_xml::Reader;
use quick_xml::events::Event;
use report::RemoteCost;

fn cost(shape: &Shape) -> RemoteCost {
    RemoteCost::new(&view(&profile(shape)))
}

/// The elements of an SVG image that is well-formed.
fn elements(svg: &str) -> Vec<String> {
    let mut reader = Reader::from_str(svg);
    let (mut elements, mut depth) = (Vec::new(), 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                depth += 1;
                elements.push(start.name().as_ref().to_owned());
            }
            Event::Empty(empty) => elements.push(empty.name().as_ref().to_owned()),
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    elements
}

#[test]
fn the_cost_is_what_remote_accesses_take_longer() {
    let folded = cost(&Shape::default()).to_folded();
    let cost_of = |function: &str| -> f64 {
        let line = folded.lines().find(|line| line.contains(function)).unwrap();
        assert!(line.starts_with("work_main;work_"), "{line}");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // About 1,570 remote samples of the matrix at 160 ns on average, against 102.9 for local ones on this machine, each
    // standing for 50 accesses.
    let expected = 1570.0 * (160.0 - 102.9) * 50.0;
    assert!((0.9..1.1).contains(&(cost_of("transpose") / expected)), "{folded}");
    assert!(cost_of("scan") > cost_of("transpose"));
    assert!(!folded.contains("table_new"), "tables are local: {folded}");
}

#[test]
fn without_latencies_accesses_are_counted() {
    let folded = cost(&Shape { timed: false, ..Shape::default() }).to_folded();
    let total: u64 = folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!(total.is_multiple_of(50) && (100_000..130_000).contains(&total), "{folded}");
}

#[test]
fn without_chains_of_accesses_the_allocating_code_is_shown() {
    let cost = cost(&Shape { chains: false, ..Shape::default() });
    let folded = cost.to_folded();
    assert!(folded.contains("work_main;work_make_matrix;work_transpose "), "{folded}");
    assert!(folded.contains("work_main;work_scan;work_scan "), "{folded}");
    assert!(cost.to_svg("").unwrap().contains("below the code that allocated the memory"));
}

#[test]
fn a_graph_is_well_formed_and_names_are_text() {
    let usual = elements(&cost(&Shape::default()).to_svg("./work").unwrap());
    assert!(usual.len() > 10);
    let hostile = Shape { name: "</text><script>a;b 1\n\u{0}&\"'".into(), ..Shape::default() };
    let cost = cost(&hostile);
    assert!(cost.to_folded().lines().all(|line| line.split(';').count() == 2), "{}", cost.to_folded());
    assert_eq!(elements(&cost.to_svg(&hostile.name).unwrap()), usual);
}

#[test]
fn nothing_remote_is_a_graph_that_says_so() {
    let nothing = cost(&Shape { samples: 0, ..Shape::default() });
    assert_eq!(nothing.to_folded(), "");
    let svg = nothing.to_svg("").unwrap();
    assert!(svg.contains("no remote access") && svg.contains("prefers-color-scheme: dark"), "{svg}");
}
