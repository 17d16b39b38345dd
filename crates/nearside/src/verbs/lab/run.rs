//! `nearside lab run`: one command on a virtual machine.

use super::machine_options::{MachineOptions, Switch};
use super::sample_line::SampleLine;
use super::terminal::{Raw, expected_boot_s, progress_line};
use crate::options::policy::note;
use crate::output;
use crate::output::json;
use clap::Args;
use lab::protocol::{Shaken, Task};
use lab::setup::Assets;
use lab::{Event, LabError, Outcome, Run, Shape, Stage};
use model::Model;
use report::{LabRecordReport, LabReport, RecordReport, Samples, Shake};
use rustix::fs::{Access, Mode, access};
use rustix::process::{getgid, getgroups, getuid, umask};
use rustix::termios::tcgetattr;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run a command on a virtual NUMA machine
///
/// The command runs with this working directory, environment and user, and sees this host's files. Standard input,
/// output and error are connected; its exit status is passed on. It can read what you can read; what it writes is
/// discarded when it ends, except files in the --out folder. There is no network but loopback. Ctrl-C ends it at once.
///
/// Afterwards a table on standard error shows what the memory of the virtual machine did.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  nearside lab run --machine opteron-6164x2 -- numactl --hardware
  nearside lab run --machine opteron-6164x2 -- numactl --cpunodebind=0 --membind=3 ./my-program
  nearside lab run --machine small-4x2 --numa-balancing off --json report.json -- make check
  nearside lab run --machine small-4x2 --shake 7 -- make check
  nearside lab run --machine ./my-machine.toml --shell

Exit codes: the command's own; 128 + n when signal n ended it. Nearside's own: 124 --timeout expired, 125 the lab failed, \
126 the command cannot be run, 127 there is no such command, 128 + n when signal n ended nearside, 2 the command line is wrong.

Environment: NEARSIDE_QEMU, NEARSIDE_KERNEL, NEARSIDE_KERNEL_DIR (see `nearside lab setup --help`), NEARSIDE_PLUGIN (the plugin's file, where it is \
not installed beside nearside).")]
pub struct Arguments {
    #[command(flatten)]
    pub options: MachineOptions,

    /// Run the command as root of the virtual machine. It still reads only what you can read
    #[arg(long)]
    pub as_root: bool,

    /// Move threads of the command to other nodes for 10 ms each, within the CPUs that they may use, and pages that have no
    /// policy; SEED decides which. Finds code that assumes that they stay. The report says what was moved
    #[arg(long, value_name = "SEED")]
    pub shake: Option<u64>,

    /// Keep the files that the command writes below this folder, which is created if missing; on this host only you may
    /// read them, and execute the programs among them
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Give the command a terminal instead of three streams; without a command, run your shell
    #[arg(long)]
    pub shell: bool,

    /// Write the report as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Print no report and no progress on standard error
    #[arg(long, short)]
    pub quiet: bool,

    /// Set if the command is a recording, which has no table.
    #[arg(skip)]
    pub recording: Option<Recording>,

    /// Sample one in N first-level cache misses and first writes to read-only lines, on each CPU
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "samples", value_parser = clap::value_parser!(u64).range(1..))]
    pub sample_period: u64,

    /// Write samples to this file, one JSON object per line: time, CPU, pid, tid, thread name, instruction, virtual and
    /// physical address, node, cache level (4 is memory, 5 another core's or node's cache), latency, the part of it that
    /// the core waited, load or store
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "shell")]
    pub command: Vec<OsString>,
}

impl Arguments {
    /// The files to write.
    fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.json, &self.samples].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Set if the command is `nearside record`.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file below the kept folder that it writes its own report to, if one was requested.
    pub report: Option<PathBuf>,
}

impl Recording {
    /// The recording's report; `None` if it failed. Removes the file, which is not part of a trace.
    fn take_report(&self) -> Result<Option<RecordReport>, Box<dyn Error>> {
        let Some(path) = &self.report else { return Ok(None) };
        let failed = |what| move |why| LabError::File { what, path: path.clone(), why };
        let text = match fs::read_to_string(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read"))?,
        };
        fs::remove_file(path).map_err(failed("remove"))?;
        Ok(Some(serde_json::from_str(&text)?))
    }
}

/// Exit code of failures that are not the command's own; commands seldom use it.
pub const FAILED: u8 = 125;

pub fn run(arguments: &Arguments) -> ExitCode {
    prepare_and_run(arguments).unwrap_or_else(|error| {
        match error.downcast_ref::<LabError>() {
            // The guest has the host's files and its PATH.
            Some(LabError::NotStarted { command, why }) => {
                let why = linux::why_not_started(command.as_ref(), why);
                crate::print_error(&*Box::<dyn Error>::from(format!("cannot run `{command}` in the lab: {why}")));
            }
            _ => crate::print_error(error.as_ref()),
        }
        let status = error.downcast_ref::<LabError>().map_or(FAILED.into(), LabError::status);
        ExitCode::from(u8::try_from(status).unwrap_or(FAILED))
    })
}

fn prepare_and_run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    output::check_names(arguments.files())?;
    let shape = arguments.options.shape()?;
    // Before the model is made, which allocates some memory per line of the machine's.
    lab::check_memory(&shape)?;
    // What the model cannot simulate is known before anything boots.
    Model::new(&shape.machine, &shape.memory, &arguments.options.mechanisms())?;
    let assets = Assets::find(arguments.options.kernel.as_ref()).map_err(LabError::from)?;
    let cpus_note = arguments.options.cpus_per_node.and_then(|asked| shape.cpus_note(asked));
    for text in
        [cpus_note, shape.numbering_note(), shape.cache_note()].into_iter().flatten().filter(|_| !arguments.quiet)
    {
        note(&text);
    }
    // Files are checked before the machine boots, so that a mistake costs no time, and keep their contents until it has booted.
    let out = checked_outputs(arguments)?;
    let mut samples = arguments.samples.as_deref().map(SampleFile::new);
    if arguments.shell {
        tcgetattr(io::stdin()).map_err(|why| no_terminal(why.into()))?;
    }
    let run = Run {
        task: task(arguments, out.as_deref(), shape.machine.to_toml()?)?,
        shape,
        kernel_modules: arguments.options.kernel_modules(&assets.kernel_version)?,
        fresh_boot: arguments.options.fresh_boot,
        mechanisms: arguments.options.mechanisms(),
        timeout: arguments.options.timeout.map(Duration::from_secs),
        asks_to_end: arguments.recording.is_some(),
    };
    let (mut outcome, seen) = boot_and_run(&assets, &run, arguments, samples.as_mut())?;
    let cut_short = outcome.cut_short.take();
    lab::default_signals()?;
    if let Some(process) = &outcome.out_of_memory {
        let more = "give the machine more with --memory-per-node";
        let _ = writeln!(io::stderr(), "nearside: the guest ran out of memory and killed process {process}: {more}");
    }
    if let (true, Some(out)) = (seen.writer_killed, &out) {
        let out = out.display();
        let _ = writeln!(
            io::stderr(),
            "nearside: a process was killed while it wrote to {out}: its last data may be missing"
        );
    }
    let report = report(arguments, &run, &assets, &outcome, seen);
    if !arguments.quiet && arguments.recording.is_none() {
        let _ = write!(io::stderr(), "\n{report}");
    }
    if let Some(json) = &arguments.json {
        let text = match &arguments.recording {
            None => json::document(&report)?,
            Some(recording) => {
                let recording = recording.take_report()?;
                json::document(&LabRecordReport { run: &report, recording: recording.as_ref() })?
            }
        };
        output::write_to(&text, json)?;
    }
    // Last, so that the rest of the run's results is there even where the samples found no room.
    if let Some(samples) = samples {
        samples.finish()?;
    }
    match cut_short {
        Some(why) => Err(why.into()),
        None => Ok(ExitCode::from(u8::try_from(report.exit_status & 0xff)?)),
    }
}

/// What a run reported besides its outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Samples written.
    samples: usize,
    shaken: Option<Shaken>,
    writer_killed: bool,
}

fn boot_and_run(
    assets: &Assets,
    run: &Run,
    arguments: &Arguments,
    mut samples: Option<&mut SampleFile>,
) -> Result<(Outcome, Seen), Box<dyn Error>> {
    let mut line = (!arguments.quiet).then(progress_line);
    let mut raw = None;
    let mut seen = Seen::default();
    let outcome = lab::run(assets, run, &mut |event| match event {
        Event::Stage(Stage::Continuing) => {
            if let Some(line) = &line {
                line.set_message("starting the virtual machine");
            }
        }
        Event::Stage(Stage::Booting) => {
            let cpus = run.shape.machine.cpus().len();
            let expected = expected_boot_s(cpus);
            let text = format!("booting the virtual machine of {cpus} CPUs, which takes about {expected:.0} s");
            if let Some(line) = &line {
                line.set_message(text);
            }
        }
        Event::Stage(Stage::Preparing) => line.iter().for_each(|line| line.set_message("starting the command")),
        // From here on the terminal belongs to the command. Before, nearside handles Ctrl-C.
        Event::Stage(Stage::Running) => {
            if let Some(line) = line.take() {
                line.finish_and_clear();
            }
            raw = arguments.shell.then(Raw::enter);
            if let Some(file) = &mut samples {
                file.open();
            }
        }
        Event::Sample(sample) => {
            let written = samples.as_mut().is_some_and(|file| file.write(&SampleLine::from(&sample)));
            seen.samples += usize::from(written);
        }
        Event::Shaken(shaken) => seen.shaken = Some(shaken),
        Event::WriterKilled => seen.writer_killed = true,
    });
    drop(raw);
    Ok((outcome?, seen))
}

fn task(arguments: &Arguments, out: Option<&Path>, machine: String) -> Result<Task, LabError> {
    let host = |what| move |why: io::Error| LabError::Host { what, why };
    let groups = getgroups().map_err(|why| host("list this user's groups")(why.into()))?;
    let groups = groups.into_iter().map(rustix::process::Gid::as_raw);
    let mut command = arguments.command.clone();
    if command.is_empty() {
        command.push(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()));
    }
    Ok(Task {
        command,
        environment: std::env::vars_os().collect(),
        directory: std::env::current_dir().map_err(host("find out the working directory"))?.into(),
        umask: current_umask(),
        uid: if arguments.as_root { 0 } else { getuid().as_raw() },
        gid: if arguments.as_root { 0 } else { getgid().as_raw() },
        groups: groups.filter(|_| !arguments.as_root).collect(),
        terminal: if arguments.shell { lab::terminal_size().or(Some((24, 80))) } else { None },
        machine,
        out: out.map(Into::into),
        numa_balancing: arguments.options.numa_balancing.map(|switch| switch == Switch::On),
        transparent_huge_pages: arguments.options.thp.map(|mode| format!("{mode:?}").to_lowercase()),
        time_scale: arguments.options.time_scale,
        sample_period: if arguments.samples.is_some() { arguments.sample_period } else { 0 },
        sample_names: true,
        shake: arguments.shake,
    })
}

/// The umask can only be read by setting it.
fn current_umask() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    mask.as_raw_mode()
}

/// Folders that are always the guest's own.
const GUEST_FOLDERS: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Checks the files and the folder to write. Returns the folder, which is made, as files may be in it.
fn checked_outputs(arguments: &Arguments) -> Result<Option<PathBuf>, Box<dyn Error>> {
    let is_new = arguments.out.as_ref().is_some_and(|folder| !folder.exists());
    let out = arguments.out.as_deref().map(out_folder).transpose()?;
    arguments.files().try_for_each(output::check).inspect_err(|_| {
        if let Some(made) = out.as_ref().filter(|_| is_new) {
            // Nothing is in it yet; the error is the one to report.
            let _ = fs::remove_dir(made);
        }
    })?;
    Ok(out)
}

/// The folder whose files come back, as an absolute path.
fn out_folder(folder: &Path) -> Result<PathBuf, LabError> {
    let failed = |what| move |why: io::Error| LabError::File { what, path: folder.to_owned(), why };
    trace::create_private_folder(folder).map_err(failed("make the folder"))?;
    let found = std::fs::canonicalize(folder).map_err(failed("find the folder"))?;
    access(&found, Access::WRITE_OK | Access::EXEC_OK).map_err(|why| failed("write to the folder")(why.into()))?;
    let hides = GUEST_FOLDERS.iter().any(|own| Path::new(own).starts_with(&found));
    if hides || ["/proc", "/sys"].iter().any(|own| found.starts_with(own)) {
        let why = "the guest has /dev, /proc, /run and /sys of its own; name another folder";
        return Err(failed("use the output folder")(io::Error::other(why)));
    }
    Ok(found)
}

/// The file of samples, which is filled while the command runs. After the first error nothing more is written.
struct SampleFile {
    path: PathBuf,
    to: io::Result<Box<dyn Write>>,
}

impl SampleFile {
    /// `-` is standard output. Nothing is created yet.
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), to: Ok(Box::new(io::sink())) }
    }

    fn open(&mut self) {
        self.to = if output::is_output(&self.path) {
            Ok(Box::new(io::stdout()))
        } else {
            trace::create_private_file(&self.path).map(|file| Box::new(BufWriter::new(file)) as Box<dyn Write>)
        };
    }

    /// Writes a line. Returns whether that has succeeded so far.
    fn write(&mut self, sample: &SampleLine) -> bool {
        let Ok(to) = &mut self.to else { return false };
        let written = serde_json::to_string(sample).map_err(io::Error::other).and_then(|line| writeln!(to, "{line}"));
        let failed = written.err();
        let has_written = failed.is_none();
        if let Some(why) = failed {
            self.to = Err(why);
        }
        has_written
    }

    fn finish(self) -> Result<(), LabError> {
        let flushed = self.to.and_then(|mut to| to.flush());
        flushed.map_err(|why| LabError::File { what: "write", path: self.path, why })
    }
}

fn no_terminal(why: io::Error) -> LabError {
    LabError::Host { what: "use standard input as a terminal, which --shell needs", why }
}

fn report(arguments: &Arguments, run: &Run, assets: &Assets, outcome: &Outcome, seen: Seen) -> LabReport {
    let Shape { machine, .. } = &run.shape;
    LabReport {
        simulated: true,
        machine: machine.name.clone(),
        model_version: model::VERSION.into(),
        model_without: run.mechanisms.missing(),
        time_scale: arguments.options.time_scale,
        cpus: machine.cpus().len(),
        memory_bytes: machine.nodes.iter().map(|node| node.memory_bytes).collect(),
        kernel: assets.kernel_version.clone(),
        kernel_modules: arguments.options.kernel_module.iter().map(ToString::to_string).collect(),
        command: run.task.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
        exit_status: outcome.ended.status(),
        boot_s: outcome.boot.as_secs_f64(),
        saved_boot: outcome.saved_boot,
        host_s: outcome.ran.as_secs_f64(),
        samples: arguments.samples.as_ref().map(|_| Samples {
            period: arguments.sample_period,
            taken: seen.samples,
            dropped: outcome.samples_dropped,
        }),
        shake: arguments.shake.zip(seen.shaken).map(|(seed, shaken)| Shake {
            seed,
            rounds: shaken.rounds,
            thread_moves: shaken.thread_moves,
            pages_moved: shaken.pages_moved,
        }),
        measured: outcome.measured.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parsed(words: &[&str]) -> Arguments {
        let command = Arguments::augment_args(clap::Command::new("run"));
        let words = ["run", "--machine", "small-2x2"].iter().chain(words).chain(&["--", "true"]);
        Arguments::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn a_folder_that_was_made_is_removed_where_a_file_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let [out, inside] = [&kept, &kept.join("report")].map(|path| path.to_str().unwrap().to_owned());
        let checked = |json: &str| checked_outputs(&parsed(&["--out", &out, "--json", json]));
        assert!(checked("/no/such/file").is_err() && !kept.exists());
        assert_eq!(checked(&inside).unwrap(), Some(kept.canonicalize().unwrap()));
        assert!(checked("/no/such/file").is_err() && kept.exists(), "a folder that was there stays");
    }

    #[test]
    fn two_outputs_are_two_files() {
        for file in ["-", "report"] {
            assert!(output::check_names(parsed(&["--json", file, "--samples", file]).files()).is_err(), "{file}");
        }
        assert!(output::check_names(parsed(&["--json", "-", "--samples", "report"]).files()).is_ok());
    }
}
