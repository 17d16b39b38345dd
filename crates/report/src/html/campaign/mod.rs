//! A campaign as one self-contained page: every picture has its table.

mod bars;
mod matrix;
mod scatter;

use super::cut;
use crate::CampaignReport;
use crate::escape::escape_name;
use crate::explore::text::{CELL_HEADINGS, CLAIM_HEADINGS, cell_row, ranked_row};
use askama::Template;
use bars::Bars;
use explore::Claim;
use matrix::Matrix;
use scatter::Scatter;
use std::fmt;

/// A campaign as one HTML page. Fails only if memory runs out.
pub fn campaign_to_html(report: &CampaignReport) -> Result<String, fmt::Error> {
    Page::new(report)?.render().map_err(|_| fmt::Error)
}

/// The page, written by its template.
#[derive(Template)]
#[template(path = "campaign.html")]
struct Page {
    title: String,
    written_by: &'static str,
    heading: String,
    is_good: bool,
    verdict: String,
    tables: Vec<Table>,
    remarks: Vec<String>,
    failures: Vec<(String, String)>,
    facts: Vec<(String, String)>,
}

/// A table, after the pictures of its values.
struct Table {
    id: &'static str,
    title: String,
    about: &'static str,
    pictures: Vec<String>,
    columns: Vec<String>,
    /// Number of columns with words.
    words: usize,
    rows: Vec<Vec<String>>,
}

impl Page {
    fn new(report: &CampaignReport) -> Result<Self, fmt::Error> {
        let mut tables = Vec::new();
        let claims = report.claim_rows();
        if !claims.is_empty() {
            tables.push(Table {
                id: "claims",
                title: "Claims".to_owned(),
                about: "What was published, and what was found with its 95 % interval.",
                pictures: Vec::new(),
                columns: CLAIM_HEADINGS.map(str::to_owned).to_vec(),
                words: 3,
                rows: claims.iter().map(|row| row.to_vec()).collect(),
            });
        }
        tables.push(Table {
            id: "times",
            title: "Times".to_owned(),
            about: "Bars are means, whiskers their 95 % intervals, dots single runs; on the right, the difference from \
                    the baseline. In squares, the time over the shortest one of the column.",
            pictures: rendered(Bars::times(report).into_iter())?
                .into_iter()
                .chain(rendered(Matrix::all(report).into_iter())?)
                .collect(),
            columns: CELL_HEADINGS.map(str::to_owned).to_vec(),
            words: 1,
            rows: report.cells.iter().map(|cell| cell_row(cell).to_vec()).collect(),
        });
        for ranking in &report.rankings {
            let rows = ranking.metrics.iter().map(|ranked| ranked_row(&ranked.metric, &ranked.found).to_vec());
            tables.push(Table {
                id: "correlations",
                title: format!("Correlation with the time, {}", escape_name(&ranking.over)),
                about: "Bars are Pearson's correlation of all runs, whiskers its 95 % interval by Fisher's \
                        transformation; the rank is Spearman's. Below, the metric of the claim and the time of each run.",
                pictures: rendered(Bars::ranking(ranking).into_iter())?
                    .into_iter()
                    .chain(rendered(Scatter::new(ranking).into_iter())?)
                    .collect(),
                columns: ["metric", "r", "95 %", "rank", "runs"].map(str::to_owned).to_vec(),
                words: 1,
                rows: rows.collect(),
            });
        }
        Ok(Self {
            title: escape_name(&report.title),
            written_by: concat!("nearside ", env!("CARGO_PKG_VERSION")),
            heading: report.heading(),
            is_good: report.is_complete() && !report.is_contradicted(),
            verdict: verdict(report),
            tables,
            remarks: report.remarks(),
            failures: report
                .cells
                .iter()
                .filter(|cell| !cell.output.is_empty())
                .map(|cell| (format!("The last lines of {}", escape_name(&cell.name)), cut(&cell.output)))
                .collect(),
            facts: vec![("campaign".to_owned(), report.hash.clone()), ("axes".to_owned(), report.axes.join(", "))],
        })
    }
}

/// How the claims fare, in a sentence.
fn verdict(report: &CampaignReport) -> String {
    let claims = report.effects.iter().map(|effect| effect.claim);
    let claims: Vec<Claim> = claims.chain(report.correlations.iter().map(|correlation| correlation.claim)).collect();
    let number = |claim| claims.iter().filter(|known| **known == claim).count();
    if claims.is_empty() {
        return "The campaign makes no claims.".to_owned();
    }
    let [met, unclear, missed, none] = [Claim::Met, Claim::Unclear, Claim::Missed, Claim::NoData].map(number);
    format!("{met} of {} claims are met, {unclear} unclear, {missed} missed, {none} without data.", claims.len())
}

fn rendered<T: Template>(pictures: impl Iterator<Item = T>) -> Result<Vec<String>, fmt::Error> {
    pictures.map(|picture| picture.render().map_err(|_| fmt::Error)).collect()
}
