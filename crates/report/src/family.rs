//! A metric in the text form of `OpenMetrics` 1.0, which Prometheus and others read.

use std::fmt::{self, Display, Write};

/// Samples of one metric, which must be adjacent.
#[derive(Clone, Debug)]
pub struct Family {
    heading: String,
    name: String,
    samples: String,
}

impl Family {
    /// A metric: a `counter`, `gauge` or `info`. Its name includes its unit.
    pub fn begin(name: &str, kind: &str, help: &str) -> Self {
        let mut heading = format!("# TYPE {name} {kind}\n");
        if let Some(unit) = ["bytes", "seconds", "ratio"].into_iter().find(|unit| name.ends_with(&format!("_{unit}"))) {
            let _ = writeln!(heading, "# UNIT {name} {unit}");
        }
        let _ = writeln!(heading, "# HELP {name} {help}");
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        Self { heading, name: format!("{name}{suffix}"), samples: String::new() }
    }

    /// Adds a value.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // Writing to a String cannot fail.
        let _ = writeln!(self.samples, "{}{labels} {value}", self.name);
    }

    /// Writes the metric, unless it has no samples.
    pub fn end(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.samples.is_empty() { Ok(()) } else { write!(f, "{}{}", self.heading, self.samples) }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
