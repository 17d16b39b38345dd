//! Selects the requested kernel among the available ones.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Version;

/// Names the kernel to use if no option does.
pub const KERNEL_VARIABLE: &str = "NEARSIDE_KERNEL";

/// Valid values of a [`KernelVersion`], for messages.
pub const KERNEL_VERSIONS: &str = "a series such as 6.18, a release such as 6.18.15, or newest";

/// A kernel other than the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelVersion {
    /// The newest one.
    Newest,
    /// The newest one whose release (`6.18.15+deb13-amd64`) equals this or begins with it: `6.18.15`, `6.18` or `6`.
    Release(String),
}

/// The text is not a valid version.
#[derive(Debug, Error)]
#[error("a kernel is {KERNEL_VERSIONS}")]
pub struct NoKernelVersion;

impl KernelVersion {
    /// Whether a kernel release (`uname -r`) matches. Numbers and words are compared as a whole.
    pub fn matches(&self, release: &str) -> bool {
        match self {
            KernelVersion::Newest => true,
            KernelVersion::Release(wanted) => {
                let rest = release.strip_prefix(wanted.as_str());
                rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
            }
        }
    }
}

impl FromStr for KernelVersion {
    type Err = NoKernelVersion;

    fn from_str(text: &str) -> Result<KernelVersion, NoKernelVersion> {
        let is_release = text.starts_with(|first: char| first.is_ascii_digit())
            && text.ends_with(|last: char| last.is_ascii_alphanumeric())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+~_-".contains(&byte));
        match text {
            "newest" => Ok(KernelVersion::Newest),
            _ if is_release => Ok(KernelVersion::Release(text.to_string())),
            _ => Err(NoKernelVersion),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelVersion::Newest => f.write_str("newest"),
            KernelVersion::Release(release) => f.write_str(release),
        }
    }
}

/// The newest release of each series, oldest series first.
pub fn newest_of_each_series(releases: impl IntoIterator<Item = Version>) -> Vec<Version> {
    let mut releases: Vec<Version> = releases.into_iter().collect();
    releases.sort_unstable_by(|a, b| b.cmp(a));
    releases.dedup_by_key(|version| (version.major, version.minor));
    releases.reverse();
    releases
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(wanted: &str, release: &str) -> bool {
        wanted.parse::<KernelVersion>().expect("a version").matches(release)
    }

    #[test]
    fn a_series_a_release_and_a_full_name_match_as_a_whole() {
        let release = "6.18.15+deb13-amd64";
        for wanted in ["newest", "6", "6.18", "6.18.15", "6.18.15+deb13", "6.18.15+deb13-amd64"] {
            assert!(matches(wanted, release), "{wanted}");
        }
        for wanted in ["7", "6.1", "6.18.1", "6.18.16", "6.18.15+deb1", "6.18.15+deb13-amd64-rt", "8.15"] {
            assert!(!matches(wanted, release), "{wanted}");
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "new", "Newest", "v6.18", "6.18.", "6.18 ", " 6.18", "6.18-", "../6.18", "6/18", "-6", "6.18é"]
        {
            assert!(text.parse::<KernelVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn series_are_listed_with_their_newest_release() {
        let release = |text: &str| Version::parse(text).expect("a version");
        let listed = newest_of_each_series(["7.3.4", "6.12.9", "6.12.95", "7.3.4", "6.18.5"].map(release));
        assert_eq!(listed, ["6.12.95", "6.18.5", "7.3.4"].map(release));
        assert_eq!(newest_of_each_series([]), []);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            if let Ok(version) = text.parse::<KernelVersion>() {
                prop_assert_eq!(version.to_string(), text);
            }
        }

        #[test]
        fn each_release_is_meant_by_its_own_numbers_and_no_others(a in 1..99_u32, b in 0..99_u32, c in 0..99_u32, other in 0..99_u32) {
            let release = format!("{a}.{b}.{c}+deb13-amd64");
            let numbers = format!("{a}.{b}.{c}");
            prop_assert!(matches(&numbers, &release) && matches(&release, &release));
            prop_assert_eq!(matches(&format!("{a}.{other}"), &release), other == b);
            prop_assert_eq!(matches(&format!("{a}.{b}.{other}"), &release), other == c);
        }
    }
}
