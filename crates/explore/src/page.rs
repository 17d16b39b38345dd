//! Measured numbers next to published ones, in Markdown.

use crate::evaluate::Outcome;
use crate::experiment::{Contradiction, Experiment, Verdict};
use crate::tolerance::Within;
use std::fmt;

/// A page of results. It depends on the numbers only.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The model version that the numbers belong to.
    pub model_version: &'a str,
    /// One section for each suite.
    pub sections: Vec<Section<'a>>,
}

/// The results of a suite, or of a part of it.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Heading.
    pub title: &'a str,
    /// Text below the heading.
    pub about: &'a str,
    /// The results; `None` for a failed measurement.
    pub rows: Vec<(&'a Experiment, Option<Outcome>)>,
    /// Published numbers that contradict each other.
    pub contradictions: &'a [Contradiction],
}

impl Section<'_> {
    /// The number of its inputs or predictions, and how many of them are within their tolerances.
    fn count(&self, input: bool) -> (usize, usize) {
        let rows = self.rows.iter().filter(|(experiment, _)| experiment.input == input);
        let within = |outcome: &Option<Outcome>| outcome.is_some_and(|outcome| outcome.verdict == Verdict::Within);
        (rows.clone().count(), rows.filter(|(_, outcome)| within(outcome)).count())
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |input| {
            let counts = self.sections.iter().map(|section| section.count(input));
            counts.fold((0, 0), |(all, within), section| (all + section.0, within + section.1))
        };
        let ((predictions, predicted), (inputs, shown)) = (count(false), count(true));
        writeln!(
            f,
            "# Fidelity\n\n\
            What programs measure inside the lab's virtual machines, compared with measurements on the real machines. The programs are\n\
            unmodified and know nothing of the model. `make fidelity` writes this page from `experiments/`, model {}.\n\n\
            **{predicted} of {predictions} predictions are within their tolerance of the published numbers**, and {shown} of {inputs} inputs. An\n\
            input is a number that was put into the preset, or that follows from such numbers alone: it shows that the\n\
            model does what the preset says, and no more. Missed numbers are marked 🔴, with the reason if it is known.\n",
            self.model_version,
        )?;
        writeln!(f, "| | predictions | within | inputs | within |\n|---|---|---|---|---|")?;
        for section in &self.sections {
            let ((predictions, predicted), (inputs, shown)) = (section.count(false), section.count(true));
            writeln!(f, "| {} | {predictions} | {predicted} | {inputs} | {shown} |", cell(section.title))?;
        }
        self.sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.about.trim())?;
        writeln!(f, "| preset | quantity | | published | measured in the guest | error | within? | source |")?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for (experiment, outcome) in &self.rows {
            let preset = format!("`{}`", experiment.value.preset());
            let quantity = cell(&experiment.quantity);
            let with_unit = |value| format!("{} {}", number(value), experiment.unit).trim_end().to_owned();
            let published = match experiment.within {
                Within::AtMost if let Some(least) = experiment.least => {
                    format!("{} to {}", number(least), with_unit(experiment.published))
                }
                Within::AtMost => format!("at most {}", with_unit(experiment.published)),
                Within::AtLeast => format!("at least {}", with_unit(experiment.published)),
                _ => with_unit(experiment.published),
            };
            let (measured, error, verdict) = match outcome {
                Some(outcome) => {
                    (with_unit(outcome.measured), error(experiment, outcome), verdict(experiment, outcome))
                }
                None => ("–".to_owned(), String::new(), "🔴 not measured".to_owned()),
            };
            let source = cell(&experiment.source);
            let kind = if experiment.input { "input" } else { "prediction" };
            writeln!(
                f,
                "| {preset} | {quantity} | {kind} | {published} | {measured} | {error} | {verdict} | {source} |"
            )?;
        }
        if !self.contradictions.is_empty() {
            writeln!(f, "\nPublished numbers that contradict each other:\n")?;
        }
        self.contradictions.iter().try_for_each(|note| writeln!(f, "- {} ({})", note.text.trim(), note.source))
    }
}

/// The error of a number, in the units of its tolerance.
fn error(experiment: &Experiment, outcome: &Outcome) -> String {
    let off = outcome.measured - experiment.published;
    match experiment.within {
        Within::Percent(_) => format!("{:+.1} %", off / experiment.published * 100.0),
        Within::Points(_) => format!("{off:+.1} points"),
        Within::Absolute(_) => format!("{}{}", if off < 0.0 { "" } else { "+" }, number(off)),
        Within::AtMost | Within::AtLeast => String::new(),
    }
}

fn verdict(experiment: &Experiment, outcome: &Outcome) -> String {
    let limit = match experiment.within {
        Within::AtMost | Within::AtLeast => String::new(),
        within => format!(" ({within})"),
    };
    let known = experiment.known.as_ref().map(|known| (cell(&known.reason), number(known.was)));
    match (outcome.verdict, known) {
        (Verdict::Within, _) => format!("yes{limit}"),
        (Verdict::Known, Some((reason, _))) => format!("🔴 no{limit}: {reason}"),
        (Verdict::Worse, Some((reason, was))) => format!("🔴 no{limit}, and further off than {was} before: {reason}"),
        (Verdict::Missed | Verdict::Known | Verdict::Worse, _) => format!("🔴 no{limit}"),
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats a number with decimals according to its size.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        1000.0.. => 0,
        10.0.. => 1,
        1.5.. => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Suite;
    use std::path::Path;

    const TEXT: &str = r#"
title = "Table | 1"
about = "What it is."

[sources]
table = "a study, table 1"

[[experiment]]
name = "latency"
preset = "small-2x2"
quantity = "latency, {distance}"
unit = "ns"
command = "chase {node}"
figure = "/mean_ns"
within = "3 %"
source = "table"
reason = "it is far"
each = [
    { distance = "local", node = 0, published = 100, input = true },
    { distance = "remote", node = 1, published = 150, was = 160 },
    { distance = "further", node = 2, published = 200, was = 210 },
]

[[experiment]]
name = "loss"
preset = "small-2x2"
quantity = "loss"
unit = "%"
command = "x"
figure = "/x"
published = 11
within = "8 points"
source = "table"

[[experiment]]
name = "most"
preset = "small-2x2"
quantity = "ratio | at most"
command = "x"
figure = "/x"
published = 2
least = 1.5
within = "at most"
source = "table"

[[experiment]]
name = "failed"
preset = "small-2x2"
quantity = "not available"
command = "x"
figure = "/x"
published = 5
within = "3 %"
source = "table"

[[contradiction]]
text = "100 and 200."
source = "table"
"#;

    #[test]
    fn a_page_is_tables_of_what_was_measured() {
        let suite = Suite::from_toml(TEXT, Path::new("table.toml")).unwrap();
        let measured = [Some(101.0), Some(160.0), Some(240.0), Some(2.0), Some(1.98), None];
        let rows = suite.experiments.iter().zip(measured).map(|(experiment, measured)| {
            let outcome = |measured| Outcome { measured, verdict: experiment.verdict(measured) };
            (experiment, measured.map(outcome))
        });
        let section = Section {
            title: &suite.title,
            about: &suite.about,
            rows: rows.collect(),
            contradictions: &suite.contradictions,
        };
        insta::assert_snapshot!(Page { model_version: "1", sections: vec![section] });
    }

    #[test]
    fn numbers_have_the_decimals_they_deserve() {
        let texts = [7580.4, 104.36, 2.345, 1.4222, 0.5, -0.0001, 3.0].map(number);
        assert_eq!(texts, ["7580", "104.4", "2.35", "1.422", "0.5", "0", "3"]);
    }
}
