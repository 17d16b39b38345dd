//! What works on this host, what does not, and how to fix it.

use crate::layout::Layout;
use linux::{Diagnosis, Feature};
use serde::Serialize;
use std::fmt;

/// The output of `nearside doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// The kernel, as printed by `uname -r`.
    pub kernel: String,
    /// The user that it was run as.
    pub uid: u32,
    /// Every feature.
    pub features: Vec<Finding>,
}

/// A feature, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: String,
    /// What it is used for.
    pub used_for: String,
    /// Whether it works, for this user.
    pub works: bool,
    /// Why not.
    pub why: Option<String>,
    /// How to fix it.
    pub what_to_do: Option<String>,
}

impl Finding {
    /// The result of testing a feature.
    pub fn new(feature: Feature, result: &Result<(), Diagnosis>) -> Self {
        let diagnosis = result.as_ref().err();
        Self {
            name: feature.name.to_owned(),
            used_for: feature.used_for.to_owned(),
            works: result.is_ok(),
            why: diagnosis.map(|diagnosis| diagnosis.cause.to_string()),
            what_to_do: diagnosis.and_then(|diagnosis| diagnosis.remedy.clone()),
        }
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let works = self.features.iter().filter(|finding| finding.works).count();
        let (kernel, uid, count) = (&self.kernel, self.uid, self.features.len());
        let layout = Layout::of(f);
        let sum = format!("Linux {kernel}, as user {uid}: {works} of {count} features work");
        writeln!(f, "{}", layout.wrapped("", &sum))?;
        for finding in &self.features {
            let works = if finding.works { "works" } else { "-" };
            f.write_str(&layout.wrapped(&format!("{works:7}{:23}", finding.name), &finding.used_for))?;
        }
        for finding in self.features.iter().filter(|finding| !finding.works) {
            let why = finding.why.as_deref().unwrap_or_default();
            write!(f, "\n{}", layout.wrapped("", &format!("{}: {why}", finding.name)))?;
            let remedies = finding.what_to_do.iter().flat_map(|remedy| remedy.lines());
            remedies.map(|remedy| layout.wrapped("  ", remedy)).try_for_each(|remedy| f.write_str(&remedy))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_work_has_its_reason_and_its_cure() {
        let finding = |name: &str, why: Option<&str>, what_to_do: Option<&str>| Finding {
            name: name.to_owned(),
            used_for: format!("{name} things"),
            works: why.is_none(),
            why: why.map(str::to_owned),
            what_to_do: what_to_do.map(str::to_owned),
        };
        let features = vec![
            finding("move_pages", None, None),
            finding("page_frames", Some("it needs CAP_SYS_ADMIN"), Some("run it with sudo")),
            finding("home_node", Some("this kernel does not know it"), None),
        ];
        insta::assert_snapshot!(DoctorReport { kernel: "6.12.1".to_owned(), uid: 1000, features });
    }
}
