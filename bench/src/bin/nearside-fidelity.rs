//! Runs the experiments, and reports how close the lab's machines are to the real ones.

use bench::{FULL, Machine};
use clap::Parser;
use explore::{Experiment, Observed, Outcome, Page, Section, Session, Suite, Thp, Verdict, evaluate, plan};
use machine::chain;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::NamedTempFile;

/// Limits of host time for a machine with many CPUs to boot on a busy host, and for a command to run, s.
const BOOT_S: u64 = 300;
const RUN_S: u64 = 120;

/// Repeat published measurements of real machines inside virtual ones
///
/// Boots the machines of the experiments, runs their commands, and reports in Markdown how close they are. Numbers that
/// cannot be measured are marked and count as failures; the file is written if any could be measured.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    /// Files of experiments
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only those with this name: an experiment, a file (without .toml) or a preset; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the quick subset
    #[arg(long)]
    quick: bool,
    /// Fail if a number is missed without a reason in its file, or by more than it was
    #[arg(long)]
    check: bool,
    /// Write to this file instead of printing; requires all experiments
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "quick"])]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    bench::exit_code("nearside-fidelity", fidelity(&Arguments::parse()))
}

fn fidelity(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut suites = arguments.files.iter().map(|file| Suite::load(file)).collect::<Result<Vec<_>, _>>()?;
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    for suite in &mut suites {
        let name = suite.name.clone();
        suite.experiments.retain(|experiment| arguments.wants(&name, experiment));
    }
    suites.retain(|suite| !suite.experiments.is_empty());
    if suites.is_empty() {
        return Err("no experiment has such a name: names are those in the files, the files' own, and presets".into());
    }
    let (observed, mut failures) = observe(&plan(suites.iter().flat_map(|suite| &suite.experiments)));
    let mut sections = Vec::new();
    for suite in &suites {
        let mut rows = Vec::new();
        for experiment in &suite.experiments {
            let outcome = evaluate(experiment, &observed);
            if let Err(why) = &outcome {
                failures.push(format!("{}, {}: {why}", experiment.name, experiment.quantity));
            }
            rows.push((experiment, outcome.ok()));
        }
        let (title, about, contradictions) = (&suite.title, &suite.about, &suite.contradictions);
        sections.push(Section { title, about, rows, contradictions });
    }
    let unexplained = |section: &Section<'_>| {
        let unexplained = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Missed | Verdict::Worse);
        section.rows.iter().filter(|(_, outcome)| outcome.as_ref().is_some_and(unexplained)).count()
    };
    let unexplained: usize = sections.iter().map(unexplained).sum();
    let any = sections.iter().flat_map(|section| &section.rows).any(|(_, outcome)| outcome.is_some());
    let page = Page { model_version: model::VERSION, sections };
    match &arguments.output {
        Some(file) if any => write(file, &page.to_string())?,
        _ => print!("{page}"),
    }
    for failure in &failures {
        eprintln!("nearside-fidelity: {failure}");
    }
    if arguments.check && unexplained > 0 {
        eprintln!(
            "nearside-fidelity: {unexplained} numbers are missed, and their files give no reason, or they are further off than they were"
        );
    }
    let good = failures.is_empty() && !(arguments.check && unexplained > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Arguments {
    fn wants(&self, suite: &str, experiment: &Experiment) -> bool {
        let named = |name: &String| [suite, &experiment.name, experiment.value.preset()].contains(&name.as_str());
        (self.only.is_empty() || self.only.iter().any(named)) && (!self.quick || experiment.quick)
    }
}

/// Memory left behind by one command must not deny huge pages to the next.
const COMPACT: &str = "echo 1 > /proc/sys/vm/compact_memory";

/// Runs every session, even if one fails: the others' numbers are still useful.
fn observe(sessions: &[Session]) -> (Observed, Vec<String>) {
    let (mut observed, mut failures) = (Observed::default(), Vec::new());
    for (number, session) in sessions.iter().enumerate() {
        let of = format!("[{}/{}]", number + 1, sessions.len());
        let runs: u64 = session.jobs.iter().map(|job| u64::from(job.repeats)).sum();
        eprintln!("{of} {}: booting", session.boot);
        let machine = Machine {
            machine: session.boot.preset.clone(),
            memory_per_node: session.boot.memory_per_node,
            cpus_per_node: session.boot.cpus_per_node,
            thp: session.boot.thp.map(Thp::name),
            fresh_boot: false,
            fidelity: FULL,
            timeout_s: BOOT_S + RUN_S * runs,
        };
        let (mut begun, mut last) = (0, None);
        let script = session.script(COMPACT);
        let run = machine.run(&["sh", "-c", &script], |line| {
            if let Some(job) = session.begun(line) {
                begun += 1;
                eprintln!("{of} {}: {begun} of {runs}: {}", session.boot, job.command);
                last = Some(job);
            }
        });
        match run {
            Ok(run) => {
                let releases = run.report.measured.clock_releases;
                if releases > 0 {
                    eprintln!(
                        "{of} {}: simulated time was let go {releases} times: figures may depend on the host",
                        session.boot
                    );
                }
                observed.add(session.clone(), &run.printed, run.json);
            }
            Err(bench::Error::Failed { status, said, .. }) => {
                let command = last.map_or("booting", |job| &job.command);
                failures.push(format!("on {}, `{command}` failed: {status}\n{}", session.boot, said.trim_end()));
            }
            Err(why) => failures.push(format!("on {}: {}", session.boot, chain(&why))),
        }
    }
    (observed, failures)
}

/// Writes a file atomically.
fn write(file: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |why: &dyn std::fmt::Display| format!("cannot write {}: {why}", file.display());
    let mut new = NamedTempFile::new_in(folder).map_err(|why| failed(&why))?;
    new.write_all(text.as_bytes()).map_err(|why| failed(&why))?;
    // Unlike temporary files, it must be readable by all users.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(readable).map_err(|why| failed(&why))?;
    new.persist(file).map_err(|why| failed(&why))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
title = "A table"
about = "What it is."
sources = { table = "a study" }
[[experiment]]
name = "one"
preset = "small-2x2"
quantity = "one"
command = "true"
figure = "/x"
published = 1
within = "3 %"
source = "table"
quick = true
[[experiment]]
name = "two"
preset = "small-4x2"
quantity = "two"
command = "true"
figure = "/x"
published = 1
within = "3 %"
source = "table"
"#;

    #[test]
    fn a_part_of_the_experiments_can_be_had() {
        let suite = Suite::from_toml(FILE, Path::new("table.toml")).unwrap();
        let wanted = |arguments: &[&str]| {
            let arguments = Arguments::parse_from([&["nearside-fidelity", "table.toml"], arguments].concat());
            let wanted = suite.experiments.iter().filter(|experiment| arguments.wants(&suite.name, experiment));
            wanted.map(|experiment| experiment.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(wanted(&[]), "one two");
        assert_eq!(wanted(&["--quick"]), "one");
        assert_eq!(wanted(&["--only", "two"]), "two");
        assert_eq!(wanted(&["--only", "small-2x2"]), "one");
        assert_eq!(wanted(&["--only", "table"]), "one two");
        assert_eq!(wanted(&["--only", "tab"]), "");
        assert_eq!(wanted(&["--only", "two", "--quick"]), "");
    }

    #[test]
    fn a_part_is_never_written_where_the_whole_belongs() {
        for part in [&["--quick"][..], &["--only", "one"]] {
            let arguments = [&["nearside-fidelity", "table.toml", "--output", "page.md"], part].concat();
            assert!(Arguments::try_parse_from(arguments).is_err());
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.md");
        write(&file, "old").unwrap();
        write(&file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = write(&folder.path().join("no/page.md"), "new").unwrap_err().to_string();
        assert!(error.starts_with("cannot write ") && error.contains("no/page.md"), "{error}");
    }
}
