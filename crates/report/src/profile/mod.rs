//! Reports of a trace: its verdict, objects, threads, functions and nodes, advice, details, and the comparison of two
//! traces.

pub(crate) mod advice;
mod change;
mod cpu_accesses;
mod detail;
mod detail_text;
mod diff;
mod diff_text;
pub(crate) mod facts_text;
mod kernel_work;
pub(crate) mod metrics;
mod next_steps;
pub(crate) mod nodes;
mod overview;
pub(crate) mod overview_text;
mod pages;
mod ranked;
pub(crate) mod rankings_text;
pub(crate) mod site_key;
pub(crate) mod text;
mod timeline;
pub(crate) mod trace_facts;
mod without_samples;

pub use advice::{AdviceRow, words as action_words};
pub use change::Change;
pub use cpu_accesses::{CpuAccesses, NodeAccesses, ServedCounts};
pub use detail::{Detail, DetailReport, Subject};
pub use diff::{Compared, DiffReport, NodeChange, Side, SiteChange, SiteSide, ThreadChange, ThreadSide};
pub use kernel_work::{AllocationsOfSize, KernelWork, ThreadMoves};
pub use next_steps::NextSteps;
pub use nodes::{Controller, controllers};
pub use overview::{ProfileReport, Wanted};
pub use pages::{ObjectPages, PageRow};
pub use ranked::{AllocatedBy, By, FunctionRow, ObjectRow, ProcessRow, Ranked, SiteRow, SmallRow, ThreadRow};
pub use timeline::{Column, Mark, Timeline, TimelineRow};
pub use trace_facts::TraceFacts;
