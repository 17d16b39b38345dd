//! A campaign, as text, as tables and as a page.

use crate::support::html_reader::{read, stays_here};
use explore::{Campaign, Cell, Measured, Results, Unit, UnitOutcome};
use report::{CampaignReport, RunTable, campaign_to_html};
use std::path::Path;

const CAMPAIGN: &str = r#"
title = "two programs, <b>pinned</b>"
about = "Why, and how."
seconds = "/seconds"
runs = { min = 3, max = 3 }
[metrics]
A = "/a"
[grid]
app = { cg = "cg", ep = "ep" }
pinning = ["sockorder", "sequential"]
balancing = ["on", "off"]
[[exclude]]
app = "ep"
balancing = "on"
[baseline]
pinning = "sockorder"
[[effect]]
name = "P4"
of = { pinning = "sequential" }
against = { pinning = "sockorder" }
expect = "increase"
at_least = "10 %"
[[effect]]
name = "P1"
of = { app = "cg", balancing = "on" }
against = { balancing = "off" }
expect = "increase"
[[correlation]]
name = "P6"
metric = "A"
over = { app = "cg" }
expect = "at most"
value = -0.95
"#;

fn campaign() -> Campaign {
    Campaign::from_toml(CAMPAIGN, Path::new("campaign.toml"), "1").unwrap()
}

fn unit(cell: &Cell, round: u32, outcome: UnitOutcome) -> Unit {
    Unit {
        cell: cell.name.clone(),
        id: cell.id.clone(),
        round,
        labels: [].into(),
        command: cell.command.clone(),
        places: None,
        campaign: String::new(),
        nearside: String::new(),
        model: None,
        host: None,
        kernel: String::new(),
        began_s: 0.0,
        load: None,
        notes: if cell.name == "ep-sequential-off" { vec!["a note, once".into()] } else { vec![] },
        outcome,
    }
}

/// Sequential runs are slower, with fewer local accesses; one cell failed.
fn results(campaign: &Campaign) -> Results {
    let mut results = Results::default();
    for cell in &campaign.cells {
        for round in 0..3 {
            let slow = if cell.name.contains("sequential") { 0.2 } else { 0.0 };
            let seconds = 1.0 + slow + f64::from(round) / 1e3;
            let metrics = [("A".to_owned(), 1.0 - slow - f64::from(round) / 1e3), ("same".to_owned(), 1.0)].into();
            let outcome = if cell.name != "ep-sequential-off" {
                UnitOutcome::Measured(Measured { seconds, wall_seconds: seconds + 0.5, metrics })
            } else if round == 0 {
                UnitOutcome::Failed { why: "exit status 3".into(), output: "<img src=x>\nline".into() }
            } else {
                continue;
            };
            results.add(unit(cell, round, outcome));
        }
    }
    results
}

fn report() -> CampaignReport {
    let campaign = campaign();
    let cells: Vec<&Cell> = campaign.cells.iter().collect();
    CampaignReport::new(&campaign, &results(&campaign), &cells, vec!["Another note".into()])
}

#[test]
fn a_campaign_is_reported_as_tables() {
    let report = report();
    insta::assert_snapshot!(report.to_string());
    assert!(!report.is_complete() && report.is_contradicted());
}

/// Pinnings are columns, as the baseline names one; the title's markup is text.
#[test]
fn times_are_a_table_of_markdown() {
    let markdown = report().markdown();
    for line in [
        "# two programs, &lt;b>pinned&lt;/b>",
        "Why, and how.",
        "6 cells, 15 runs, 1 failed",
        "| app | balancing | sockorder | sequential |",
        "| cg | on | 1.001 s | 1.201 s, +20.0 % (+19.7 % to +20.3 %) |",
        "| ep | off | 1.001 s | failed |",
        "| P4 | seconds, 3 pairs | at least 10 % more | - | - | no data |",
        "- ep-sequential-off failed: exit status 3",
    ] {
        assert!(markdown.lines().any(|found| found == line), "{line}\n{markdown}");
    }
}

#[test]
fn every_run_is_a_row_for_other_tools() {
    let campaign = campaign();
    let cells: Vec<&Cell> = campaign.cells.iter().collect();
    let table = RunTable::new(&campaign, &results(&campaign), &cells);
    let csv = table.to_csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "cell,app,pinning,balancing,host,failed,round,seconds,wall_seconds,A,same");
    assert_eq!(lines[1], "cg-sockorder-on,cg,sockorder,on,,,0,1,1.5,1,1");
    assert_eq!(lines.last(), Some(&"ep-sequential-off,ep,sequential,off,,exit status 3,0,,,,"));
    assert_eq!(lines.len(), 1 + 5 * 3 + 1);
    let mut parquet = Vec::new();
    table.write_parquet(&mut parquet).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn a_page_is_well_formed_and_every_picture_has_its_table() {
    let report = report();
    let whole = campaign_to_html(&report).unwrap();
    let seen = read(&whole);
    stays_here(&seen, 0);
    for says in ["P4", "at least 10 % more", "cg-sequential-on", "exit status 3", "Another note"] {
        assert!(seen.text.contains(says), "{says}");
    }
    // Bars, squares with and without balancing, the ranking, the scatter; the claims have a table only.
    assert_eq!((whole.matches("<svg").count(), whole.matches("<table>").count()), (5, 3));
    let nothing =
        CampaignReport::new(&campaign(), &Results::default(), &campaign().cells.iter().collect::<Vec<_>>(), vec![]);
    let page = campaign_to_html(&nothing).unwrap();
    stays_here(&read(&page), 0);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}
