//! The policies that a program can be run under: those of the kernel and of other tools, and nearside's own.

use linux::NodeId;
use machine::Selection;
use placement::{NameError, PolicyName};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A candidate: a policy to run the program under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// Memory on the node of the CPU that touches it first; the kernel moves none.
    FirstTouch,
    /// The kernel's NUMA balancing.
    Kernel,
    /// The numad daemon.
    Numad,
    /// Memory interleaved over all nodes, or over these.
    Interleave(Option<Selection<NodeId>>),
    /// Memory and CPUs of these nodes only, or of the first node that has both.
    Bind(Option<Selection<NodeId>>),
    /// First touch, without huge pages.
    NoHugePages,
    /// First touch, and falsely shared huge pages are cured after recordings of this length.
    HugePages(Duration),
    /// The best static binding that a short search finds.
    Oracle,
    /// One of nearside's own policies, carried out by `nearside place`.
    Placed(PolicyName),
}

/// Length of a recording of `hugepages`.
const RECORDED: Duration = Duration::from_secs(1);

/// Names of the policies that are not nearside's, with what each does.
const OTHERS: [(&str, &str); 8] = [
    ("first-touch", "memory on the node of the CPU that touches it first; the kernel moves none"),
    ("kernel", "the kernel's NUMA balancing (kernel.numa_balancing=1); needs root where it is off"),
    ("numad", "the daemon, which places whole processes; needs root"),
    ("interleave[:NODES]", "memory interleaved over all nodes, or over these, as numactl --interleave"),
    ("bind[:NODES]", "CPUs and memory of these nodes only, or of the first node that has both"),
    ("no-huge-pages", "first touch without transparent huge pages, as nearside run --huge never"),
    ("hugepages[:SECONDS]", "first touch under nearside hugepages cure: 5 rounds of this length, or of 1 s"),
    ("oracle", "the best static binding that a short search finds: see --oracle-runs"),
];

impl FromStr for Candidate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A name with `+` is one of nearside's own.
        let has_halves = text.split('+').skip(1).any(|half| half.starts_with(char::is_alphabetic));
        let whole = text.split_once(':').filter(|_| !has_halves);
        let (name, nodes) = whole.map_or((text, None), |(name, nodes)| (name, Some(nodes)));
        let nodes = || {
            let read = |nodes: &str| nodes.parse::<Selection<NodeId>>();
            nodes.map(read).transpose().map_err(|why| format!("`{text}` is not a policy: {why}"))
        };
        match (name, text.contains(':')) {
            ("first-touch", false) => Ok(Self::FirstTouch),
            ("kernel", false) => Ok(Self::Kernel),
            ("numad", false) => Ok(Self::Numad),
            ("oracle", false) => Ok(Self::Oracle),
            ("no-huge-pages", false) => Ok(Self::NoHugePages),
            ("hugepages", false) => Ok(Self::HugePages(RECORDED)),
            ("hugepages", true) => {
                let seconds =
                    whole.and_then(|(_, seconds)| seconds.parse::<f64>().ok()).filter(|seconds| *seconds > 0.0);
                let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                duration
                    .map(Self::HugePages)
                    .ok_or_else(|| format!("`{text}` has no time in seconds, as hugepages:2 has"))
            }
            ("interleave", _) => Ok(Self::Interleave(nodes()?)),
            ("bind", _) => Ok(Self::Bind(nodes()?)),
            _ => text.parse().map(Self::Placed).map_err(|error| match error {
                NameError::Unknown { name, nearest } => {
                    let nearest = machine::did_you_mean(nearest);
                    format!("there is no policy `{name}`{nearest}; the policies are:\n{}", Self::list())
                }
                error => error.to_string(),
            }),
        }
    }
}

impl Candidate {
    /// All policies with what each does, one per line.
    pub fn list() -> String {
        placement::policy_list(&all().collect::<Vec<_>>())
    }

    /// Description of the policy.
    pub fn means(&self) -> String {
        let name = self.to_string();
        let found = all().find(|(listed, _)| plain(listed) == plain(&name));
        found.map_or_else(|| "as in nearside place".to_owned(), |(_, what)| what.to_owned())
    }
}

/// All policies with what each does. Where two have the same name, those of the kernel and of other tools come first.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = || OTHERS.iter().map(|(name, _)| plain(name));
    let own = placement::POLICIES.iter().filter(move |(name, _)| !others().any(|other| other == plain(name)));
    OTHERS.iter().chain(own).copied()
}

/// A policy's name without its arguments.
fn plain(name: &str) -> &str {
    name.split([':', '[']).next().unwrap_or(name)
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstTouch => f.write_str("first-touch"),
            Self::Kernel => f.write_str("kernel"),
            Self::Numad => f.write_str("numad"),
            Self::Interleave(None) => f.write_str("interleave"),
            Self::Interleave(Some(nodes)) => write!(f, "interleave:{nodes}"),
            Self::Bind(None) => f.write_str("bind"),
            Self::Bind(Some(nodes)) => write!(f, "bind:{nodes}"),
            Self::Oracle => f.write_str("oracle"),
            Self::NoHugePages => f.write_str("no-huge-pages"),
            Self::HugePages(RECORDED) => f.write_str("hugepages"),
            Self::HugePages(duration) => write!(f, "hugepages:{}", duration.as_secs_f64()),
            Self::Placed(policy) => policy.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_list_is_read_and_written() {
        for (name, what) in all().filter(|(name, _)| *name != "THREADS+MEMORY" && *name != "default") {
            let candidate = plain(name).parse::<Candidate>().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((candidate.to_string().as_str(), candidate.means().as_str()), (plain(name), what));
        }
        for text in [
            "hugepages:0.03",
            "interleave:0-1",
            "bind:!0",
            "balanced+local",
            "weighted-interleave:0-1",
            "bind:0+interleave:0-1",
        ] {
            assert_eq!(text.parse::<Candidate>().unwrap().to_string(), text);
        }
        assert_eq!("kernel".parse(), Ok(Candidate::Kernel));
        let unknown = "carefour".parse::<Candidate>().unwrap_err();
        assert!(unknown.starts_with("there is no policy `carefour` (did you mean `carrefour`?)"), "{unknown}");
        assert!(all().all(|(name, what)| unknown.contains(name) && unknown.contains(what)), "{unknown}");
        assert!(["hugepages:x", "hugepages:-1", "hugepages:"].iter().all(|text| text.parse::<Candidate>().is_err()));
        assert!("kernel:1".parse::<Candidate>().is_err() && "bind:x".parse::<Candidate>().is_err());
        assert!("balanced+auto".parse::<Candidate>().unwrap_err().contains("both place threads"));
    }
}
