//! What a trace shows: its verdict, its objects, threads, functions and nodes, advice, one of them in detail, and two
//! traces beside each other.

pub(crate) mod advice;
mod detail;
mod detail_text;
pub(crate) mod facts_text;
pub(crate) mod metrics;
mod nodes;
mod overview;
pub(crate) mod overview_text;
mod pages;
mod ranked;
pub(crate) mod text;
mod timeline;
pub(crate) mod trace_facts;

pub use advice::AdviceRow;
pub use detail::{Detail, DetailReport, Subject};
pub use nodes::{Controller, controllers};
pub use overview::{ProfileReport, Wanted};
pub use pages::{ObjectPages, PageRow};
pub use ranked::{By, FunctionRow, ObjectRow, ProcessRow, Ranked, SiteRow, ThreadRow};
pub use timeline::{Column, Mark, Timeline, TimelineRow};
pub use trace_facts::TraceFacts;
