//! SEE ALSO and FILES: which other pages and files a page refers to.

use super::{configuration, machine_files, page};
use clap::Command;

/// Other programs' pages, by what texts say of them.
const OTHERS: [(&str, &str); 10] = [
    ("numactl", "numactl(8)"),
    ("numastat", "numastat(8)"),
    ("numad", "numad(8)"),
    ("man 7 numa", "numa(7)"),
    ("perf ", "perf(1)"),
    ("perf.data", "perf(1)"),
    ("hwloc", "hwloc(7)"),
    ("lstopo", "lstopo(1)"),
    ("systemctl", "systemctl(1)"),
    ("taskset", "taskset(1)"),
];

/// Files that commands read or write where no option names others.
const FILES: [(&str, &str, &str); 8] = [
    (
        "nearside",
        "~/.config/nearside/config.toml",
        "Your own defaults: `machine` (of the lab's commands), `color`, and `cache` (the folder of what `nearside lab setup` \
         fetches). In $XDG_CONFIG_HOME where it is set.",
    ),
    ("nearside", "~/.cache/nearside/", "QEMU and the kernel of the lab. In $XDG_CACHE_HOME where it is set."),
    ("nearside-lab-setup", "~/.cache/nearside/", "QEMU and the kernel. In $XDG_CACHE_HOME where it is set."),
    ("nearside-record", "nearside-trace/", "The trace: a folder with trace.toml, machine.toml and Parquet files."),
    ("nearside-lab-record", "nearside-trace/", "The trace: a folder with trace.toml, machine.toml and Parquet files."),
    (
        "nearside-place",
        "~/.local/state/nearside/",
        "What runs taught about the programs that they placed. In $XDG_STATE_HOME where it is set.",
    ),
    (
        "nearside-agent",
        "/etc/nearside.toml",
        "The configuration, see nearside.toml(5). Below the prefix of the installation.",
    ),
    ("nearside-agent", "/run/nearside/", "The journal of what the agent changed, and its control socket."),
];

/// All pages of nearside.
pub struct Pages(Vec<Known>);

/// A page: `nearside lab run`, `nearside-lab-run`.
struct Known {
    words: String,
    name: String,
}

impl Pages {
    /// Of a command that is built, and its verbs.
    pub fn of(cli: &Command) -> Self {
        let mut all = Vec::new();
        collect(cli, &mut all);
        Self(all)
    }

    /// The pages that a page refers to: those above and below it, and those that its text names.
    pub fn see_also(&self, name: &str, text: &str) -> Vec<String> {
        let related = |known: &&Known| {
            let parent = name.rsplit_once('-').map_or("", |(parent, _)| parent);
            let is_child = known.name.rsplit_once('-').is_some_and(|(parent, _)| parent == name);
            known.name != name && (known.name == parent || is_child || self.names(text, &known.words))
        };
        let mut found: Vec<String> = self.0.iter().filter(related).map(|known| format!("{}(1)", known.name)).collect();
        found.sort();
        for (page, word) in [(machine_files::NAME, "machine file"), (configuration::NAME, configuration::NAME)] {
            if name != page && text.contains(word) {
                found.push(format!("{page}(5)"));
            }
        }
        for (word, page) in OTHERS {
            if text.contains(word) && !found.iter().any(|found| found == page) {
                found.push(page.to_owned());
            }
        }
        found
    }

    /// Whether a text names a command, and not only one of its verbs.
    fn names(&self, text: &str, words: &str) -> bool {
        let longer = |rest: &str| {
            let mut verbs = self.0.iter().filter_map(|known| known.words.strip_prefix(words)?.strip_prefix(' '));
            verbs.any(|verb| rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(verb)))
        };
        // `nearside` alone is in every text.
        let is_one = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-') && !longer(rest);
        words.contains(' ') && text.match_indices(words).any(|(at, _)| is_one(&text[at + words.len()..]))
    }
}

fn collect(command: &Command, all: &mut Vec<Known>) {
    let words = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    all.push(Known { words, name: page::name(command) });
    page::shown(command).for_each(|verb| collect(verb, all));
}

/// The files of a page, with what they have.
pub fn files(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().filter(move |(page, ..)| *page == name).map(|(_, path, what)| (*path, *what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn pages_refer_to_those_that_they_name() {
        let mut cli = Cli::command();
        cli.build();
        let pages = Pages::of(&cli);
        let text = "as `nearside lab run --json`, nearside reports, numactl, perf.data and perf mem, nearside.toml, a machine file";
        let expected =
            ["nearside-lab-list(1)", "nearside-lab-record(1)", "nearside-lab-run(1)", "nearside-lab-setup(1)"];
        let found = pages.see_also("nearside-lab", text);
        assert!(expected.iter().all(|page| found.iter().any(|found| found == page)), "{found:?}");
        assert!(found.contains(&"nearside(1)".to_owned()) && !found.contains(&"nearside-report(1)".to_owned()));
        assert_eq!(found[found.len() - 4..], ["machine-files(5)", "nearside.toml(5)", "numactl(8)", "perf(1)"]);
        assert!(FILES.iter().all(|(page, ..)| pages.0.iter().any(|known| known.name == *page)));
    }
}
