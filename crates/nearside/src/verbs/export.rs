//! `nearside export`: the samples of a trace for other tools.

use crate::open_trace::Reading;
use crate::options::trace_filter::FilterOptions;
use crate::output;
use clap::Args;
use profile::{Access, CodeId, Profile};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use trace::{JoinedSample, write_joined_samples};

/// Write the samples of a trace, each with its thread, function and object, for other tools
///
/// Writes one table with a row for each sample, joined with what nearside attributes it to: thread and process by name,
/// function and line, object and allocation site. A join of the tables of a trace by address would be wrong, because
/// addresses are used again. docs/export.md describes the columns. Numbers of objects and sites are those of nearside
/// report. Needs no privileges.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside export trace --parquet samples.parquet
  nearside export trace --remote --user --parquet remote.parquet
  duckdb -c \"SELECT site_label, sum(weight * latency_ns) FROM 'samples.parquet' GROUP BY 1 ORDER BY 2 DESC\"

Exit codes:
  0  all went well
  1  the trace cannot be read, or the file cannot be written; the message says why
  2  the command line is wrong, or names what the trace does not have")]
pub struct Arguments {
    /// The trace: a folder of nearside record, or a perf.data file
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Write a Parquet file; - is standard output
    #[arg(long, value_name = "FILE")]
    parquet: PathBuf,

    #[command(flatten)]
    reading: Reading,

    #[command(flatten)]
    filter: FilterOptions,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { trace, parquet, reading, filter } = arguments;
    output::check(parquet)?;
    let opened = reading.read(trace)?;
    opened.note_losses();
    let profile = opened.profile;
    filter.check(&[&profile])?;
    let view = profile.view(&filter.filter(&profile));
    let names = Names::new(&profile);
    let samples = view.accesses().map(|access| names.joined(&access));
    output::replace(parquet, |file| write_joined_samples(file, samples))?;
    Ok(ExitCode::SUCCESS)
}

/// What is known of a code location.
#[derive(Clone, Default)]
struct CodeNames {
    function: Option<Arc<str>>,
    image: Option<Arc<str>>,
    line: Option<Arc<str>>,
}

/// Texts of a profile, each once.
struct Names<'a> {
    profile: &'a Profile,
    codes: Vec<CodeNames>,
    /// By site.
    labels: Vec<Arc<str>>,
}

impl<'a> Names<'a> {
    fn new(profile: &'a Profile) -> Self {
        let codes = (0..).map_while(|number| profile.code(CodeId(number)));
        let names = |code: &profile::Code| CodeNames {
            function: code.function.as_ref().map(|function| function.name.clone()),
            image: code.file.and_then(|file| Some(profile.file(file)?.name.clone())),
            line: code.function.as_ref().and_then(|function| {
                let source = function.line.as_ref()?;
                Some(format!("{}:{}", source.file, source.line).into())
            }),
        };
        Self {
            profile,
            codes: codes.map(names).collect(),
            labels: profile.site_ids().map(|site| profile.site_label(site).into()).collect(),
        }
    }

    fn joined(&self, access: &Access) -> JoinedSample {
        let Self { profile, codes, labels } = self;
        let thread = &profile.threads()[access.thread.0 as usize];
        let process = &profile.processes()[thread.process.0 as usize];
        let object = &profile.objects()[access.object.0 as usize];
        let CodeNames { function, image, line } = codes.get(access.code.0 as usize).cloned().unwrap_or_default();
        let site = profile.site_of(access.object).map_or(0, |site| site.0);
        JoinedSample {
            time_ns: access.time_ns,
            cpu: access.cpu,
            from: access.from,
            node: access.to,
            remote: access.reaches_memory().then(|| access.is_remote()),
            pid: process.pid,
            process: process.name.clone(),
            tid: thread.tid,
            thread: thread.name.clone(),
            address: access.address,
            physical: access.physical,
            kind: access.kind,
            served: access.served,
            latency_ns: access.latency_ns,
            kernel: access.kernel,
            weight: access.weight,
            source: access.source,
            function,
            image,
            line,
            object: access.object.0,
            object_kind: <&str>::from(object.kind).into(),
            object_address: object.start,
            object_bytes: object.bytes,
            object_from_ns: object.from_ns,
            allocated_by: object.allocated_by.map(|thread| profile.threads()[thread.0 as usize].tid),
            site,
            site_label: labels[site as usize].clone(),
        }
    }
}
