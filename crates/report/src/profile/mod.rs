//! What a trace shows: its verdict, its objects, threads, functions and nodes, advice, one of them in detail, and two
//! traces beside each other.

mod advice;
mod detail;
mod detail_text;
mod facts_text;
mod metrics;
mod nodes;
mod overview;
mod overview_text;
mod pages;
mod ranked;
mod text;
mod timeline;
mod trace_facts;

pub use advice::AdviceRow;
pub use detail::{Detail, DetailReport, Subject};
pub use nodes::{Controller, controllers};
pub use overview::{ProfileReport, Wanted};
pub use pages::{ObjectPages, PageRow};
pub use ranked::{By, FunctionRow, ObjectRow, ProcessRow, Ranked, SiteRow, ThreadRow};
pub use timeline::{Column, Mark, Timeline, TimelineRow};
pub use trace_facts::TraceFacts;
