//! Plans which virtual machines to boot, and what to run on each. Each command runs once, however many experiments
//! read it.

use crate::experiment::{Boot, Experiment, Figure};
use std::fmt::Write;

/// Start of the line that a script prints before each run of a command.
const MARK: &str = "=== nearside experiment ";

/// A virtual machine, and the jobs that it runs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The machine.
    pub boot: Boot,
    /// Whether the lab's report is read. The session then has one job.
    pub reported: bool,
    /// The jobs.
    pub jobs: Vec<Job>,
}

/// A command that is run a number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The shell command.
    pub command: String,
    /// Number of runs.
    pub repeats: u32,
}

/// The output of the jobs of a session: for each job, that of each run.
pub type Printed = Vec<Vec<String>>;

/// Plans one session per machine, and another for each command whose report is read.
pub fn plan<'a>(experiments: impl IntoIterator<Item = &'a Experiment>) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    for experiment in experiments {
        for reading in experiment.value.readings() {
            let reported = matches!(reading.figure, Figure::Reported(_));
            let same_job = |job: &Job| job.command == reading.command;
            let fits = |session: &&mut Session| {
                let same = session.boot == reading.boot && session.reported == reported;
                same && (!reported || session.jobs.iter().any(same_job))
            };
            let job = Job { command: reading.command.clone(), repeats: experiment.repeats };
            match sessions.iter_mut().find(fits) {
                None => sessions.push(Session { boot: reading.boot.clone(), reported, jobs: vec![job] }),
                Some(session) => match session.jobs.iter_mut().find(|job| same_job(job)) {
                    None => session.jobs.push(job),
                    Some(known) => known.repeats = known.repeats.max(job.repeats),
                },
            }
        }
    }
    sessions.sort_by(|a, b| (&a.boot, a.reported).cmp(&(&b.boot, b.reported)));
    sessions
}

impl Session {
    /// A shell script that runs all jobs, each after the command `first`, and stops at the first failure.
    pub fn script(&self, first: &str) -> String {
        let mut script = String::new();
        for (number, job) in self.jobs.iter().enumerate() {
            for _ in 0..job.repeats {
                // Writing to a string cannot fail. The mark starts on a new line, whatever the previous command
                // printed last.
                let _ = writeln!(script, "{first}\nprintf '\\n{MARK}{number}\\n'\n(\n{}\n) || exit", job.command);
            }
        }
        script
    }

    /// The job that starts at a line of the script's output.
    pub fn begun(&self, line: &str) -> Option<&Job> {
        self.jobs.get(number_of(line)?)
    }

    /// Splits the script's output into the output of each run of each job.
    pub fn printed(&self, text: &str) -> Printed {
        let mut printed: Printed = vec![Vec::new(); self.jobs.len()];
        let mut current = None;
        for line in text.split_inclusive('\n') {
            if let Some(number) = number_of(line).filter(|number| *number < printed.len()) {
                current = Some(number);
                printed[number].push(String::new());
            } else if let Some(run) = current.and_then(|number| printed[number].last_mut()) {
                run.push_str(line);
            }
        }
        printed
    }
}

fn number_of(line: &str) -> Option<usize> {
    line.strip_prefix(MARK)?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Comparison, Reading, Value};
    use crate::tolerance::Within;
    use proptest::prelude::*;

    fn reading(preset: &str, command: &str, reported: bool) -> Reading {
        let boot = Boot { preset: preset.into(), memory_per_node: None, cpus_per_node: None, thp: None };
        let figure = if reported { Figure::Reported } else { Figure::Printed };
        Reading { boot, command: command.into(), figure: figure("/x".into()) }
    }

    fn experiment(value: Value, repeats: u32) -> Experiment {
        Experiment {
            name: "name".into(),
            quantity: String::new(),
            unit: String::new(),
            value,
            repeats,
            published: 1.0,
            within: Within::AtMost,
            source: String::new(),
            least: None,
            input: false,
            known: None,
            quick: false,
        }
    }

    fn job(command: &str, repeats: u32) -> Job {
        Job { command: command.into(), repeats }
    }

    #[test]
    fn a_machine_boots_once_and_a_command_runs_once() {
        let experiments = [
            experiment(Value::Alone(reading("b", "one", false)), 1),
            experiment(Value::Compared(Comparison::Ratio, reading("b", "two", false), reading("a", "one", false)), 1),
            experiment(Value::Saturation(vec![reading("b", "one", false), reading("b", "three", false)]), 3),
        ];
        let sessions = plan(&experiments);
        let of = |session: &Session| (session.boot.preset.clone(), session.jobs.clone());
        let b = vec![job("one", 3), job("two", 1), job("three", 3)];
        assert_eq!(sessions.iter().map(of).collect::<Vec<_>>(), [("a".into(), vec![job("one", 1)]), ("b".into(), b)]);
    }

    #[test]
    fn a_command_whose_report_is_read_has_a_machine_for_itself() {
        let experiments = [
            experiment(Value::Alone(reading("a", "one", true)), 1),
            experiment(Value::Alone(reading("a", "two", true)), 1),
            experiment(Value::Compared(Comparison::Ratio, reading("a", "one", true), reading("a", "one", false)), 2),
        ];
        let of = |session: Session| (session.reported, session.jobs);
        let sessions: Vec<_> = plan(&experiments).into_iter().map(of).collect();
        assert_eq!(sessions, [(false, vec![job("one", 2)]), (true, vec![job("one", 2)]), (true, vec![job("two", 1)])]);
    }

    #[test]
    fn output_of_a_shell_is_split() {
        let jobs = vec![job("echo a; echo b", 2), job("printf c", 1), job("true", 1)];
        let session = Session { boot: reading("a", "", false).boot, reported: false, jobs };
        let run = |script| {
            let output = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        let (success, text) = run(&session.script(":"));
        assert!(success);
        let runs = [vec!["a\nb\n\n".to_owned(), "a\nb\n\n".into()], vec!["c\n".into()], vec![String::new()]];
        assert_eq!(session.printed(&text), runs);
        assert_eq!(text.lines().filter_map(|line| session.begun(line)).count(), 4);
    }

    #[test]
    fn a_script_ends_with_what_fails() {
        let jobs = vec![job("echo a; false", 1), job("echo b", 1)];
        let session = Session { boot: reading("a", "", false).boot, reported: false, jobs };
        let output = std::process::Command::new("sh").args(["-c", &session.script(":")]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout), (Some(1), b"\n=== nearside experiment 0\na\n".to_vec()));
    }

    proptest! {
        #[test]
        fn nothing_printed_makes_it_panic(text in "(=== nearside experiment )?.*\n*[0-9]*.*") {
            let session = Session { boot: reading("a", "", false).boot, reported: false, jobs: vec![job("x", 1)] };
            session.printed(&text);
        }
    }
}
