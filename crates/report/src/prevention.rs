//! The result of `nearside hugepages cure --from`.

use machine::number::count;
use machine::number::rounded_count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What a recording asks for, and what its program did. Serialised, it is the JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PreventionReport {
    /// The verdict of the recording.
    pub verdict: String,
    /// Whether nothing was to be done.
    pub dry_run: bool,
    /// Whether the program ran with the recording's objects; if not, `why_not`.
    pub applied: bool,
    /// Why it did not.
    pub why_not: Option<String>,
    /// Objects of the recording that need small pages and that another run recognises; those of the same code, size and
    /// alignment are one.
    pub objects: u64,
    /// Their huge pages that nodes share falsely.
    pub huge_pages: u64,
    /// Objects that need small pages and that no other run recognises, by cause.
    pub left: BTreeMap<String, u64>,
    /// Such objects that the program allocated: each time one.
    pub met: u64,
    /// Objects of the recording that the program did not allocate.
    pub unmet: u64,
    /// Huge pages' worth of memory that is kept on small pages.
    pub kept_small: u64,
    /// Ranges that the kernel refused to keep so, by its answer.
    pub failed: BTreeMap<String, u64>,
}

impl fmt::Display for PreventionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nearside: of the recording: {}", self.verdict)?;
        let [objects, met] = [self.objects, self.met].map(|objects| rounded_count(objects, "object"));
        let [pages, kept] = [self.huge_pages, self.kept_small].map(|pages| rounded_count(pages, "huge page"));
        if let Some(why) = &self.why_not {
            writeln!(f, "  nothing is kept small: {why}")?;
        } else if self.dry_run {
            writeln!(f, "  would keep {pages} of {objects} small from their allocation on")?;
        } else if self.applied {
            writeln!(f, "  kept {kept} of {met} small from their allocation on")?;
        }
        if self.applied && self.unmet > 0 {
            writeln!(
                f,
                "  {} of the recording {} not allocated: the program got other arguments, or is another",
                rounded_count(self.unmet, "object"),
                if self.unmet == 1 { "was" } else { "were" }
            )?;
        }
        self.left.iter().try_for_each(|(why, number)| writeln!(f, "  left {}: {why}", count(*number)))?;
        self.failed.iter().try_for_each(|(why, number)| writeln!(f, "  {}: {why}", count(*number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_small_and_why_not_is_reported() {
        let report = PreventionReport {
            verdict: "3 of 7 huge pages are falsely shared".to_owned(),
            applied: true,
            objects: 2,
            huge_pages: 3,
            met: 1,
            unmet: 1,
            kept_small: 3,
            left: [("it is a variable".to_owned(), 1)].into(),
            ..PreventionReport::default()
        };
        assert_eq!(
            report.to_string(),
            "nearside: of the recording: 3 of 7 huge pages are falsely shared\n\
             \x20 kept 3 huge pages of 1 object small from their allocation on\n\
             \x20 1 object of the recording was not allocated: the program got other arguments, or is another\n\
             \x20 left 1: it is a variable\n"
        );
        let dry = PreventionReport { applied: false, dry_run: true, left: BTreeMap::new(), ..report.clone() };
        assert!(dry.to_string().ends_with("\n  would keep 3 huge pages of 2 objects small from their allocation on\n"));
        let why_not = Some("x is another build".to_owned());
        let other = PreventionReport { applied: false, why_not, left: BTreeMap::new(), ..report };
        assert!(other.to_string().ends_with("\n  nothing is kept small: x is another build\n"), "{other}");
    }
}
