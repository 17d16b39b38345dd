//! `nearside report --html` and similar options: pictures of a trace, in files.

use crate::output;
use clap::Args;
use profile::View;
use report::{ProfileReport, RemoteCost, TraceFacts, Wanted, profile_to_html, profile_to_perfetto};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Minimum number of rows of a table on a page, which can be scrolled.
const ROWS: usize = 30;

/// Pictures to draw.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Pictures, in addition to the text; - as FILE writes to standard output instead of the text"
)]
pub struct Pictures {
    /// Write a page with pictures: access map, heat map of nodes, latency over time, timelines of objects
    ///
    /// A self-contained file for any browser, in light and dark, on screen and on paper.
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    html: Option<PathBuf>,

    /// Write a trace for the Perfetto UI (ui.perfetto.dev): accesses by thread, lifetimes of objects, counters of nodes
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    perfetto: Option<PathBuf>,

    /// Write a flame graph (SVG) of the cost of remote accesses, by call chain
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    flamegraph: Option<PathBuf>,

    /// Write the same as folded stacks, for other tools
    #[arg(long, value_name = "FILE", conflicts_with = "subject")]
    folded: Option<PathBuf>,
}

impl Pictures {
    /// Number of outputs that go to standard output.
    pub fn on_output(&self) -> usize {
        self.files().filter(|file| output::is_output(file)).count()
    }

    /// The files of all outputs.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.html, &self.perfetto, &self.flamegraph, &self.folded].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Draws the requested pictures.
    pub fn draw(&self, view: &View, facts: &TraceFacts, wanted: &Wanted) -> Result<(), Box<dyn Error>> {
        if let Some(file) = &self.html {
            let wanted = Wanted { top: wanted.top.max(ROWS), ..wanted.clone() };
            let page = profile_to_html(view, &ProfileReport::new(view, facts.clone(), wanted))?;
            output::write_to(&page, file)?;
        }
        if let Some(file) = &self.perfetto {
            output::write_to(&profile_to_perfetto(view), file)?;
        }
        if self.flamegraph.is_none() && self.folded.is_none() {
            return Ok(());
        }
        let cost = RemoteCost::new(view);
        if let Some(file) = &self.flamegraph {
            output::write_to(&cost.to_svg(&facts.command.join(" "))?, file)?;
        }
        if let Some(file) = &self.folded {
            output::write_to(&cost.to_folded(), file)?;
        }
        Ok(())
    }
}
