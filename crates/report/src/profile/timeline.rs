//! Accesses to an object over time, with a column per thread.

use super::text::{LONGEST_NAME, short, time};
use crate::Table;
use crate::layout::Layout;
use profile::{Access, Flow, Profile, ThreadId};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use trace::AccessKind;

/// Most threads with a column of their own.
const COLUMNS: usize = 24;

/// Accesses to an object in chronological order, with a column for each of the threads with the most accesses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Timeline {
    /// The columns, ordered by the threads' first accesses.
    pub columns: Vec<Column>,
    /// Threads without a column.
    pub other_threads: usize,
    /// One row per access, or per interval.
    pub rows: Vec<TimelineRow>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// The TID.
    pub tid: u32,
    /// Its name.
    pub name: Option<String>,
}

/// One access, or those of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineRow {
    /// The first access, ns.
    pub from_ns: u64,
    /// The last, ns.
    pub until_ns: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of remote samples.
    pub remote_samples: u64,
    /// Activity of each column's thread; after the last, that of other threads.
    pub marks: Vec<Mark>,
    /// The function with the most accesses.
    pub function: Option<String>,
}

/// The activity of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Nothing.
    #[default]
    Nothing,
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Both.
    Both,
    /// The source does not report it.
    Unknown,
}

impl Mark {
    fn and(self, kind: AccessKind) -> Self {
        match (self, kind) {
            (Self::Nothing | Self::Unknown | Self::Load, AccessKind::Load) => Self::Load,
            (Self::Nothing | Self::Unknown | Self::Store, AccessKind::Store) => Self::Store,
            (Self::Nothing, AccessKind::Unknown) => Self::Unknown,
            (mark, AccessKind::Unknown) => mark,
            _ => Self::Both,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Nothing => '.',
            Self::Load => 'x',
            Self::Store => '*',
            Self::Both => '#',
            Self::Unknown => 'o',
        }
    }
}

impl Timeline {
    /// For a flow: one row per access if there are at most `rows`; otherwise `rows` intervals, without empty ones.
    pub fn new(flow: &Flow, rows: usize) -> Self {
        let profile = flow.profile();
        let mut counts: HashMap<ThreadId, (u64, usize)> = HashMap::new();
        for (access, at) in flow.accesses().zip(0..) {
            counts.entry(access.thread).or_insert((0, at)).0 += 1;
        }
        let mut threads: Vec<(ThreadId, (u64, usize))> = counts.into_iter().collect();
        threads.sort_by_key(|(thread, (count, _))| (std::cmp::Reverse(*count), *thread));
        let other_threads = threads.len().saturating_sub(COLUMNS);
        threads.truncate(COLUMNS);
        threads.sort_by_key(|(_, (_, first))| *first);
        let column_of: HashMap<ThreadId, usize> = threads.iter().map(|(thread, _)| *thread).zip(0..).collect();
        let columns = threads.iter().filter_map(|(thread, _)| column(profile, *thread)).collect();
        let width = threads.len() + usize::from(other_threads > 0);
        let (Some(first), Some(last)) = (flow.accesses().next(), flow.accesses().next_back()) else {
            return Self { columns, other_threads, rows: Vec::new() };
        };
        let length = ((last.time_ns - first.time_ns) / rows.max(1) as u64).saturating_add(1);
        let each = flow.len() <= rows;
        let mut found: Vec<(usize, Vec<Access>)> = Vec::new();
        for (access, number) in flow.accesses().zip(0..) {
            let part = if each { number } else { ((access.time_ns - first.time_ns) / length) as usize };
            match found.last_mut() {
                Some((known, accesses)) if *known == part => accesses.push(access),
                _ => found.push((part, vec![access])),
            }
        }
        let rows = found.iter().map(|(_, accesses)| row(profile, accesses, &column_of, width)).collect();
        Self { columns, other_threads, rows }
    }
}

fn column(profile: &Profile, thread: ThreadId) -> Option<Column> {
    let summary = profile.thread_summary(thread)?;
    Some(Column { thread, tid: summary.tid, name: summary.name })
}

fn row(profile: &Profile, accesses: &[Access], column_of: &HashMap<ThreadId, usize>, width: usize) -> TimelineRow {
    let mut marks = vec![Mark::Nothing; width];
    let mut codes: HashMap<profile::CodeId, u64> = HashMap::new();
    for access in accesses {
        let column = column_of.get(&access.thread).copied().unwrap_or(width - 1);
        marks[column] = marks[column].and(access.kind);
        *codes.entry(access.code).or_default() += 1;
    }
    let mut functions: HashMap<String, u64> = HashMap::new();
    for (code, count) in codes {
        *functions.entry(profile.function_label(code)).or_default() += count;
    }
    let most = functions.into_iter().max_by(|(a, first), (b, second)| first.cmp(second).then_with(|| b.cmp(a)));
    TimelineRow {
        from_ns: accesses.first().map_or(0, |access| access.time_ns),
        until_ns: accesses.last().map_or(0, |access| access.time_ns),
        samples: accesses.len() as u64,
        remote_samples: accesses.iter().filter(|access| access.is_remote()).count() as u64,
        marks,
        function: most.map(|(function, _)| function),
    }
}

/// A timeline as text. Times are relative to the start.
pub(crate) struct TimelineText<'a> {
    pub timeline: &'a Timeline,
    pub start_ns: u64,
}

impl fmt::Display for TimelineText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timeline { columns, other_threads, rows } = self.timeline;
        let layout = Layout::of(f);
        for (column, letter) in columns.iter().zip('a'..='z') {
            let name = format!("thread {} {}", column.tid, column.name.as_deref().unwrap_or(""));
            f.write_str(&layout.wrapped(&format!("  {letter}  "), &name))?;
        }
        if *other_threads > 0 {
            writeln!(f, "  +  {other_threads} other threads")?;
        }
        writeln!(f, "  x reads, * writes, # both, o unknown\n")?;
        let letters: String =
            ('a'..='z').take(columns.len()).collect::<String>() + if *other_threads > 0 { "+" } else { "" };
        let mut table = Table::default().optional(&[2, 3]);
        table.noted([format!("  {:>12}", "from"), letters, "samples".into(), "remote".into()], "function");
        for TimelineRow { from_ns, samples, remote_samples, marks, function, .. } in rows {
            let marks: String = marks.iter().map(|mark| mark.letter()).collect();
            let from = format!("  {:>12}", time(from_ns.saturating_sub(self.start_ns)));
            let function = short(function.as_deref().unwrap_or(""), LONGEST_NAME);
            table.noted([from, marks, samples.to_string(), remote_samples.to_string()], function);
        }
        f.write_str(&layout.text(&table))
    }
}
