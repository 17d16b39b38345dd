//! `nearside explore`: a campaign of runs over a grid of programs, machines and settings.

use crate::explore::{BEGUN, Boots, ENDED, Session, openmp_variables, slurm_script};
use crate::interrupt::interrupted;
use crate::options::policy::note;
use crate::options::usage_error::UsageError;
use crate::output;
use crate::output::json;
use clap::Args;
use explore::{Campaign, Cell, Part, Place, Progress, Results, Selector, Store, Unit, UnitOutcome};
use report::{CampaignReport, RunTable, Table, campaign_to_html};
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::available_parallelism;
use tempfile::NamedTempFile;

/// Run a grid of programs, machines and settings, and test published claims on it
///
/// The file describes the campaign: docs/explore.md has its format. Every combination of the grid is a cell. Cells run
/// in rounds, each in another order, until the 95 % interval of each mean is narrow enough. Every run leaves one file
/// below the --into folder, which is complete or missing, so a campaign that was interrupted continues where it was:
/// give the same command again. A cell whose program fails, runs too long or prints no number has failed, which is a
/// result as well.
///
/// Cells run on this machine, or in the lab where the file has an axis `machine`; there, the cells of one machine and
/// one state of its kernel share a boot. On this machine, the axes `balancing` and `huge_pages` change the kernel's
/// settings for the time of a run, which needs root; without it, `balancing = "off"` and `huge_pages = "never"` are
/// done for the program alone, and a note says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside explore campaign.toml --list
  nearside explore campaign.toml --into results --only app=cg,pinning='sequential|sockorder'
  nearside explore campaign.toml --into results --shard 3/16
  nearside explore campaign.toml --into results --slurm 16
  nearside explore campaign.toml --into results --collect --parquet runs.parquet --html page.html

Exit codes: 0 all cells have their runs; 3 they have, and a claim of the file was missed or has no data; 1 a cell failed or has runs left, or the \
system refused; 2 the command line or the file is wrong. Ctrl-C ends the program that runs, restores everything, and reports the runs \
so far.

Environment: programs get that of nearside, without the variables of OpenMP (OMP_, GOMP_, KMP_): those that the file sets are part of \
a cell, and others would change its results unseen. For cells in the lab also as of `nearside lab run`.")]
#[allow(clippy::struct_excessive_bools, reason = "one for each switch of the command line")]
pub struct Arguments {
    /// The campaign: a TOML file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Keep results below this folder, which is created if missing [default: the file's name with .results]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,

    /// Only cells with these labels: AXIS=LABEL, separated by commas; a|b for any of several labels
    #[arg(long, value_name = "AXIS=LABEL,…")]
    only: Vec<String>,

    /// Print the cells and what they have, and run nothing
    #[arg(long, conflicts_with_all = ["collect", "retry", "json", "csv", "parquet", "html", "markdown"])]
    list: bool,

    /// Print the results so far, and run nothing
    #[arg(long, conflicts_with = "retry")]
    collect: bool,

    /// Run cells that failed once more
    #[arg(long)]
    retry: bool,

    /// Only part I of K parts, from 0/K on. Each part gets about as many cells of each label, and of each pair of labels,
    /// as the others
    #[arg(long, value_name = "I/K")]
    shard: Option<Shard>,

    /// Run the campaign as a job array of Slurm with this number of tasks, each a part: write its script into the folder of
    /// results, submit it with sbatch, and end. Give --collect once it has run; submitting it again runs what is left
    #[arg(long, value_name = "TASKS", value_parser = clap::value_parser!(u16).range(1..=MOST_PARTS as i64), conflicts_with_all = ["shard", "collect", "list", "json", "csv", "parquet", "html", "markdown"])]
    slurm: Option<u16>,

    /// Boot up to N virtual machines at the same time [default: half of the CPUs]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Write the results as JSON to this file; - is standard output, in place of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a row for each run to this file, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write a row for each run to this file, as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,

    /// Write a page with tables and pictures to this file: self-contained, in light and dark
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the claims and a table of the times to this file, as Markdown; - is standard output, in place of the tables
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Print nothing as each run ends
    #[arg(long, short)]
    quiet: bool,

    /// In the lab: run these cells, of the campaign with this hash.
    #[arg(long, hide = true, value_name = "HASH")]
    inside: Option<String>,

    /// In the lab: the name of the host.
    #[arg(long, hide = true, value_name = "NAME")]
    host: Option<String>,

    /// In the lab: the cells.
    #[arg(long, hide = true, value_delimiter = ',')]
    cells: Vec<String>,
}

/// Most parts. To divide cells takes time for each cell and part, in each process that runs one.
const MOST_PARTS: usize = 1024;

/// Part `index` of `count`, as [`explore::parts`] divides cells.
#[derive(Clone, Copy, Debug)]
struct Shard {
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number <= MOST_PARTS);
        let numbers = text.split_once('/').and_then(|(index, count)| Some((number(index)?, number(count)?)));
        let shard = numbers.map(|(index, count)| Self { index, count }).filter(|shard| shard.index < shard.count);
        shard.ok_or_else(|| format!("`{text}` is not I/K, such as 0/4 to 3/4, of at most {MOST_PARTS} parts"))
    }
}

/// The cells to run.
struct Chosen<'a> {
    cells: Vec<&'a Cell>,
    /// Which part of the cells with the same labels they are, if only a part is run.
    part: Option<Part>,
}

/// Exit code if a claim was missed, or cannot be judged.
const CONTRADICTED: u8 = 3;

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let campaign = Campaign::load(&arguments.file, model::VERSION).map_err(|error| {
        let more = if arguments.file.exists() { "" } else { ": check its path; docs/explore.md says how to write one" };
        UsageError::boxed(machine::chain(&error) + more)
    })?;
    let Chosen { cells, part } = arguments.chosen(&campaign)?;
    arguments.jobs()?;
    let into = arguments.into.clone().unwrap_or_else(|| arguments.file.with_extension("results"));
    if arguments.files().filter(|file| output::is_output(file)).count() > 1 {
        return Err(UsageError::boxed("only one file can be - for standard output".to_owned()));
    }
    output::check_names(arguments.files().map(PathBuf::as_path))?;
    for file in arguments.files() {
        output::check(file)?;
    }
    if let Some(hash) = &arguments.inside {
        return arguments.inside(&campaign, hash, &into, &cells);
    }
    let reads = arguments.list || arguments.collect;
    let store = if reads { Store::existing(&into) } else { Store::open(&into)? };
    if arguments.list {
        let (results, _) = read(&campaign, &store)?;
        return list(&campaign, &results, &cells);
    }
    if let Some(tasks) = arguments.slurm {
        return arguments.submit(&campaign, &store, &into, &cells, usize::from(tasks));
    }
    let mut boots_failed = Vec::new();
    let mut was_interrupted = false;
    if !arguments.collect {
        let _lock = store.lock(part.as_ref())?;
        (boots_failed, was_interrupted) = arguments.run_all(&campaign, &store, &into, &cells)?;
    }
    // What the runs in the lab left is only in the folder.
    let (results, mut notes) = read(&campaign, &store)?;
    notes.extend(boots_failed);
    if was_interrupted {
        notes.push("Interrupted: these are the runs that had ended.".to_owned());
    }
    arguments.report(&campaign, &results, &cells, notes)
}

impl Arguments {
    /// The files to write.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.json, &self.csv, &self.parquet, &self.html, &self.markdown].into_iter().flatten()
    }

    /// The cells that the options leave.
    fn chosen<'a>(&self, campaign: &'a Campaign) -> Result<Chosen<'a>, Box<dyn Error>> {
        let selectors = self.only.iter().map(|text| Selector::parse(text, &campaign.axes));
        let selectors: Vec<Selector> = selectors.collect::<Result<_, _>>().map_err(UsageError::boxed)?;
        let named: BTreeSet<&str> = self.cells.iter().map(String::as_str).collect();
        let is_named = |cell: &Cell| self.inside.is_none() || named.contains(cell.id.as_str());
        let cells = campaign.cells.iter().filter(|cell| is_named(cell));
        let cells = cells.filter(|cell| selectors.iter().all(|selector| selector.chooses(&cell.labels)));
        let mut cells: Vec<&Cell> = cells.collect();
        if cells.is_empty() {
            return Err(UsageError::boxed("no cell has these labels".to_owned()));
        }
        let part = self.shard.map(|Shard { index, count }| Part::new(&cells, index, count));
        if let Some(Part { index, count, .. }) = part {
            let mut parts = explore::parts(&cells, count).into_iter();
            cells.retain(|_| parts.next() == Some(index));
        }
        Ok(Chosen { cells, part })
    }

    /// Runs what is left, here and in the lab. Returns what failed in the lab, and whether the user interrupted.
    fn run_all(
        &self,
        campaign: &Campaign,
        store: &Store,
        into: &Path,
        cells: &[&Cell],
    ) -> Result<(Vec<String>, bool), Box<dyn Error>> {
        let mut results = self.begun(campaign, store, cells)?;
        let names: Vec<String> = openmp_variables().collect();
        if !names.is_empty() {
            let why = "programs only get those of [environment] in the file, which are part of their cells";
            self.say(&format!("{} of this environment are left out: {why}", names.join(", ")));
        }
        let interrupted = interrupted()?;
        let here: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.place == Place::Here).collect();
        let say = |text: &str| self.say(text);
        let host = host();
        let session = Session { campaign, store, host: &host, interrupted: interrupted.clone(), say: &say };
        if session.run(&here, &mut results)? {
            return Ok((Vec::new(), true));
        }
        let progress = Progress { campaign };
        let is_in_lab = |cell: &&&Cell| cell.place != Place::Here && !progress.is_over(&results, cell);
        let in_lab: Vec<&Cell> = cells.iter().filter(is_in_lab).copied().collect();
        let jobs = self.jobs()?;
        let boots = Boots {
            campaign,
            store,
            file: &self.file,
            into,
            host: &host,
            jobs,
            quiet: self.quiet,
            interrupted: &interrupted,
            say: &say,
        };
        let failed = boots.run(&in_lab, &mut results)?;
        Ok((failed, interrupted.load(Relaxed)))
    }

    /// The results so far, without those of cells that failed if these are run again.
    fn begun(&self, campaign: &Campaign, store: &Store, cells: &[&Cell]) -> Result<Results, Box<dyn Error>> {
        let results = read(campaign, store)?.0;
        if !self.retry {
            return Ok(results);
        }
        let failed = |cell: &&Cell| results.units(&cell.id).iter().filter(|unit| is_failed(unit));
        cells.iter().flat_map(failed).try_for_each(|unit| store.forget(unit))?;
        Ok(read(campaign, store)?.0)
    }

    /// Writes and submits the job array. Each task has the options that choose cells. What failed is forgotten now and not
    /// by the tasks: one that is put back into the queue would repeat what has failed in this submission, too.
    fn submit(
        &self,
        campaign: &Campaign,
        store: &Store,
        into: &Path,
        cells: &[&Cell],
        tasks: usize,
    ) -> Result<ExitCode, Box<dyn Error>> {
        if self.retry {
            let _lock = store.lock(None)?;
            self.begun(campaign, store, cells)?;
        }
        let jobs = self.jobs.map(|jobs| jobs.to_string());
        let only = self.only.iter().flat_map(|labels| ["--only", labels]);
        let options: Vec<OsString> =
            only.chain(jobs.iter().flat_map(|jobs| ["--jobs", jobs])).map(OsString::from).collect();
        let (file, folder) = (fs::canonicalize(&self.file)?, fs::canonicalize(into)?);
        let script = slurm_script(&std::env::current_exe()?, &file, &folder, &options, tasks)?;
        let path = folder.join("campaign.sbatch");
        // Not through a link: the folder may be another user's.
        let write = || {
            let mut file = NamedTempFile::new_in(&folder)?;
            file.write_all(script.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        };
        write().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let submitted = Command::new("sbatch").arg(&path).status();
        let status = submitted
            .map_err(|error| format!("cannot submit {} (sbatch: {error}): is Slurm installed here?", path.display()))?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Virtual machines at the same time: their simulated time makes parallel runs fair, but each needs a core.
    fn jobs(&self) -> Result<usize, Box<dyn Error>> {
        let cores = available_parallelism().map_or(1, usize::from);
        match self.jobs {
            Some(0) => Err(UsageError::boxed("--jobs 0 runs nothing".to_owned())),
            Some(jobs) if jobs > cores => {
                Err(UsageError::boxed(format!("--jobs {jobs} is more than this host's {cores} CPUs")))
            }
            jobs => Ok(jobs.unwrap_or((cores / 2).max(1))),
        }
    }

    /// In the lab: runs cells as a host does, in a folder that is locked by the host's nearside.
    fn inside(
        &self,
        campaign: &Campaign,
        hash: &str,
        into: &Path,
        cells: &[&Cell],
    ) -> Result<ExitCode, Box<dyn Error>> {
        if campaign.hash != hash {
            return Err(format!("{} has changed since the campaign began: run it again", self.file.display()).into());
        }
        let store = Store::open(into)?;
        let mut results = read(campaign, &store)?.0;
        let say = |text: &str| self.say(text);
        let host = self.host.clone().unwrap_or_else(host);
        let session = Session { campaign, store: &store, host: &host, interrupted: interrupted()?, say: &say };
        output::write(BEGUN, None)?;
        let ran = session.run(cells, &mut results);
        output::write(ENDED, None)?;
        let was_interrupted = ran?;
        Ok(if was_interrupted { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }

    fn report(
        &self,
        campaign: &Campaign,
        results: &Results,
        cells: &[&Cell],
        notes: Vec<String>,
    ) -> Result<ExitCode, Box<dyn Error>> {
        let report = CampaignReport::new(campaign, results, cells, notes);
        let table = RunTable::new(campaign, results, cells);
        if let Some(file) = &self.csv {
            output::write_to(&table.to_csv(), file)?;
        }
        if let Some(file) = &self.parquet {
            output::replace(file, |to| table.write_parquet(to).map_err(std::io::Error::other))?;
        }
        if let Some(file) = &self.html {
            output::write_to(&campaign_to_html(&report)?, file)?;
        }
        if let Some(file) = &self.json {
            output::write_to(&json::document(&report)?, file)?;
        }
        if let Some(file) = &self.markdown {
            output::write_to(&report.markdown(), file)?;
        }
        if !self.files().any(|file| output::is_output(file)) {
            output::write(&report.to_string(), None)?;
        }
        Ok(match (report.is_complete(), report.is_contradicted()) {
            (false, _) => ExitCode::FAILURE,
            (true, true) => ExitCode::from(CONTRADICTED),
            (true, false) => ExitCode::SUCCESS,
        })
    }
}

/// The name of this host.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn is_failed(unit: &Unit) -> bool {
    matches!(unit.outcome, UnitOutcome::Failed { .. })
}

/// The results in the folder, and notes about the rest of it.
fn read(campaign: &Campaign, store: &Store) -> Result<(Results, Vec<String>), Box<dyn Error>> {
    let (units, mut notes) = store.read()?;
    let older = units.iter().filter(|unit| unit.campaign != campaign.hash).count();
    let (results, others) = Results::of(campaign, units);
    if others > 0 {
        notes.push(format!(
            "{others} results in the folder are of cells that this file does not have: it has changed, or it is another one"
        ));
    }
    if older > others {
        notes.push(format!(
            "{} runs were made before the last change of the file, which left their cells as they are",
            older - others
        ));
    }
    Ok((results, notes))
}

fn list(campaign: &Campaign, results: &Results, cells: &[&Cell]) -> Result<ExitCode, Box<dyn Error>> {
    let progress = Progress { campaign };
    let mut table = Table::new(["cell", "id", "runs", "state"]);
    for cell in cells {
        let state = match results.failure(&cell.id) {
            Some((why, _)) => why,
            None if progress.is_over(results, cell) => "done",
            None => "to run",
        };
        let runs = results.measured(&cell.id).count().to_string();
        table.row([report::escape_name(&cell.name), cell.id.clone(), runs, report::escape_sentence(state)]);
    }
    let (least, most) = progress.left(results, cells);
    let runs = if least == most { least.to_string() } else { format!("{least} to {most}") };
    output::write(&format!("{table}\n{} cells, {runs} runs left\n", cells.len()), None)?;
    Ok(ExitCode::SUCCESS)
}
