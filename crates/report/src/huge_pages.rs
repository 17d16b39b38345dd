//! Huge pages that nodes share falsely: values, and text.

use crate::Table;
use crate::layout::{Layout, Tone};
use crate::profile::TraceFacts;
use crate::profile::advice::{kind_words, place};
use crate::profile::overview_text::heading;
use crate::profile::site_key::source_of;
use machine::number::{count, percent};
use machine::{NodeId, size};
use profile::{FEWEST_OF_BLOCK, Gain, HugePage, ObjectHugePages, ObjectSummary, Sharing, SharingCounts, View, wilson};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// Standard deviations that exclude 5 %.
const Z_95: f64 = 1.960;
/// Parts of a huge page that are listed; of more, only the nodes.
const MOST_PARTS: usize = 6;

/// Huge pages of a trace and how nodes share them. Serialised, it is the JSON form.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HugePagesReport {
    /// Whether a cure is worthwhile.
    pub found: bool,
    /// The verdict as text.
    pub verdict: String,
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// Samples of accesses.
    pub samples: u64,
    /// Numbers of huge pages.
    pub huge_pages: SharingCounts,
    /// Blocks of 2 MiB that are falsely shared but not known to be huge pages.
    pub perhaps_huge: u64,
    /// Samples that reached memory of another node.
    pub remote_samples: u64,
    /// The share of them that small pages would make local, 0 to 1, and its 95 % interval.
    pub avoidable_share: f64,
    /// The lower and the upper end.
    pub avoidable_interval: (f64, f64),
    /// The expected gain of a cure of all.
    pub gain: Option<Gain>,
    /// The objects, those with the most to save first.
    pub objects: Vec<HugePagesRow>,
    /// The blocks, by process and address.
    pub blocks: Vec<HugePage>,
    /// Rows of each part of the text.
    #[serde(skip)]
    pub top: usize,
}

/// An object with huge pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HugePagesRow {
    /// The object.
    #[serde(flatten)]
    pub summary: ObjectSummary,
    /// The line of source that allocates it.
    pub source: Option<String>,
    /// Its huge pages; `object` is in both.
    pub pages: ObjectHugePages,
    /// Whether a cure is worthwhile.
    pub worth_a_cure: bool,
}

impl HugePagesReport {
    /// Of a view, with at most `top` rows of each part as text.
    pub fn new(view: &View, trace: TraceFacts, top: usize) -> Self {
        let profile = view.profile();
        let blocks = view.flow().huge_pages();
        let row = |pages: ObjectHugePages| {
            let summary = profile.object_summary(pages.object)?;
            let (source, worth_a_cure) = (source_of(profile, summary.site), pages.is_worth_a_cure());
            Some(HugePagesRow { summary, source, pages, worth_a_cure })
        };
        let objects: Vec<HugePagesRow> = view.huge_pages_by_object(&blocks).into_iter().filter_map(row).collect();
        let falsely = blocks.iter().filter(|page| page.is_falsely_shared() && may_be_huge(page));
        let (huge, perhaps): (Vec<&HugePage>, Vec<&HugePage>) = falsely.partition(|page| page.is_huge);
        let remote_samples = view.tally().remote_samples;
        // Of many samples a part was judged: these are what an interval is of.
        let stands_for = blocks.iter().map(|page| page.stands_for).max().unwrap_or(1);
        let judged = remote_samples / stands_for;
        let savings = huge.iter().filter_map(|page| page.saving);
        let avoidable = savings.map(|saving| saving.avoidable_samples).sum::<u64>().min(judged);
        let mut report = Self {
            found: objects.iter().any(|row| row.worth_a_cure),
            verdict: String::new(),
            trace,
            samples: view.tally().samples,
            huge_pages: SharingCounts::sum(objects.iter().map(|row| &row.pages.huge_pages)),
            perhaps_huge: perhaps.len() as u64,
            remote_samples,
            avoidable_share: if judged == 0 { 0.0 } else { avoidable as f64 / judged as f64 },
            avoidable_interval: if judged == 0 { (0.0, 0.0) } else { wilson(avoidable, judged, Z_95) },
            gain: if huge.is_empty() { None } else { view.gain_of_splitting(&huge) },
            objects,
            blocks: Vec::new(),
            top,
        };
        report.blocks = blocks;
        let gain = report.gain.map(|gain| gain.speedup);
        report.verdict = match report.samples {
            0 => NO_SAMPLES.to_owned(),
            _ => verdict(&report.huge_pages, report.perhaps_huge, report.found, gain),
        };
        report
    }

    /// Samples of the blocks without a verdict, and of all blocks that are huge.
    fn undecided(&self) -> (u64, u64) {
        let huge = || self.blocks.iter().filter(|page| page.is_huge);
        let unknown = huge().filter(|page| page.sharing == Sharing::Unknown).map(|page| page.samples).sum();
        (unknown, huge().map(|page| page.samples).sum())
    }

    /// The share of the samples in huge pages that are in pages with a verdict, 0 to 1.
    pub fn decided_share(&self) -> f64 {
        let (unknown, all) = self.undecided();
        if all == 0 { 0.0 } else { 1.0 - unknown as f64 / all as f64 }
    }
}

impl fmt::Display for HugePagesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        let tone = if self.found { Tone::Bad } else { Tone::Good };
        f.write_str(&layout.painted_lines(tone, &layout.wrapped("", &self.verdict)))?;
        if self.huge_pages.falsely_shared > 0 {
            let (low, high) = self.avoidable_interval;
            let [share, low, high] = [self.avoidable_share, low, high].map(percent);
            let remote = count(self.remote_samples);
            let text = format!("of {remote} remote samples, {share} are avoidable ({low} to {high})");
            f.write_str(&layout.wrapped("", &text))?;
        }
        let (unknown, all) = self.undecided();
        if unknown > 0 {
            let text = stay_unknown(self.huge_pages.unknown, unknown as f64 / all as f64);
            f.write_str(&layout.wrapped("", &text))?;
        }
        if !self.objects.is_empty() {
            f.write_str(&part(layout, "objects", self.top, self.objects.len()))?;
            f.write_str(&layout.text(&self.object_table()))?;
        }
        let mut falsely: Vec<&HugePage> =
            self.blocks.iter().filter(|page| page.is_falsely_shared() && may_be_huge(page)).collect();
        falsely.sort_by_key(|page| (Reverse(page.remote_samples), page.process, page.address));
        if !falsely.is_empty() {
            f.write_str(&part(layout, "falsely shared, small pages by owner", self.top, falsely.len()))?;
        }
        let block = |page: &HugePage| layout.wrapped(&format!("  {:#x}  ", page.address), &block_text(page));
        falsely.iter().take(self.top).try_for_each(|page| f.write_str(&block(page)))
    }
}

const NO_SAMPLES: &str = "no access was sampled, so no huge page was seen: `nearside doctor` shows what can sample accesses \
     here, and `nearside lab record` samples them on a simulated machine";

const NO_HUGE_PAGES: &str = "no huge page was seen: what was accessed lies in small pages. \
     /sys/kernel/mm/transparent_hugepage/enabled says whether the kernel makes huge ones (always; madvise: where the program \
     asks for them; never)";

/// The verdict on a trace's huge pages. `gain` is the speedup that small pages would bring.
fn verdict(counts: &SharingCounts, perhaps_huge: u64, found: bool, gain: Option<f64>) -> String {
    let SharingCounts { all, falsely_shared, unknown, .. } = *counts;
    let (falsely, are) = match (falsely_shared, all) {
        (1, 1) => ("the only huge page".to_owned(), "is"),
        (several, all) => (format!("{several} of {all} huge pages"), if several == 1 { "is" } else { "are" }),
    };
    match (falsely_shared, gain) {
        (0, _) if perhaps_huge > 0 => format!(
            "different nodes use different parts of 2 MiB blocks ({perhaps_huge}), but whether these are huge pages is not \
             known"
        ),
        (0, _) if all == 0 => NO_HUGE_PAGES.to_owned(),
        (0, _) if unknown == 1 && all == 1 => {
            format!("not known: the only huge page has fewer than {FEWEST_OF_BLOCK} samples")
        }
        (0, _) if unknown == all => format!("not known: none of {all} huge pages has {FEWEST_OF_BLOCK} samples"),
        (0, _) if all == 1 => "the only huge page is not falsely shared".to_owned(),
        (0, _) if 2 * unknown >= all => format!(
            "none of the {} huge pages with {FEWEST_OF_BLOCK} samples is falsely shared; {unknown} have fewer",
            all - unknown
        ),
        (0, _) => format!("none of {all} huge pages is falsely shared"),
        (_, Some(gain)) if found => format!(
            "{falsely} {are} falsely shared: with small pages there, on their users' nodes, the program should be \
             {gain:.2} times as fast"
        ),
        (_, None) if found => format!("{falsely} {are} falsely shared; the gain of small pages is not known"),
        _ => format!("{falsely} {are} falsely shared, but small pages would hardly help"),
    }
}

/// What is said of huge pages without a verdict, which have this share of the samples.
fn stay_unknown(pages: u64, share: f64) -> String {
    let (stay, each) = if pages == 1 { ("page stays", "") } else { ("pages stay", " each") };
    format!(
        "{pages} huge {stay} unknown, with {} of the samples: fewer than {FEWEST_OF_BLOCK}{each}. Record longer, or with a \
         shorter --period",
        percent(share)
    )
}

/// Whether a block is a huge page as far as known: one that lies on several nodes is none.
fn may_be_huge(page: &HugePage) -> bool {
    page.is_huge || page.lies_on.len() < 2
}

fn part(layout: Layout, name: &str, top: usize, all: usize) -> String {
    heading(layout, &if top < all { format!("{name}, {top} of {all}") } else { name.to_owned() })
}

impl HugePagesReport {
    fn object_table(&self) -> Table {
        let mut table = Table::new([
            "  object",
            "kind",
            "size",
            "huge pages",
            "falsely shared",
            "truly",
            "one owner",
            "remote",
            "other",
            "unknown",
            "misplaced",
            "gain",
            "pays after",
        ])
        .optional(&[12, 10, 9, 8, 5, 7, 6, 1]);
        for HugePagesRow { summary, source, pages, .. } in self.objects.iter().take(self.top) {
            let counts = &pages.huge_pages;
            let other = counts.mixed + counts.drifting + counts.padding_needed;
            let cells = [
                format!("  {}", summary.object),
                kind_words(summary.kind).to_owned(),
                if summary.bytes > 0 { size::rounded(summary.bytes) } else { "-".to_owned() },
                counts.all.to_string(),
                counts.falsely_shared.to_string(),
                counts.truly_shared.to_string(),
                counts.local_owner.to_string(),
                counts.remote_owner.to_string(),
                other.to_string(),
                counts.unknown.to_string(),
                count(pages.misplaced_pages),
                pages.gain.map_or_else(|| "-".to_owned(), |gain| format!("{:.3}x", gain.speedup)),
                pages.pays_after_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2} s")),
            ];
            table.noted(cells, place(&summary.label, source.as_deref()));
        }
        table
    }
}

/// The owners of a block.
fn block_text(page: &HugePage) -> String {
    let owners: Vec<String> = if page.owners.len() <= MOST_PARTS {
        let owner = |owner: &profile::Owner| {
            format!("{}-{} node {}", owner.first_page, owner.first_page + owner.pages - 1, owner.node)
        };
        page.owners.iter().map(owner).collect()
    } else {
        let mut nodes: BTreeMap<NodeId, u64> = BTreeMap::new();
        page.owners.iter().for_each(|owner| *nodes.entry(owner.node).or_default() += owner.pages);
        nodes.iter().map(|(node, pages)| format!("{pages} node {node}")).collect()
    };
    let in_turn = if page.owners.len() <= MOST_PARTS { "" } else { "in turn, of those seen " };
    let lies: Vec<String> = page.lies_on.iter().map(ToString::to_string).collect();
    let lies = if lies.is_empty() { "an unknown node".to_owned() } else { format!("node {}", lies.join(", ")) };
    let unsure = if page.is_huge { "" } else { ", perhaps of small pages" };
    let (owners, held) = (owners.join(", "), percent(page.held));
    format!("{in_turn}{owners} ({} samples, {held}; lies on {lies}{unsure})", page.samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_huge_page_is_no_plural() {
        let said = |all, falsely_shared, unknown, gain| {
            verdict(&SharingCounts { all, falsely_shared, unknown, ..SharingCounts::default() }, 0, true, gain)
        };
        assert_eq!(said(0, 0, 0, None), NO_HUGE_PAGES);
        assert_eq!(said(1, 0, 1, None), "not known: the only huge page has fewer than 16 samples");
        assert_eq!(said(2, 0, 2, None), "not known: none of 2 huge pages has 16 samples");
        assert_eq!(said(1, 0, 0, None), "the only huge page is not falsely shared");
        assert_eq!(said(8, 0, 1, None), "none of 8 huge pages is falsely shared");
        let few = "none of the 3 huge pages with 16 samples is falsely shared; 5 have fewer";
        assert_eq!(said(8, 0, 5, None), few);
        assert_eq!(said(1, 1, 0, None), "the only huge page is falsely shared; the gain of small pages is not known");
        assert!(
            said(9, 1, 0, Some(1.5))
                .starts_with("1 of 9 huge pages is falsely shared: with small pages there, on their")
        );
        assert!(
            said(9, 4, 0, Some(1.5))
                .starts_with("4 of 9 huge pages are falsely shared: with small pages there, on their")
        );
        assert!(
            stay_unknown(1, 0.25).starts_with("1 huge page stays unknown, with 25.0 % of the samples: fewer than 16.")
        );
        assert!(
            stay_unknown(2, 0.25)
                .starts_with("2 huge pages stay unknown, with 25.0 % of the samples: fewer than 16 each")
        );
    }
}
