//! Duration of `nearside explore --list` on a campaign of 10,000 cells without results.

use crate::target::{Row, Target, median};
use bench::Error;
use explore::{Campaign, Cell, Progress, Results};
use std::path::Path;
use std::time::Instant;

const RUNS: usize = 9;
const CELLS: usize = 10_000;
const CAMPAIGN: &str =
    "title = \"many cells\"\ncommand = \"program {a} {b}\"\n[grid]\npinning = [\"sockorder\", \"none\"]\n";

/// Reads the file, makes the cells and their ids, and finds what is left to run.
pub fn measure() -> Result<Vec<Row>, Error> {
    let numbers = |count: usize| format!("{:?}", (0..count).collect::<Vec<_>>());
    let text = format!("{CAMPAIGN}a = {}\nb = {}\n", numbers(100), numbers(50));
    let list = |_| {
        let started = Instant::now();
        let campaign = Campaign::from_toml(&text, Path::new("campaign.toml"), model::VERSION);
        let campaign = campaign.map_err(|error| none(machine::chain(&error)))?;
        let results = Results::of(&campaign, []).0;
        let cells: Vec<&Cell> = campaign.cells.iter().collect();
        let left = Progress { campaign: &campaign }.left(&results, &cells).0;
        let taken = started.elapsed();
        if left == 3 * CELLS { Ok(taken.as_secs_f64() * 1e3) } else { Err(none(format!("{left} runs left"))) }
    };
    let times: Result<Vec<f64>, Error> = (0..RUNS).map(list).collect();
    Ok(vec![Row {
        what: format!("explore: list of {CELLS} cells"),
        target: Target::AtMost(100.0),
        measured: median(times?),
        unit: "ms",
        command: "nearside-bench --only campaign".to_owned(),
    }])
}

fn none(said: String) -> Error {
    Error::NoFigure { command: "explore::Campaign::from_toml".into(), figure: "list of cells".into(), said }
}
