//! Numbers that a program prints: its own run time, and others.

use std::str::FromStr;

/// Where a program prints its run time, in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seconds {
    /// At this JSON pointer, in the last line of JSON that has it.
    Json(String),
    /// Between these texts in one line, at the last match.
    Between(String, String),
}

/// Upper limit, some thirty years: larger numbers are not times.
const LONGEST_S: f64 = 1e9;
/// Stands for the number.
const NUMBER: &str = "{}";

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Json(text.to_owned()));
        }
        let (before, after) = text.split_once(NUMBER).ok_or_else(|| {
            format!("`{text}` is neither a JSON pointer, such as /seconds, nor a text with {NUMBER} for the number")
        })?;
        Ok(Self::Between(before.to_owned(), after.to_owned()))
    }
}

/// As given on the command line.
impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(pointer) => f.write_str(pointer),
            Self::Between(before, after) => write!(f, "{before}{NUMBER}{after}"),
        }
    }
}

impl Seconds {
    /// The time in a program's output; `None` if there is no positive number.
    pub fn find_in(&self, printed: &str) -> Option<f64> {
        self.number_in(printed).filter(|seconds| *seconds > 0.0 && *seconds < LONGEST_S)
    }

    /// The number in a program's output, be it a time or not.
    pub fn number_in(&self, printed: &str) -> Option<f64> {
        let found = match self {
            Self::Json(pointer) => crate::extract::numbers(printed, pointer).pop(),
            Self::Between(before, after) => {
                let within = |line| places(line).rev().find_map(|at| number(at, before, after));
                printed.lines().rev().find_map(within)
            }
        };
        found.filter(|number| number.is_finite())
    }

    /// Start of the measured part, ns of `CLOCK_MONOTONIC`, where the same JSON has it as `began_ns`.
    pub fn began_ns(&self, printed: &str) -> Option<u64> {
        let Self::Json(pointer) = self else { return None };
        let (folder, _) = pointer.rsplit_once('/')?;
        let values = crate::extract::values(printed);
        let json = values.iter().rfind(|json| json.pointer(pointer).is_some_and(serde_json::Value::is_number))?;
        json.pointer(&format!("{folder}/began_ns"))?.as_f64().map(|ns| ns as u64)
    }
}

/// The rest of a line from each character on, except within a number.
fn places(line: &str) -> impl DoubleEndedIterator<Item = &str> {
    let is_within = |at: usize| {
        let (before, rest) = line.split_at(at);
        // Only whether there are three matters, of what may be millions.
        let digits = rest.bytes().take(4).take_while(u8::is_ascii_digit).count();
        // 1,234 and 1:23 are one number each.
        let before = if digits == 3 { before.strip_suffix(',').unwrap_or(before) } else { before };
        let before = before.strip_suffix(':').unwrap_or(before);
        before.ends_with(is_of_number) && rest.starts_with(is_of_number)
    };
    line.char_indices().filter(move |(at, _)| !is_within(*at)).map(|(at, _)| &line[at..])
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || ".eE+-".contains(c)
}

fn number(text: &str, before: &str, after: &str) -> Option<f64> {
    let text = text.strip_prefix(before)?;
    let end = text.find(|c| !is_of_number(c)).unwrap_or(text.len());
    // A unit may begin with a character that numbers contain: `1.5e` is 1.5 before an `e`.
    (1..=end).rev().find_map(|end| {
        let (number, rest) = text.split_at_checked(end)?;
        rest.starts_with(after).then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pattern: &str, printed: &str) -> Option<f64> {
        pattern.parse::<Seconds>().unwrap().find_in(printed)
    }

    #[test]
    fn a_time_is_found_in_json_and_in_text() {
        let json = "filling\n{\"seconds\": 0.25, \"began_ns\": 1700}\n";
        assert_eq!(seconds("/seconds", json), Some(0.25));
        assert_eq!("/seconds".parse::<Seconds>().unwrap().began_ns(json), Some(1700));
        assert_eq!("/a/seconds".parse::<Seconds>().unwrap().began_ns(json), None);
        let other = format!("{json}{{\"seconds\": 2}}\n");
        assert_eq!("/seconds".parse::<Seconds>().unwrap().began_ns(&other), None, "it is another time's beginning");
        let gm = "Results: 24 threads 1 iter 5.01s user 0.370047s total 2.702 iter/s\n";
        assert_eq!(seconds("{}s total", gm), Some(0.370_047));
        assert_eq!(seconds("user {}s", gm), Some(0.370_047));
        assert_eq!(seconds("took: {} e", "took: 1.5e-2 e\n"), Some(0.015));
        assert_eq!(seconds("took {}", "took 3\ntook 4\nend"), Some(4.0));
        assert_eq!(seconds("{}s", "time 12.5s, more words"), Some(12.5));
        assert_eq!([seconds("{} s", "1,234.5 s"), seconds("{}elapsed", "1:23.45elapsed")], [None, None]);
        assert_eq!([seconds("at 3: {} s", "at 3: 4 s"), seconds("{} s", "at:4 s")], [Some(4.0), Some(4.0)]);
        assert_eq!(seconds("{} s", "1.5,2.5 s"), Some(2.5));
        for (pattern, printed) in [("/seconds", "{}"), ("{}s", "s 0s -1s"), ("t {}", "t x"), ("{}", ""), ("é{}", "ée")]
        {
            assert_eq!(seconds(pattern, printed), None, "{pattern} {printed}");
        }
        // The time grows with the length, and not with its square.
        assert_eq!(seconds("took {} s", &"3".repeat(1 << 22)), None);
        assert!("seconds".parse::<Seconds>().is_err());
        assert_eq!("a {} b".parse::<Seconds>().unwrap().to_string(), "a {} b");
    }
}
