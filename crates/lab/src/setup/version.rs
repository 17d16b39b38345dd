//! Versions of QEMU and of kernels, and which of several to take.

use std::cmp::Reverse;
use std::fmt;

/// The relevant numbers of a version, in version order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 10 of 10.0.2.
    pub major: u32,
    /// 0 of 10.0.2.
    pub minor: u32,
    /// 2 of 10.0.2; 0 if there is none.
    pub patch: u32,
}

impl Version {
    /// The first release of a series.
    pub const fn series(major: u32, minor: u32) -> Version {
        Version { major, minor, patch: 0 }
    }

    /// Parses `10.0.2`, a Debian version (`1:10.0.2+ds-2`) or a kernel release (`6.12.95+deb12-amd64`): two or three
    /// numbers and any suffix.
    pub fn parse(text: &str) -> Option<Version> {
        let upstream = match text.split_once(':') {
            Some((epoch, rest)) if epoch.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            _ => text,
        };
        let end = upstream.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(upstream.len());
        let mut numbers = upstream[..end].trim_end_matches('.').split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        let patch = numbers.next().map_or(Some(0), |number| number.parse().ok())?;
        Some(Version { major, minor, patch })
    }

    /// The oldest series that is new enough, because that one was tested and stable releases carry it, and in it the
    /// newest release; the first of equals.
    pub fn choose<T>(offered: impl IntoIterator<Item = (Version, T)>, minimum: Version) -> Option<(Version, T)> {
        offered
            .into_iter()
            .filter(|(version, _)| *version >= minimum)
            .min_by_key(|(version, _)| (version.major, version.minor, Reverse(version.patch)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    #[test]
    fn reads_what_distributions_write() {
        for (text, expected) in [
            ("10.0", version(10, 0, 0)),
            ("1:10.0.2+ds-2+deb13u1~bpo12+1", version(10, 0, 2)),
            ("6.12.95+deb12-amd64", version(6, 12, 95)),
            ("6.1.0-50-amd64", version(6, 1, 0)),
            ("6.17.4-200.fc42.x86_64", version(6, 17, 4)),
            ("10.0.50 (v10.0.0-1234-gabc)", version(10, 0, 50)),
        ] {
            assert_eq!(Version::parse(text), Some(expected), "{text}");
        }
        for text in ["", "10", "x.y", "1:", ".1.2", "4294967296.0", "6..1", "v6.12"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn takes_the_newest_release_of_the_oldest_series_that_is_new_enough() {
        let offered = [
            (version(6, 17, 8), "backports"),
            (version(6, 12, 9), "old"),
            (version(6, 1, 176), "too old"),
            (version(6, 12, 95), "first"),
            (version(6, 12, 95), "second"),
        ];
        assert_eq!(Version::choose(offered, Version::series(6, 12)), Some((version(6, 12, 95), "first")));
        assert_eq!(Version::choose(offered, Version::series(7, 0)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = Version::parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(major: u32, minor: u32, patch: u32, tail in "([-+~ a-z][-+~. a-z0-9]*)?") {
            let version = version(major, minor, patch);
            prop_assert_eq!(Version::parse(&format!("{version}{tail}")), Some(version));
        }
    }
}
