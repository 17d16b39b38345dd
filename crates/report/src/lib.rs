//! Every output of nearside: tables for terminals, JSON, pages, pictures, `OpenMetrics`, Perfetto and CSV.

mod agent;
mod assertions;
mod bind;
mod block_change;
mod columns;
mod compare;
mod cure;
mod devices;
mod doctor;
mod escape;
mod explore;
mod family;
mod flamegraph;
mod html;
mod huge_pages;
mod lab;
mod layout;
mod measure;
mod memory;
mod memory_text;
mod migrate;
mod nodes;
mod numactl;
mod openmetrics;
mod page_line;
mod pages;
mod pages_text;
mod perfetto;
mod picture;
mod prevention;
mod process;
mod profile;
mod record;
mod replay;
mod reserve;
mod residence;
mod shell;
mod subsample;
mod table;
mod top;

pub use self::agent::{ExplanationText, PlaceText, StatusMetrics, StatusText, prometheus};
pub use self::explore::table::RunTable;
pub use self::explore::{CampaignReport, CellReport, RankingReport};
pub use self::measure::{MeasureText, measure_svg};
pub use self::profile::{
    AdviceRow, AllocatedBy, AllocationsOfSize, By, Change, Column, Compared, Controller, CpuAccesses,
    Detail as ProfileDetail, DetailReport, DiffReport, FunctionRow, KernelWork, Mark, NextSteps, NodeAccesses,
    NodeChange, ObjectPages, ObjectRow, PageRow, ProcessRow, ProfileReport, Ranked, ServedCounts, Side, SiteChange,
    SiteRow, SiteSide, SmallRow, Subject, ThreadChange, ThreadMoves, ThreadRow, ThreadSide, Timeline, TimelineRow,
    TraceFacts, Wanted, action_words, controllers,
};
pub use assertions::{AssertReport, Assertion, Bound, Limits};
pub use bind::{BindByTraceReport, BindEvent, BindReport, NodeThreads};
pub use block_change::{BlockChange, BlockEvent, BlockState};
pub use compare::{
    CompareReport, Comparison, Estimate, FailedRun, MemoryCounts, OneRun, PolicyRuns, PolicySummary, Simulation,
    Verdict,
};
pub use cure::CureReport;
pub use devices::{DeviceReport, DevicesReport};
pub use doctor::{DoctorReport, Finding};
pub use escape::{escape_json, escape_message, escape_name, escape_sentence, escape_text};
pub use family::Family;
pub use flamegraph::{FlameGraphError, RemoteCost};
pub use html::{campaign_to_html, comparison_to_html, profile_to_html};
pub use huge_pages::{HugePagesReport, HugePagesRow};
pub use lab::{LabReport, Samples, Shake};
pub use layout::Layout;
pub use memory::{CgroupReport, MemoryReport, NodeMemory, NodeUses, ProcessMemory, Rates, Use, is_numa_event};
pub use memory_text::{History, MemoryText};
pub use migrate::{Count, MigrateReport, NodeCount, RefusedThread, StayedPages, Threads};
pub use nodes::{HugetlbReport, NodeReport, NodesReport};
pub use numactl::{HardwareReport, PolicyReport};
pub use openmetrics::OpenMetrics;
pub use page_line::{PAGE_HEADING, PageLine};
pub use pages::{Detail, MappingPages, PagesReport, Run, Traits};
pub use pages_text::{PagesText, pages_svg};
pub use perfetto::profile_to_perfetto;
pub use picture::{HeatMap, MachineText, Place, Strip, heat_maps_to_svg, machine_to_svg, strips_to_svg};
pub use prevention::PreventionReport;
pub use process::{CpusetReport, MappingReport, NodeBytes, ProcessReport, ThreadReport};
pub use record::{LabRecordReport, RecordLoss, RecordReport, RecordSource};
pub use replay::{ReplayDifference, ReplayReport};
pub use reserve::{GrantReport, ReserveReport, facts_to_text, limited_text, service_text};
pub use residence::{Address, Kind, PagesOnNode};
pub use table::Table;
pub use top::{TopKind, TopNode, TopOrder, TopReport, TopRow};
