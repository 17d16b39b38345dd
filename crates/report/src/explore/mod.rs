//! The results of a campaign: cells, claims and correlations.

mod markdown;
pub mod table;
pub(crate) mod text;

use explore::{
    Campaign, Cell, Claim, Correlation, CorrelationResult, EffectResult, Estimate, Judged, Progress, Ranked, Results,
    Selector, mean, ranking, relative_means,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Names of hosts in a note.
const MOST_HOSTS: usize = 8;

/// A campaign and its results so far.
#[derive(Clone, Debug, Serialize)]
pub struct CampaignReport {
    /// What it is about, in a line.
    pub title: String,
    /// What it is about, at length.
    #[serde(skip)]
    pub about: String,
    /// The hash of the campaign's file.
    pub hash: String,
    /// The names of the axes.
    pub axes: Vec<String>,
    /// The index of the axis of which the labels are compared: the last one of the baseline.
    #[serde(skip)]
    pub columns: Option<usize>,
    /// The cells, in the order of the grid.
    pub cells: Vec<CellReport>,
    /// Claims about ratios.
    pub effects: Vec<EffectResult>,
    /// Claims about correlations.
    pub correlations: Vec<CorrelationResult>,
    /// Metrics by how closely they are related to the time.
    pub rankings: Vec<RankingReport>,
    /// Runs left, at least.
    pub left: usize,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// A cell and its results.
#[derive(Clone, Debug, Serialize)]
pub struct CellReport {
    /// Its name.
    pub name: String,
    /// Its hash.
    pub id: String,
    /// Its labels, in the order of the axes.
    pub labels: Vec<String>,
    /// The times of its runs, s.
    pub runs: Vec<f64>,
    /// The mean time, s.
    pub seconds: Option<Estimate>,
    /// The time over that of the baseline.
    pub relative: Option<Estimate>,
    /// The means of its metrics.
    pub metrics: BTreeMap<String, f64>,
    /// Whether it needs more runs.
    pub is_over: bool,
    /// Why it failed.
    pub failed: Option<String>,
    /// The last lines of the output of a run that failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// What was done in another way than the file says.
    pub notes: BTreeSet<String>,
}

/// A ranking of metrics.
#[derive(Clone, Debug, Serialize)]
pub struct RankingReport {
    /// The cells whose runs it is about.
    pub over: String,
    /// The metrics, the most closely related first.
    pub metrics: Vec<Ranked>,
    /// The claim's metric and the time of each run.
    pub points: Vec<(f64, f64)>,
    /// The claim's metric.
    pub metric: String,
}

impl CampaignReport {
    /// The report on some cells of a campaign, with the claims that are about no others.
    pub fn new(campaign: &Campaign, results: &Results, cells: &[&Cell], mut notes: Vec<String>) -> Self {
        let progress = Progress { campaign };
        let judged = Judged::new(campaign, results, cells);
        let (effects, correlations) = (judged.effects(), judged.correlation_results());
        let claims = campaign.effects.len() + campaign.correlations.len();
        let others = claims - effects.len() - correlations.len();
        if others > 0 {
            notes.push(format!(
                "{others} of {claims} claims of the file are not judged: they need cells that are not part of this table"
            ));
        }
        notes.extend(hosts(results, cells));
        let failed = cells.iter().filter(|cell| results.failure(&cell.id).is_some()).count();
        notes.extend(
            (failed > 0).then(|| format!("{failed} of {} cells failed: --retry runs these again", cells.len())),
        );
        let relative = relative_means(campaign, results);
        let cell = |cell: &&Cell| {
            let seconds = results.values(&cell.id, "seconds");
            let failure = results.failure(&cell.id);
            CellReport {
                name: cell.name.clone(),
                id: cell.id.clone(),
                labels: campaign.labels(cell).map(|(_, label)| label.to_owned()).collect(),
                seconds: Estimate::from_values(&seconds),
                runs: seconds,
                relative: relative(cell),
                metrics: means(results, cell),
                is_over: progress.is_over(results, cell),
                failed: failure.map(|(why, _)| why.to_owned()),
                output: failure.map(|(_, output)| output.to_owned()).unwrap_or_default(),
                notes: results.units(&cell.id).iter().flat_map(|unit| unit.notes.iter().cloned()).collect(),
            }
        };
        Self {
            title: campaign.title.clone(),
            about: campaign.about.clone(),
            hash: campaign.hash.clone(),
            axes: campaign.axes.iter().map(|axis| axis.name.clone()).collect(),
            columns: campaign.baseline.axes().max(),
            cells: cells.iter().map(cell).collect(),
            rankings: rankings(campaign, results, &judged),
            effects,
            correlations,
            left: progress.left(results, cells).0,
            notes,
        }
    }

    /// Whether every cell has its runs, and none failed.
    pub fn is_complete(&self) -> bool {
        self.cells.iter().all(|cell| cell.is_over && cell.failed.is_none())
    }

    /// Whether a claim was missed, or has no data: where all runs are there, none has its metric, or that is 0.
    pub fn is_contradicted(&self) -> bool {
        let claims = self.effects.iter().map(|effect| effect.claim);
        claims
            .chain(self.correlations.iter().map(|correlation| correlation.claim))
            .any(|claim| matches!(claim, Claim::Missed | Claim::NoData))
    }
}

/// What to know if not all runs were on one host.
fn hosts(results: &Results, cells: &[&Cell]) -> Option<String> {
    let units = cells.iter().flat_map(|cell| results.units(&cell.id));
    let hosts: BTreeSet<&str> = units.filter_map(|unit| unit.host.as_deref()).collect();
    let first: Vec<&str> = hosts.iter().take(MOST_HOSTS).copied().collect();
    let more = if hosts.len() > MOST_HOSTS { ", …" } else { "" };
    (hosts.len() > 1).then(|| {
        let names = first.join(", ");
        format!(
            "the runs are of {} hosts ({names}{more}): a ratio of two cells without a common host has no interval",
            hosts.len()
        )
    })
}

fn means(results: &Results, cell: &Cell) -> BTreeMap<String, f64> {
    let names: BTreeSet<&String> = results.measured(&cell.id).flat_map(|run| run.metrics.keys()).collect();
    let mean = |name: &String| Some((name.clone(), mean(&results.values(&cell.id, name))?));
    names.into_iter().filter_map(mean).collect()
}

/// A ranking for the cells of each claim about a correlation.
fn rankings(campaign: &Campaign, results: &Results, judged: &Judged) -> Vec<RankingReport> {
    let mut known: Vec<&Selector> = Vec::new();
    let mut rankings = Vec::new();
    for claim in judged.correlations() {
        if known.contains(&&claim.over) {
            continue;
        }
        known.push(&claim.over);
        let metrics = ranking(campaign, results, &claim.over);
        if !metrics.is_empty() {
            let points = points(campaign, results, claim);
            let over = claim.over.describe(&campaign.axes);
            rankings.push(RankingReport { over, metrics, points, metric: claim.metric.clone() });
        }
    }
    rankings
}

fn points(campaign: &Campaign, results: &Results, claim: &Correlation) -> Vec<(f64, f64)> {
    let cells = campaign.cells.iter().filter(|cell| claim.over.chooses(&cell.labels));
    let runs = cells.flat_map(|cell| results.measured(&cell.id));
    runs.filter_map(|run| Some((run.metric(&claim.metric)?, run.seconds))).collect()
}
