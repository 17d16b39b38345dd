//! One object, thread, site or function of a trace in detail.

use super::pages::ObjectPages;
use super::ranked::{By, FunctionRow, ObjectRow, Ranked, Ranks, SiteRow, ThreadRow};
use super::site_key::source_of;
use super::timeline::Timeline;
use super::trace_facts::TraceFacts;
use super::without_samples::WithoutSamples;
use profile::{
    Counts, Facts, Frame, LatencyPart, ObjectId, ObjectSummary, Phase, Saturation, SiteId, Tally, ThreadId,
    ThreadSummary, View, saturations,
};
use serde::Serialize;

/// The subject of a detailed report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Subject {
    /// An object.
    Object {
        /// The object.
        #[serde(flatten)]
        summary: Box<ObjectSummary>,
        /// The line of source that allocates it.
        source: Option<String>,
    },
    /// A thread.
    Thread {
        /// The thread.
        #[serde(flatten)]
        summary: ThreadSummary,
        /// How often an access came from another node than the one before.
        node_changes: u64,
    },
    /// A site.
    Site {
        /// Its number.
        site: SiteId,
        /// Its label.
        label: String,
        /// The line of source.
        source: Option<String>,
        /// A call chain that led there, innermost first.
        allocated_from: Vec<Frame>,
        /// Objects that were too small to be recorded one by one.
        small_objects: u64,
        /// Their total size.
        small_bytes: u64,
    },
    /// A function.
    Function {
        /// Its name.
        function: String,
        /// Code locations in it that access memory, with their samples, most first.
        places: Vec<(Frame, u64)>,
    },
}

/// One object, thread, site or function of a trace in detail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DetailReport {
    /// The subject.
    pub subject: Subject,
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// The filter as text; empty for everything.
    pub filter: Vec<String>,
    /// The order of rankings.
    pub by: By,
    /// Its accesses; shares are of everything that the filter selects.
    pub counts: Counts,
    /// Facts about the objects.
    pub facts: Facts,
    /// Accesses by thread over time: for an object or a site.
    pub timeline: Option<Timeline>,
    /// Phases of use: for an object or a site.
    pub phases: Vec<Phase>,
    /// Its pages: for an object or a site.
    pub pages: Option<ObjectPages>,
    /// Its objects.
    pub objects: Ranked<ObjectRow>,
    /// The sites of these objects.
    pub sites: Ranked<SiteRow>,
    /// The threads.
    pub threads: Ranked<ThreadRow>,
    /// The functions.
    pub functions: Ranked<FunctionRow>,
    /// The latency of each node's memory over time.
    pub latency_over_time: Vec<LatencyPart>,
    /// Times in which a node's memory was saturated.
    pub saturated: Vec<Saturation>,
}

/// The extent of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Rows of each ranking, and of pages.
    pub top: usize,
    /// The order of rankings.
    pub by: By,
    /// Rows of the timeline.
    pub rows: usize,
    /// The filter as text.
    pub filter: Vec<String>,
}

impl Subject {
    /// An object; none if the number does not exist.
    pub fn object(view: &View, object: ObjectId) -> Option<Self> {
        let summary = view.profile().object_summary(object)?;
        Some(Self::Object { source: source_of(view.profile(), summary.site), summary: Box::new(summary) })
    }

    /// A thread, from a view of only its accesses; none if the number does not exist.
    pub fn thread(view: &View, thread: ThreadId) -> Option<Self> {
        Some(Self::Thread { summary: view.profile().thread_summary(thread)?, node_changes: view.flow().node_changes() })
    }

    /// A site, from a view of only its accesses; none if the number does not exist.
    pub fn site(view: &View, site: SiteId) -> Option<Self> {
        let profile = view.profile();
        profile.site(site)?;
        let seen = view.objects().first().map(|(object, _)| *object);
        let example = seen.or_else(|| WithoutSamples::of_site(profile, site).iter().next());
        let example = example.and_then(|object| profile.objects().get(object.0 as usize)).map(|object| object.site);
        let small = profile.small_objects().iter().find(|small| small.site == site);
        let example = example.or(small.map(|small| small.chain));
        Some(Self::Site {
            site,
            label: profile.site_label(site),
            source: source_of(profile, site),
            allocated_from: example.map(|chain| profile.frames(chain)).unwrap_or_default(),
            small_objects: small.map_or(0, |small| small.objects),
            small_bytes: small.map_or(0, |small| small.bytes),
        })
    }

    /// A function, from a view of only its accesses.
    pub fn function(view: &View, function: &str, most: usize) -> Self {
        let profile = view.profile();
        let mut places: Vec<(Frame, u64)> =
            view.code().into_iter().filter_map(|(code, tally)| Some((profile.frame(code)?, tally.samples))).collect();
        places.sort_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.offset.cmp(&b.offset)));
        places.truncate(most);
        Self::Function { function: function.to_owned(), places }
    }
}

impl DetailReport {
    /// From a view of only the subject's accesses. `all` is the tally that they are part of.
    pub fn new(subject: Subject, view: &View, all: &Tally, trace: TraceFacts, detail: Detail) -> Self {
        let Detail { top, by, rows, filter } = detail;
        let flow = view.flow();
        let is_object = matches!(subject, Subject::Object { .. } | Subject::Site { .. });
        let without_samples = match &subject {
            Subject::Object { summary, .. } => WithoutSamples::new(view.profile(), |object| object == summary.object),
            Subject::Site { site, .. } => WithoutSamples::of_site(view.profile(), *site),
            Subject::Thread { .. } | Subject::Function { .. } => WithoutSamples::default(),
        };
        let ranks = Ranks { view, by, most: top, all, without_samples: &without_samples };
        let latency_over_time = flow.latency_over_time();
        let facts = flow.facts();
        Self {
            counts: view.tally().counts(all),
            facts: Facts { objects: facts.objects.max(without_samples.len() as u64), ..facts },
            timeline: is_object.then(|| Timeline::new(&flow, rows)),
            phases: if is_object { flow.phases() } else { Vec::new() },
            pages: is_object.then(|| ObjectPages::new(&flow, top)),
            objects: ranks.objects(),
            sites: ranks.sites(),
            threads: ranks.threads(&view.thread_nodes()),
            functions: ranks.functions(),
            saturated: saturations(&latency_over_time),
            latency_over_time,
            subject,
            trace,
            filter,
            by,
        }
    }
}
