//! Turns output into numbers, and numbers into verdicts.

use crate::experiment::{Experiment, Figure, Reading, Value, Verdict};
use crate::extract::numbers;
use crate::plan::{Printed, Session};
use machine::median;
use serde_json::Value as Json;

/// Share of the largest figure that counts as near it: where more CPUs bring less than a tenth, they queue.
const NEAR_THE_LARGEST: f64 = 0.9;

/// The output and the reports of all sessions.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    sessions: Vec<(Session, Printed, Json)>,
}

/// The result of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The measured number, in the experiment's unit.
    pub measured: f64,
    /// How it compares with the published number.
    pub verdict: Verdict,
}

/// Why an experiment has no number.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvaluateError {
    /// Its command was not run.
    #[error("on {}, `{}` was not run", .0.boot, .0.command)]
    NotRun(Box<Reading>),
    /// A run printed no such number, or several.
    #[error(
        "on {}, `{}` should print one number at {}, but printed {found}: {printed}",
        reading.boot, reading.command, reading.figure.pointer()
    )]
    NotOne {
        /// The number to be read.
        reading: Box<Reading>,
        /// How many numbers there were.
        found: usize,
        /// The output.
        printed: String,
    },
}

impl Observed {
    /// Adds the output of a session, and the lab's report of it.
    pub fn add(&mut self, session: Session, text: &str, report: Json) {
        let printed = session.printed(text);
        self.sessions.push((session, printed, report));
    }

    /// The median of a reading over the runs of its command.
    fn read(&self, reading: &Reading) -> Result<f64, EvaluateError> {
        let not_run = || EvaluateError::NotRun(reading.clone().into());
        let not_one = |found, printed| EvaluateError::NotOne { reading: reading.clone().into(), found, printed };
        let reported = matches!(reading.figure, Figure::Reported(_));
        let mut runs = self.sessions.iter().filter(|(session, ..)| session.boot == reading.boot);
        let found = runs.find_map(|(session, printed, report)| {
            let job = session.jobs.iter().position(|job| job.command == reading.command)?;
            (session.reported == reported).then_some((printed.get(job)?, report))
        });
        let (printed, report) = found.ok_or_else(not_run)?;
        let one = |run: &String| match &reading.figure {
            Figure::Reported(pointer) => {
                let number = report.pointer(pointer).and_then(Json::as_f64);
                number.ok_or_else(|| not_one(0, report.to_string()))
            }
            Figure::OnCurve(curve) => curve.value(run).ok_or_else(|| not_one(0, run.clone())),
            Figure::Printed(pointer) => match numbers(run, pointer)[..] {
                [number] => Ok(number),
                ref found => Err(not_one(found.len(), run.clone())),
            },
        };
        let figures = printed.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        median(figures).ok_or_else(not_run)
    }
}

/// Computes the number of an experiment from the observations.
pub fn evaluate(experiment: &Experiment, observed: &Observed) -> Result<Outcome, EvaluateError> {
    let measured = match &experiment.value {
        Value::Alone(reading) => observed.read(reading)?,
        Value::Compared(comparison, one, other) => comparison.of(observed.read(one)?, observed.read(other)?),
        Value::Saturation(readings) => {
            let figures = readings.iter().map(|reading| observed.read(reading)).collect::<Result<Vec<_>, _>>()?;
            let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            1.0 + figures.iter().take_while(|figure| **figure < NEAR_THE_LARGEST * most).count() as f64
        }
    };
    Ok(Outcome { measured, verdict: experiment.verdict(measured) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Boot, Comparison};
    use crate::extract::Curve;
    use crate::plan::plan;
    use crate::tolerance::Within;
    use serde_json::json;

    fn reading(command: &str) -> Reading {
        let boot = Boot { preset: "small".into(), memory_per_node: None, cpus_per_node: None, thp: None };
        Reading { boot, command: command.into(), figure: Figure::Printed("/x".into()) }
    }

    fn experiment(value: Value, repeats: u32, published: f64) -> Experiment {
        Experiment {
            name: "name".into(),
            quantity: "quantity".into(),
            unit: String::new(),
            value,
            repeats,
            published,
            within: Within::Percent(10.0),
            least: None,
            source: String::new(),
            input: false,
            known: None,
            quick: false,
        }
    }

    /// Runs an experiment on this host, whose commands are the text that they print.
    fn run(experiment: &Experiment, report: &Json) -> Result<Outcome, EvaluateError> {
        let mut observed = Observed::default();
        for session in plan([experiment]) {
            let output = std::process::Command::new("sh").args(["-c", &session.script(":")]).output().unwrap();
            observed.add(session, &String::from_utf8(output.stdout).unwrap(), report.clone());
        }
        evaluate(experiment, &observed)
    }

    #[track_caller]
    fn comes_to(value: Value, expected: f64) {
        let outcome = run(&experiment(value, 3, expected), &json!({"x": 5})).unwrap();
        assert!(
            (outcome.measured - expected).abs() < 1e-9 && outcome.verdict == Verdict::Within,
            "{outcome:?} is not {expected}"
        );
    }

    fn printing(number: f64) -> Reading {
        reading(&format!("echo '{{\"x\": {number}}}'"))
    }

    #[test]
    fn a_number_is_read_and_compared() {
        comes_to(Value::Alone(printing(7.5)), 7.5);
        comes_to(Value::Compared(Comparison::Loss, printing(89.0), printing(100.0)), 11.0);
        let reported = Reading { figure: Figure::Reported("/x".into()), ..printing(1.0) };
        comes_to(Value::Compared(Comparison::Ratio, reported, printing(2.0)), 2.5);
    }

    #[test]
    fn a_number_is_read_off_a_curve() {
        let command = "echo '{\"curve\": [{\"x\": 1, \"y\": 10}, {\"x\": 2, \"y\": 20}]}'";
        let [points, x, y] = ["/curve", "/x", "/y"].map(str::to_owned);
        let on = |at| {
            let curve = Curve { points: points.clone(), x: x.clone(), y: y.clone(), at };
            Value::Alone(Reading { figure: Figure::OnCurve(curve), ..reading(command) })
        };
        comes_to(on(1.25), 12.5);
        let beyond = run(&experiment(on(3.0), 1, 1.0), &json!({}));
        assert!(matches!(beyond, Err(EvaluateError::NotOne { found: 0, .. })), "{beyond:?}");
    }

    #[test]
    fn as_few_saturate_as_come_near_the_largest() {
        comes_to(Value::Saturation([3.3, 6.6, 7.5, 7.58].map(printing).to_vec()), 3.0);
        comes_to(Value::Saturation([5.5, 5.6, 5.4].map(printing).to_vec()), 1.0);
    }

    #[test]
    fn the_median_of_several_runs_counts() {
        let file = std::env::temp_dir().join(format!("nearside-explore-{}", std::process::id()));
        let next = format!("echo >> {0}; echo \"{{\\\"x\\\": $(wc -l < {0})}}\"", file.display());
        let outcome = run(&experiment(Value::Alone(reading(&next)), 4, 2.5), &json!({}));
        std::fs::remove_file(&file).unwrap();
        assert!((outcome.unwrap().measured - 2.5).abs() < 1e-9);
    }

    #[test]
    fn missing_output_is_reported() {
        let wrong = |command| run(&experiment(Value::Alone(reading(command)), 1, 1.0), &json!({})).unwrap_err();
        let message = wrong("echo hello").to_string();
        assert!(
            message.contains("on small, `echo hello` should print one number at /x, but printed 0: hello"),
            "{message}"
        );
        assert!(matches!(wrong("printf '{\"x\": 1}\\n{\"x\": 2}\\n'"), EvaluateError::NotOne { found: 2, .. }));
        let nothing = evaluate(&experiment(Value::Alone(printing(1.0)), 1, 1.0), &Observed::default());
        assert!(matches!(nothing, Err(EvaluateError::NotRun(_))));
        let reported = Value::Alone(Reading { figure: Figure::Reported("/y".into()), ..printing(1.0) });
        assert!(matches!(run(&experiment(reported, 1, 1.0), &json!({})), Err(EvaluateError::NotOne { found: 0, .. })));
    }
}
