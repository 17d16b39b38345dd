//! Records programs with a known flaw on a virtual machine, and compares nearside's diagnosis, advice and predicted
//! gain with the known flaw and with the measured gain of its cure.

use bench::{Error, nearside};
use clap::Parser;
use profile::Action;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Two packages of two nodes, 24 CPUs: machine B of the study with these programs.
const MACHINE: &str = "opteron-6164x2";
/// Limit of host time for the machine, including boot, s.
const TIMEOUT_S: u32 = 1800;
/// Maximum difference between predicted and measured gain, hundredths; and as a share of the measured gain, as 15
/// hundredths say nothing of a cure that gains 4.
const NEAR: f64 = 15.0;
const NEAR_SHARE: f64 = 0.75;

/// Diagnose programs with a known flaw on a virtual machine, and compare the advice with the gain of the cure
///
/// Prints a table in Markdown, whose last column says what differs from the study.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Only these programs [default: all]
    #[arg(value_name = "PROGRAM")]
    only: Vec<String>,
    /// Fail if another object is named first, another cure is advised, the predicted gain is more than 15 hundredths
    /// or three quarters of the measured one from it, or interleaving all memory does not compare with the cure as in
    /// the study
    #[arg(long)]
    check: bool,
}

/// A program and its known flaw.
struct Case {
    verb: &'static str,
    options: &'static str,
    /// One in this many events of the virtual PMU is sampled.
    period: u32,
    /// The function that allocates the affected object.
    site: &'static str,
    /// The study's cure.
    action: Action,
    /// The study's result of interleaving all memory instead.
    interleaving: Interleaving,
}

/// The effect of interleaving all memory according to the study (memprof-carrefour.md 10.1 to 10.4).
enum Interleaving {
    /// It gains less than the cure.
    GainsLess,
    /// The program gets slower.
    Loses,
    /// It gains nothing: less than a quarter of what the cure gains.
    GainsNothing,
}

const CASES: [Case; 4] = [
    Case {
        verb: "facerec",
        options: "--size 15M --repeat 2 --pin 0-23",
        period: 200,
        site: "read_basis",
        action: Action::Replicate,
        interleaving: Interleaving::GainsLess,
    },
    Case {
        verb: "streamcluster",
        options: "--size 96M --repeat 4 --pin 0-23",
        period: 500,
        site: "read_block",
        action: Action::Interleave,
        interleaving: Interleaving::GainsLess,
    },
    Case {
        verb: "psearchy",
        options: "--size 96M --repeat 8 --pin 0-23",
        period: 500,
        site: "Block::take",
        action: Action::AllocateLocally,
        interleaving: Interleaving::Loses,
    },
    Case {
        verb: "webserver",
        options: "--size 24M --repeat 2 --pin 0-23",
        period: 500,
        site: "allocate_from_pool",
        action: Action::PinThreads,
        interleaving: Interleaving::GainsNothing,
    },
];

/// Result of a program. Gains are in hundredths: 37 is 37 % faster.
#[derive(Debug, PartialEq)]
struct Diagnosis {
    /// The object named first.
    label: String,
    /// What is advised first, if anything.
    action: Option<Action>,
    predicted: Option<f64>,
    cured: f64,
    interleaved: f64,
}

fn main() -> ExitCode {
    bench::exit_code("nearside-diagnoses", diagnose(&Arguments::parse()))
}

fn diagnose(arguments: &Arguments) -> Result<ExitCode, Error> {
    let wanted = |case: &&Case| arguments.only.is_empty() || arguments.only.iter().any(|name| name == case.verb);
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let nearside = nearside()?;
    let traces = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let script: String = cases.iter().map(|case| case.script(traces.path())).collect();
    let mut run = Command::new(&nearside);
    run.args(["lab", "run", "--quiet", "--numa-balancing", "off", "--machine", MACHINE]);
    run.args(["--timeout", &TIMEOUT_S.to_string(), "--out"]).arg(traces.path()).args(["--", "sh", "-ec", &script]);
    if let Some(folder) = nearside.parent() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
        run.env(
            "PATH",
            std::env::join_paths(paths).map_err(|why| {
                let why = std::io::Error::other(why);
                Error::System { what: "put nearside on PATH".to_owned(), why }
            })?,
        );
    }
    let printed = output_of(&mut run)?;
    let mut lines = printed.lines();
    let mut table =
        "| program | named first | advised | predicted gain | gain of the cure | gain of interleaving all | |\n\
                     |---|---|---|---|---|---|---|\n"
            .to_owned();
    let mut all_right = true;
    for case in cases {
        let mut next = || Worked::from_line(lines.next().unwrap_or_default(), case.verb);
        let [ill, interleaved, cured, recorded] = [next()?, next()?, next()?, next()?];
        let trace = traces.path().join(case.verb);
        let report = |options: &[&str]| {
            let mut report = Command::new(&nearside);
            let printed = output_of(report.args(["report", "--json"]).args(options).arg(&trace))?;
            serde_json::from_str::<Value>(&printed)
                .map_err(|why| Error::Report { command: format!("nearside report --json {}", case.verb), why })
        };
        // Programs time their work only, without filling memory.
        let start_ns = number(&report(&[])?, "/trace/start_ns", case.verb)?;
        let from = (recorded.began_ns - start_ns) / 1e9;
        let report = report(&["--time", &format!("{from}-{}", from + recorded.seconds)])?;
        let gain = |by: &Worked| 100.0 * (ill.seconds / by.seconds - 1.0);
        let diagnosis = Diagnosis::new(&report, gain(&cured), gain(&interleaved));
        let wrong = diagnosis.wrong(case);
        all_right &= wrong.is_empty();
        table += &diagnosis.row(case.verb, &wrong);
    }
    print!("{table}");
    Ok(if all_right || !arguments.check { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a command, with its standard error passed through. Fails unless its exit status is 0.
fn output_of(command: &mut Command) -> Result<String, Error> {
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(Error::system("run nearside"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(Error::Failed { command: format!("{command:?}"), status: output.status.to_string(), said: printed })
}

fn number(json: &Value, path: &str, verb: &str) -> Result<f64, Error> {
    let command = format!("nearside-workloads {verb}");
    let missing = || Error::NoFigure { command, figure: path.to_owned(), said: json.to_string() };
    json.pointer(path).and_then(Value::as_f64).ok_or_else(missing)
}

/// When a program began its work, and for how long it worked, as it reports.
struct Worked {
    began_ns: f64,
    seconds: f64,
}

impl Worked {
    fn from_line(line: &str, verb: &str) -> Result<Self, Error> {
        let json: Value = serde_json::from_str(line)
            .map_err(|why| Error::Report { command: format!("nearside-workloads {verb}"), why })?;
        Ok(Self { began_ns: number(&json, "/began_ns", verb)?, seconds: number(&json, "/seconds", verb)? })
    }
}

impl Case {
    /// Four lines of JSON (unchanged, interleaved, cured, and unchanged while recorded), and a trace.
    fn script(&self, traces: &Path) -> String {
        let program = format!("nearside-workloads {} {} --json", self.verb, self.options);
        let (trace, period) = (traces.join(self.verb).display().to_string(), self.period);
        format!(
            "{program}\nnearside run --interleave all {program}\n{program} --cure\n\
             nearside record --quiet --period {period} -o '{trace}' -- {program}\n"
        )
    }
}

impl Diagnosis {
    fn new(report: &Value, cured: f64, interleaved: f64) -> Self {
        let first = &report["advice"][0];
        let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
        let predicted = first["gain"]["speedup"].as_f64().map(|speedup| 100.0 * (speedup - 1.0));
        let action = serde_json::from_value(first["action"].clone()).ok();
        Self { label: text(&first["label"]), action, predicted, cured, interleaved }
    }

    /// The differences from the study, one word each.
    fn wrong(&self, case: &Case) -> Vec<&'static str> {
        let Self { cured, interleaved, .. } = *self;
        let is_in_order = match case.interleaving {
            Interleaving::GainsLess => interleaved < cured,
            Interleaving::Loses => interleaved < 0.0,
            Interleaving::GainsNothing => interleaved < cured / 4.0,
        };
        let most = NEAR.min(NEAR_SHARE * cured.abs());
        let near = self.predicted.is_some_and(|predicted| (predicted - cured).abs() <= most);
        let checks = [
            ("object", self.label.contains(case.site)),
            ("cure", self.action == Some(case.action)),
            ("prediction", near),
            ("order", is_in_order),
        ];
        checks.into_iter().filter_map(|(what, is_right)| (!is_right).then_some(what)).collect()
    }

    fn row(&self, verb: &str, wrong: &[&str]) -> String {
        let Self { label, action, cured, interleaved, .. } = self;
        let predicted = self.predicted.map_or("none".to_owned(), |predicted| format!("{predicted:+.1} %"));
        let mut row = String::new();
        let action = action.map_or_else(|| "nothing".to_owned(), |action| report::action_words(action).to_lowercase());
        let mark = if wrong.is_empty() { String::new() } else { format!("not as published: {}", wrong.join(", ")) };
        // Writing to a text cannot fail.
        let _ = writeln!(
            row,
            "| {verb} | `{label}` | {action} | {predicted} | {cured:+.1} % | {interleaved:+.1} % | {mark} |"
        );
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_is_compared_with_what_is_known_of_the_program() {
        let [facerec, _, psearchy, webserver] = &CASES;
        let report = |label: &str, action: Action, speedup: f64| {
            let advice = serde_json::json!({ "label": label, "action": action, "gain": { "speedup": speedup } });
            serde_json::json!({ "advice": [advice] })
        };
        let wrong = |report: Value| Diagnosis::new(&report, 26.0, 9.0).wrong(facerec);
        assert!(wrong(report("nearside_workloads::facerec::read_basis+0x1f", Action::Replicate, 1.37)).is_empty());
        assert_eq!(wrong(report("main+0x1f", Action::Replicate, 1.37)), ["object"]);
        assert_eq!(wrong(report("read_basis+0x1f", Action::Interleave, 1.37)), ["cure"]);
        assert_eq!(wrong(report("read_basis+0x1f", Action::Replicate, 1.42)), ["prediction"]);

        let prediction = |predicted: f64| {
            Diagnosis::new(&report(psearchy.site, psearchy.action, predicted), 4.0, -14.0).wrong(psearchy)
        };
        assert!(prediction(1.02).is_empty() && prediction(1.06).is_empty());
        assert_eq!([prediction(1.0), prediction(0.98), prediction(1.1)], [["prediction"]; 3]);

        let order = |case: &Case, cured: f64, interleaved: f64| {
            let report = report(case.site, case.action, 1.0 + cured / 100.0);
            Diagnosis::new(&report, cured, interleaved).wrong(case)
        };
        assert_eq!(order(facerec, 26.0, 27.0), ["order"]);
        assert!(order(psearchy, 7.0, -14.0).is_empty());
        assert_eq!(order(psearchy, 7.0, 1.0), ["order"]);
        assert!(order(webserver, 20.0, 1.0).is_empty());
        assert_eq!(order(webserver, 20.0, 6.0), ["order"]);

        let nothing = Diagnosis::new(&serde_json::json!({ "advice": [] }), 26.0, 9.0);
        assert_eq!(nothing.wrong(facerec), ["object", "cure", "prediction"]);
        assert_eq!(
            nothing.row("facerec", &["object", "cure"]),
            "| facerec | `nothing` | nothing | none | +26.0 % | +9.0 % | not as published: object, cure |\n"
        );
    }
}
