//! What the results say: ratios to a baseline, published claims, and correlations with the time.

use super::cell::{Cell, Place};
use super::file::Campaign;
use super::read::{Correlation, Effect, Expect};
use super::results::{Results, SECONDS};
use super::selector::Selector;
use crate::statistics::{Estimate, fisher_interval, mean, pearson, spearman};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How a claim fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Claim {
    /// The number is as claimed, and that is not chance.
    Met,
    /// The number is as claimed, but its interval allows that there is no effect.
    Unclear,
    /// The number is not as claimed.
    Missed,
    /// Too few runs.
    #[strum(serialize = "no data")]
    NoData,
}

/// Two cells that an effect compares.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The cell that the claim is about.
    pub of: String,
    /// The cell that it is compared with.
    pub against: String,
    /// The ratio of their metrics.
    pub ratio: Option<Estimate>,
}

/// The result of a claim about a ratio.
#[derive(Clone, Debug, Serialize)]
pub struct EffectResult {
    /// The claim's name.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// The metric.
    pub metric: String,
    /// The claim in words.
    pub expected: String,
    /// The geometric mean of the pairs' ratios, where all pairs have one.
    pub ratio: Option<Estimate>,
    /// The pair that is farthest from the claim, of those with a ratio, where each must be as claimed.
    pub worst: Option<Pair>,
    /// How it fares.
    pub claim: Claim,
    /// All pairs.
    pub pairs: Vec<Pair>,
}

/// All claims about ratios.
pub type Effects = Vec<EffectResult>;

/// A metric's correlation with the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Correlated {
    /// Pearson's correlation.
    pub r: f64,
    /// Its 95 % interval, by Fisher's transformation.
    pub interval: Option<(f64, f64)>,
    /// Spearman's correlation.
    pub rho: Option<f64>,
    /// Number of runs.
    pub runs: usize,
}

/// The result of a claim about a correlation.
#[derive(Clone, Debug, Serialize)]
pub struct CorrelationResult {
    /// The claim's name.
    pub name: String,
    /// Where it was published.
    pub source: String,
    /// The metric.
    pub metric: String,
    /// The claim in words.
    pub expected: String,
    /// The correlation, where there is one.
    pub found: Option<Correlated>,
    /// How it fares.
    pub claim: Claim,
}

/// A metric in a ranking.
#[derive(Clone, Debug, Serialize)]
pub struct Ranked {
    /// Its name.
    pub metric: String,
    /// Its correlation with the time.
    #[serde(flatten)]
    pub found: Correlated,
}

/// The claims that are about no other cells than these: the results of others may be missing, or another part's.
#[derive(Debug)]
pub struct Judged<'a> {
    campaign: &'a Campaign,
    results: &'a Results,
    cells: BTreeSet<&'a str>,
}

impl<'a> Judged<'a> {
    /// Of these cells of a campaign.
    pub fn new(campaign: &'a Campaign, results: &'a Results, cells: &[&'a Cell]) -> Self {
        Self { campaign, results, cells: cells.iter().map(|cell| cell.id.as_str()).collect() }
    }

    /// The results of the claims about ratios.
    pub fn effects(&self) -> Effects {
        let compared = self.campaign.effects.iter().map(|effect| (effect, compared(self.campaign, effect)));
        let is_judged = |(_, compared): &(_, Vec<Compared>)| {
            self.has(compared.iter().flat_map(|(of, against)| against.iter().copied().chain([*of])))
        };
        compared.filter(is_judged).map(|(effect, compared)| effect_result(self.results, effect, &compared)).collect()
    }

    /// The claims about correlations.
    pub fn correlations(&self) -> impl Iterator<Item = &'a Correlation> {
        let claims = self.campaign.correlations.iter();
        claims.filter(|claim| self.has(cells(self.campaign, &claim.over).into_iter()))
    }

    /// Their results.
    pub fn correlation_results(&self) -> Vec<CorrelationResult> {
        self.correlations().map(|claim| correlation_result(self.campaign, self.results, claim)).collect()
    }

    fn has(&self, mut cells: impl Iterator<Item = &'a Cell>) -> bool {
        cells.all(|cell| self.cells.contains(cell.id.as_str()))
    }
}

/// A cell, and those of which it is compared with the one with the lowest mean.
type Compared<'a> = (&'a Cell, Vec<&'a Cell>);

/// The cells that an effect compares.
fn compared<'a>(campaign: &'a Campaign, effect: &Effect) -> Vec<Compared<'a>> {
    let of = campaign.cells.iter().filter(|cell| effect.of.chooses(&cell.labels));
    of.filter_map(|cell| {
        let labels = effect.against.substitutions(&cell.labels);
        let others: Vec<&Cell> = labels.iter().filter_map(|labels| campaign.cell(labels)).collect();
        others.iter().any(|other| *other != cell).then_some((cell, others))
    })
    .collect()
}

/// The one with the lowest mean, if all have one.
fn lowest<'a>(results: &Results, metric: &str, cells: &[&'a Cell]) -> Option<&'a Cell> {
    let means = cells.iter().map(|cell| Some((*cell, mean(&results.values(&cell.id, metric))?)));
    let means: Vec<(&Cell, f64)> = means.collect::<Option<_>>()?;
    means.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(cell, _)| cell)
}

/// Largest part of one side's runs that may be on other hosts than the other side's, for a ratio with an interval: a tenth of
/// a difference between hosts is then taken for one between cells.
const MOST_APART: f64 = 0.1;

/// The geometric mean of the pairs' ratios. It has no interval if hosts may be what differs between the two sides.
fn mean_ratio(results: &Results, metric: &str, pairs: &[(&Cell, &Cell)]) -> Option<Estimate> {
    let different: BTreeSet<&str> =
        pairs.iter().flat_map(|(of, against)| [of, against]).map(|cell| cell.id.as_str()).collect();
    let different: Vec<&str> = different.into_iter().collect();
    let times: Vec<Vec<f64>> = different.iter().map(|id| results.values(id, metric)).collect();
    let position = |cell: &Cell| different.binary_search(&cell.id.as_str()).unwrap_or_default();
    let positions: Vec<(usize, usize)> = pairs.iter().map(|(of, against)| (position(of), position(against))).collect();
    let ratio = Estimate::mean_ratio(&positions, &times)?;
    let interval = ratio.interval.filter(|_| have_alike_hosts(results, pairs));
    Some(Estimate { interval, ..ratio })
}

/// Whether both sides ran on the same hosts, each about as often. The lab's time is not the host's.
fn have_alike_hosts(results: &Results, pairs: &[(&Cell, &Cell)]) -> bool {
    // Of each host, by how many cells' runs one side has more than the other.
    let mut more: BTreeMap<Option<&str>, f64> = BTreeMap::new();
    let on_hosts = pairs.iter().filter(|(of, against)| [of, against].iter().any(|cell| cell.place == Place::Here));
    let mut count = 0;
    for (of, against) in on_hosts {
        count += 1;
        for (cell, side) in [(of, 1.0), (against, -1.0)] {
            let share = side / results.hosts(&cell.id).count().max(1) as f64;
            results.hosts(&cell.id).for_each(|host| *more.entry(host).or_default() += share);
        }
    }
    let apart: f64 = more.values().map(|more| more.abs()).sum::<f64>() / 2.0;
    apart <= MOST_APART * f64::from(count) + 1e-9
}

fn effect_result(results: &Results, effect: &Effect, compared: &[Compared]) -> EffectResult {
    let lowest: Vec<Option<&Cell>> =
        compared.iter().map(|(_, against)| lowest(results, &effect.metric, against)).collect();
    let pair = |((of, against), lowest): (&Compared, Option<&Cell>)| Pair {
        of: of.name.clone(),
        against: lowest.or(against.first().copied()).map(|cell| cell.name.clone()).unwrap_or_default(),
        ratio: lowest.and_then(|lowest| mean_ratio(results, &effect.metric, &[(*of, lowest)])),
    };
    let pairs: Vec<Pair> = compared.iter().zip(lowest.iter().copied()).map(pair).collect();
    let all: Option<Vec<(&Cell, &Cell)>> =
        compared.iter().zip(&lowest).map(|((of, _), lowest)| Some((*of, (*lowest)?))).collect();
    let ratio = all.and_then(|all| mean_ratio(results, &effect.metric, &all));
    let claim = |ratio: &Option<Estimate>| ratio.as_ref().map_or(Claim::NoData, |ratio| effect.expect.ratio(ratio));
    let known: Vec<&Pair> = pairs.iter().filter(|pair| pair.ratio.is_some()).collect();
    let badness = |pair: &Pair| (claim(&pair.ratio), pair.ratio.map_or(0.0, |ratio| effect.expect.excess(ratio.mean)));
    let by_badness = |a: &&&Pair, b: &&&Pair| {
        let ((a, a_excess), (b, b_excess)) = (badness(a), badness(b));
        a.cmp(&b).then(a_excess.total_cmp(&b_excess))
    };
    let worst = known.iter().filter(|_| effect.each).max_by(by_badness).map(|worst| Pair::clone(worst));
    let claim = match claim(&worst.as_ref().map_or(ratio, |worst| worst.ratio)) {
        // One pair is enough to miss a claim about each, and not enough to meet it.
        Claim::Met | Claim::Unclear if known.len() < pairs.len() => Claim::NoData,
        claim => claim,
    };
    EffectResult {
        name: effect.name.clone(),
        source: effect.source.clone(),
        metric: effect.metric.clone(),
        expected: effect.expect.to_string(),
        claim,
        ratio,
        worst,
        pairs,
    }
}

impl Expect {
    fn ratio(self, ratio: &Estimate) -> Claim {
        let (as_claimed, is_certain) = match self {
            Self::Increase(share) => (ratio.mean >= 1.0 + share && ratio.mean > 1.0, ratio.is_above(1.0)),
            Self::Decrease(share) => (ratio.mean <= 1.0 - share && ratio.mean < 1.0, ratio.is_below(1.0)),
            Self::Same(share) => {
                let is_inside = ratio.is_above(1.0 - share) && ratio.is_below(1.0 + share);
                ((ratio.mean - 1.0).abs() <= share, is_inside)
            }
            Self::NoIncrease(share) => (ratio.mean <= 1.0 + share, ratio.is_below(1.0 + share)),
            Self::AtMost(value) => (ratio.mean <= value, true),
            Self::AtLeast(value) => (ratio.mean >= value, true),
        };
        Claim::new(as_claimed, is_certain)
    }

    /// Larger for ratios that are farther from what is claimed.
    fn excess(self, ratio: f64) -> f64 {
        match self {
            Self::Increase(_) | Self::AtLeast(_) => -ratio,
            Self::Same(_) => (ratio - 1.0).abs(),
            Self::Decrease(_) | Self::NoIncrease(_) | Self::AtMost(_) => ratio,
        }
    }

    fn correlation(self, found: &Correlated) -> Claim {
        // A strong relation is certain if there is one at all; a bound on the other side of 0 says that there is none, and
        // is certain if all of the interval is within it.
        let (is_claimed, is_certain) = match (self, found.interval) {
            (Self::AtMost(value), interval) => {
                (found.r <= value, interval.is_some_and(|(_, high)| high < value.max(0.0)))
            }
            (Self::AtLeast(value), interval) => {
                (found.r >= value, interval.is_some_and(|(low, _)| low > value.min(0.0)))
            }
            (Self::Increase(_) | Self::Decrease(_) | Self::Same(_) | Self::NoIncrease(_), _) => (false, false),
        };
        Claim::new(is_claimed, is_certain)
    }
}

/// The claim in words.
impl std::fmt::Display for Expect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: f64| format!("{} %", (share * 1e6).round() / 1e4);
        match self {
            Self::Increase(0.0) => f.write_str("more"),
            Self::Decrease(0.0) => f.write_str("less"),
            Self::Increase(share) => write!(f, "at least {} more", percent(*share)),
            Self::Decrease(share) => write!(f, "at least {} less", percent(*share)),
            Self::Same(share) => write!(f, "the same within {}", percent(*share)),
            Self::NoIncrease(0.0) => f.write_str("not more"),
            Self::NoIncrease(share) => write!(f, "at most {} more", percent(*share)),
            Self::AtMost(value) => write!(f, "at most {value}"),
            Self::AtLeast(value) => write!(f, "at least {value}"),
        }
    }
}

impl Claim {
    fn new(as_claimed: bool, is_certain: bool) -> Self {
        match (as_claimed, is_certain) {
            (true, true) => Self::Met,
            (true, false) => Self::Unclear,
            (false, _) => Self::Missed,
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn correlation_result(campaign: &Campaign, results: &Results, claim: &Correlation) -> CorrelationResult {
    let found = correlated(&cells(campaign, &claim.over), results, &claim.metric);
    CorrelationResult {
        name: claim.name.clone(),
        source: claim.source.clone(),
        metric: claim.metric.clone(),
        expected: claim.expect.to_string(),
        claim: found.as_ref().map_or(Claim::NoData, |found| claim.expect.correlation(found)),
        found,
    }
}

/// All metrics of these cells' runs, those first that are most closely related to the time.
pub fn ranking(campaign: &Campaign, results: &Results, over: &Selector) -> Vec<Ranked> {
    let cells = cells(campaign, over);
    let measured = cells.iter().flat_map(|cell| results.measured(&cell.id));
    let metrics: BTreeSet<&String> = measured.flat_map(|measured| measured.metrics.keys()).collect();
    let ranked = |metric: &String| Some(Ranked { metric: metric.clone(), found: correlated(&cells, results, metric)? });
    let mut ranking: Vec<Ranked> = metrics.into_iter().filter_map(ranked).collect();
    ranking.sort_by(|a, b| b.found.r.abs().total_cmp(&a.found.r.abs()));
    ranking
}

fn cells<'a>(campaign: &'a Campaign, over: &Selector) -> Vec<&'a Cell> {
    campaign.cells.iter().filter(|cell| over.chooses(&cell.labels)).collect()
}

fn correlated(cells: &[&Cell], results: &Results, metric: &str) -> Option<Correlated> {
    let measured = cells.iter().flat_map(|cell| results.measured(&cell.id));
    let pairs: Vec<(f64, f64)> = measured.filter_map(|run| Some((run.metric(metric)?, run.metric(SECONDS)?))).collect();
    let r = pearson(&pairs)?;
    Some(Correlated { r, interval: fisher_interval(r, pairs.len()), rho: spearman(&pairs), runs: pairs.len() })
}

/// The time of each cell over that of its baseline, for cells that have one other than themselves.
pub fn relative_means<'a>(
    campaign: &'a Campaign,
    results: &'a Results,
) -> impl Fn(&Cell) -> Option<Estimate> + use<'a> {
    move |cell| {
        let labels = campaign.baseline.substitute(&cell.labels).filter(|_| !campaign.baseline.is_empty())?;
        let baseline = campaign.cell(&labels).filter(|baseline| *baseline != cell)?;
        mean_ratio(results, SECONDS, &[(cell, baseline)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A strong relation is certain where there is one at all, and a weak one where the interval is within its bound.
    #[test]
    fn correlations_are_certain_where_their_interval_is_as_claimed() {
        let claim = |expect: Expect, r: f64, interval| {
            expect.correlation(&Correlated { r, interval: Some(interval), rho: None, runs: 50 })
        };
        for (expect, r, interval, expected) in [
            (Expect::AtMost(-0.95), -0.96, (-0.98, -0.93), Claim::Met),
            (Expect::AtMost(-0.1), -0.2, (-0.5, 0.1), Claim::Unclear),
            (Expect::AtMost(0.3), 0.0, (-0.28, 0.28), Claim::Met),
            (Expect::AtMost(0.3), 0.295, (0.02, 0.53), Claim::Unclear),
            (Expect::AtMost(0.3), 0.4, (0.1, 0.6), Claim::Missed),
            (Expect::AtLeast(0.8), 0.9, (0.7, 0.95), Claim::Met),
            (Expect::AtLeast(-0.3), 0.0, (-0.28, 0.28), Claim::Met),
            (Expect::AtLeast(-0.3), -0.1, (-0.5, 0.2), Claim::Unclear),
        ] {
            assert_eq!(claim(expect, r, interval), expected, "{expect} of {r}");
        }
    }
}
