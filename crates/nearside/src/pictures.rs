//! `nearside report --html` and its like: what a trace shows, as pictures in files.

use crate::output;
use clap::Args;
use profile::View;
use report::{ProfileReport, RemoteCost, TraceFacts, Wanted, profile_to_html, profile_to_perfetto};
use std::error::Error;
use std::path::PathBuf;

/// Rows of a table on a page, at least: a page can be scrolled.
const ROWS: usize = 30;

/// Pictures to draw.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pictures, in addition to the text")]
pub struct Pictures {
    /// Write a page with pictures: access map, heat map of nodes, latency over time, timelines of objects
    ///
    /// One file that needs no network and no other file, for any browser, in light and dark, on screen and on paper.
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    html: Option<PathBuf>,

    /// Write a trace for the Perfetto UI (ui.perfetto.dev): accesses by thread, lives of objects, counters of nodes
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    perfetto: Option<PathBuf>,

    /// Write a flame graph (SVG) of what remote accesses cost, by the call chains that led to them
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    flamegraph: Option<PathBuf>,

    /// Write the same as folded stacks, which other tools draw
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    folded: Option<PathBuf>,
}

impl Pictures {
    /// Draws those that are asked for.
    pub fn draw(&self, view: &View, facts: &TraceFacts, wanted: &Wanted) -> Result<(), Box<dyn Error>> {
        if let Some(file) = &self.html {
            let wanted = Wanted { top: wanted.top.max(ROWS), ..wanted.clone() };
            let page = profile_to_html(view, &ProfileReport::of(view, facts.clone(), wanted))?;
            output::write(&page, Some(file))?;
        }
        if let Some(file) = &self.perfetto {
            output::write(&profile_to_perfetto(view), Some(file))?;
        }
        if self.flamegraph.is_none() && self.folded.is_none() {
            return Ok(());
        }
        let cost = RemoteCost::of(view);
        if let Some(file) = &self.flamegraph {
            output::write(&cost.to_svg(&facts.command.join(" "))?, Some(file))?;
        }
        if let Some(file) = &self.folded {
            output::write(&cost.to_folded(), Some(file))?;
        }
        Ok(())
    }
}
