//! What was measured beside what was published, in Markdown.

use crate::evaluate::Outcome;
use crate::experiment::{Contradiction, Experiment};
use crate::tolerance::Within;
use std::fmt;

/// A page of results. It is the same whenever the numbers are.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The version of the model that the numbers belong to.
    pub model_version: &'a str,
    /// One for each suite.
    pub sections: Vec<Section<'a>>,
}

/// What came of a suite, or of a part of it.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// Its heading.
    pub title: &'a str,
    /// What is below the heading.
    pub about: &'a str,
    /// What was measured; nothing where that failed.
    pub rows: Vec<(&'a Experiment, Option<Outcome>)>,
    /// Published numbers that contradict each other.
    pub contradictions: &'a [Contradiction],
}

impl Section<'_> {
    fn missed(&self) -> usize {
        self.rows.iter().filter(|(_, outcome)| !outcome.is_some_and(|outcome| outcome.within)).count()
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: usize = self.sections.iter().map(|section| section.rows.len()).sum();
        let missed: usize = self.sections.iter().map(Section::missed).sum();
        writeln!(
            f,
            "# Fidelity\n\n\
            What programs measure inside the lab's virtual machines, against what was measured on the machines themselves. The programs are\n\
            unmodified and know nothing of the model. `make fidelity` writes this page from `experiments/`, model {}.\n\n\
            **{} of {all} numbers are as near the published ones as they have to be; {missed} are not.** What misses is marked 🔴, with the reason\n\
            where it is known.\n",
            self.model_version,
            all - missed
        )?;
        writeln!(f, "| | numbers | within | missed |\n|---|---|---|---|")?;
        for section in &self.sections {
            let (all, missed) = (section.rows.len(), section.missed());
            writeln!(f, "| {} | {all} | {} | {missed} |", cell(section.title), all - missed)?;
        }
        self.sections.iter().try_for_each(|section| write!(f, "\n{section}"))
    }
}

impl fmt::Display for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n\n{}\n", self.title, self.about.trim())?;
        writeln!(f, "| preset | quantity | published | measured in the guest | error | within? | source |")?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for (experiment, outcome) in &self.rows {
            let preset = format!("`{}`", experiment.value.preset());
            let quantity = cell(&experiment.quantity);
            let with_unit = |value| format!("{} {}", number(value), experiment.unit).trim_end().to_owned();
            let published = match experiment.within {
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
            writeln!(f, "| {preset} | {quantity} | {published} | {measured} | {error} | {verdict} | {source} |")?;
        }
        if !self.contradictions.is_empty() {
            writeln!(f, "\nPublished numbers that contradict each other:\n")?;
        }
        self.contradictions.iter().try_for_each(|note| writeln!(f, "- {} ({})", note.text.trim(), note.source))
    }
}

/// How far off a number is, in the words of its tolerance.
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
    match (&experiment.reason, outcome.within) {
        (_, true) => format!("yes{limit}"),
        (Some(reason), false) => format!("🔴 no{limit}: {}", cell(reason)),
        (None, false) => format!("🔴 no{limit}"),
    }
}

/// Text in one cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A number with as many decimals as its size deserves.
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
    { distance = "local", node = 0, published = 100 },
    { distance = "remote", node = 1, published = 150 },
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
within = "at most"
source = "table"

[[experiment]]
name = "failed"
preset = "small-2x2"
quantity = "what could not be had"
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
        let measured = [Some(101.0), Some(160.0), Some(2.0), Some(1.98), None];
        let rows = suite.experiments.iter().zip(measured).map(|(experiment, measured)| {
            let outcome = |measured| {
                let within = experiment.within.allows(experiment.published, measured);
                Outcome { measured, within }
            };
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
