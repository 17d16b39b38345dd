//! Errors of usage: those that the command line's grammar cannot detect, and hints for those that it detects.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use machine::presets;
use std::error::Error;
use std::iter::successors;

/// Makes nearside exit with code 2.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct UsageError(Box<dyn Error>);

impl UsageError {
    /// The message, as an error of any kind.
    pub fn boxed(why: impl Into<Box<dyn Error>>) -> Box<dyn Error> {
        Box::new(Self(why.into()))
    }
}

/// What users of other tools write for a command, and nearside's own words.
const COMMANDS: [(&str, &str); 6] = [
    ("version", "`nearside --version` prints the version"),
    ("presets", "`nearside lab list` lists the presets"),
    ("machines", "`nearside lab list` lists the presets"),
    ("numactl", "`nearside run` takes numactl's options"),
    ("numastat", "`nearside memory` shows what numastat shows"),
    ("profile", "`nearside record -- COMMAND` records a profile, `nearside report` shows it"),
];
/// Options that write files elsewhere.
const WRITING: [&str; 11] =
    ["--csv", "--file", "--format", "--html", "--json", "--markdown", "--out", "--output", "--parquet", "--svg", "-o"];
/// What may be given in place of what is missing: by command, and by the name that clap has for the missing one.
const ALTERNATIVES: [(&str, &str, &str); 7] = [
    ("nearside assert", COMMAND, "<TRACE>"),
    ("nearside bind", "--cpunodebind <NODES>", "--physcpubind <CPUS>, or --trace <TRACE>"),
    ("nearside hugepages cure", COMMAND, "--pid <PID>"),
    ("nearside hugepages find", COMMAND, "<TRACE>, or --pid <PID>"),
    ("nearside lab run", COMMAND, "--shell"),
    ("nearside place", COMMAND, "--pid <PID>, or --system"),
    ("nearside record", COMMAND, "--pid <PID>"),
];
/// The name of the program and its arguments, in usage lines and lists.
const COMMAND: &str = "<CMD>...";

/// A command line with a mistake.
struct Mistake<'a> {
    /// The command, built.
    command: &'a Command,
    /// Its words, such as `nearside lab run`.
    name: String,
    /// What follows them.
    words: &'a [String],
}

/// The same error with hints, with the usage line of `--help`, and with lists that can be read. `words` follow the name
/// of the program.
pub fn with_hints(mut error: clap::Error, cli: &mut Command, words: &[String]) -> clap::Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    cli.build();
    let (command, depth) = command_of(cli, words);
    let usage = command.clone().render_usage();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let mistake = Mistake { command, name, words: &words[depth..] };
    // clap's advice to write an option behind `--` would make it a part of the program's command line.
    let kept = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if is_version(word)) {
        // No other option is meant, however similar.
        error.remove(ContextKind::SuggestedArg);
    }
    let kept = kept.into_iter().filter(|tip| !tip.to_string().starts_with("to pass "));
    let tips: Vec<StyledStr> = mistake.hint(&error).map(StyledStr::from).into_iter().chain(kept).collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) {
        let missing = missing.iter().map(|one| mistake.missing(one)).collect();
        error.insert(ContextKind::InvalidArg, ContextValue::Strings(missing));
    }
    error
}

/// The command that the first words name, and how many words these are.
fn command_of<'a>(cli: &'a Command, words: &[String]) -> (&'a Command, usize) {
    let next = |(command, depth): &(&'a Command, usize)| {
        let word = words.get(*depth)?;
        Some((command.find_subcommand(word)?, depth + 1))
    };
    successors(Some((cli, 0)), next).last().unwrap_or((cli, 0))
}

fn is_version(word: &str) -> bool {
    ["--version", "-V"].contains(&word)
}

impl Mistake<'_> {
    fn hint(&self, error: &clap::Error) -> Option<String> {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        match error.kind() {
            ErrorKind::InvalidSubcommand => {
                let word = text(ContextKind::InvalidSubcommand)?;
                COMMANDS.iter().find(|(other, _)| *other == word).map(|(_, hint)| (*hint).to_owned())
            }
            ErrorKind::UnknownArgument if error.get(ContextKind::SuggestedArg).is_none() => {
                let word = text(ContextKind::InvalidArg)?;
                if word.starts_with('-') { self.for_option(word) } else { self.for_word(word) }
            }
            ErrorKind::MissingRequiredArgument if self.words.iter().any(|word| word == "-V") => {
                Some("-V is --verify, as in numactl; --version prints the version".to_owned())
            }
            _ => None,
        }
    }

    fn for_option(&self, option: &str) -> Option<String> {
        if is_version(option) {
            return Some("`nearside --version` prints the version".to_owned());
        }
        let writes_file = |arg: &&Arg| {
            !arg.is_positional() && arg.get_value_names().is_some_and(|names| names.iter().any(|name| *name == "FILE"))
        };
        let files: Vec<String> = self
            .options()
            .filter(|arg| writes_file(arg) && !arg.is_hide_set())
            .filter_map(|arg| Some(format!("--{} FILE", arg.get_long()?)))
            .collect();
        let is_writing = WRITING.contains(&option) && !files.is_empty();
        is_writing.then(|| format!("files are written with {}", files.join(", ")))
    }

    /// For a word that is not an option.
    fn for_word(&self, word: &str) -> Option<String> {
        if self.program().is_some() && !self.words.iter().any(|word| word == "--") {
            return self.with_dashes(word).map(|line| format!("a program follows `--`: {line}"));
        }
        if self.name == "nearside report" {
            let traces = self.words.iter().filter(|word| !word.starts_with('-')).map(String::as_str);
            let traces: Vec<&str> = traces.collect();
            return Some(format!("`nearside diff {}` compares two traces", traces.join(" ")));
        }
        let option = self
            .options()
            .find(|arg| arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains("PRESET"))))?;
        let is_machine = presets::find(word).is_ok() || std::path::Path::new(word).exists();
        is_machine
            .then(|| format!("`{} --{} {word}` takes the machine", self.name, option.get_long().unwrap_or_default()))
    }

    /// The line with `--` before the program, whose first word may have been taken for an argument of nearside.
    fn with_dashes(&self, word: &str) -> Option<String> {
        let taken = self.command.get_positionals().filter(|arg| !arg.is_last_set()).count();
        let at = self.words.iter().position(|other| other == word)?.saturating_sub(taken);
        let (options, program) = self.words.split_at(at);
        let words = options.iter().map(String::as_str).chain(["--"]).chain(program.iter().map(String::as_str));
        let line = shlex::try_join(words).ok()?;
        Some(format!("{} {line}", self.name))
    }

    /// The argument for the program, which follows `--`.
    fn program(&self) -> Option<&Arg> {
        self.command.get_positionals().find(|arg| arg.is_last_set())
    }

    fn options(&self) -> impl Iterator<Item = &Arg> {
        self.command.get_arguments().filter(|arg| !arg.is_positional())
    }

    /// What is missing: `one of --a, --b` for clap's `<--a <X>|--b <Y>>`, and all subjects of a command.
    fn missing(&self, what: &str) -> String {
        if let Some(group) = what.strip_prefix('<').filter(|group| group.contains('|') && group.starts_with('-')) {
            let names = group.split('|').filter_map(|option| option.trim_end_matches('>').split(' ').next());
            return format!("one of {}", names.collect::<Vec<_>>().join(", "));
        }
        let dashes = if what == COMMAND && self.program().is_some() { "-- " } else { "" };
        let also = ALTERNATIVES.iter().find(|(name, missing, _)| *missing == what && *name == self.name);
        let also = also.map_or_else(String::new, |(.., also)| format!(", or {also}"));
        format!("{dashes}{what}{also}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{CommandFactory, Parser};

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(std::iter::once("nearside".to_owned()).chain(words.clone())).unwrap_err();
        with_hints(error, &mut Cli::command(), &words).to_string()
    }

    #[test]
    fn mistakes_have_hints() {
        for (line, hint) in [
            ("lab run -m small-4x2 ls -l", "a program follows `--`: nearside lab run -m small-4x2 -- ls -l"),
            ("lab run ls", "a program follows `--`: nearside lab run -- ls"),
            ("hugepages find ./program input", "nearside hugepages find -- ./program input"),
            ("compare ls", "nearside compare -- ls"),
            ("topology small-4x2", "`nearside topology --from small-4x2` takes the machine"),
            ("report before after", "`nearside diff before after` compares two traces"),
            ("version", "`nearside --version` prints the version"),
            ("top --version", "`nearside --version` prints the version"),
            ("export trace --csv x", "files are written with --parquet FILE"),
            ("compare --output x -- ls", "files are written with --json FILE, --html FILE"),
            ("run -V", "-V is --verify"),
        ] {
            let said = said(line);
            assert!(said.contains("\n  tip: ") && said.contains(hint), "{line}: {said}");
            assert!(!said.contains("to pass"), "{line}: {said}");
        }
        assert!(!said("doctor x").contains("tip:"));
    }

    #[test]
    fn what_is_missing_is_named_once_and_the_usage_is_that_of_help() {
        for (line, missing, usage) in [
            (
                "assert",
                "\n  one of --local, --imbalance, --latency, --latency-over-idle, --controller-load, --link-load\n  -- <CMD>..., or \
                 <TRACE>\n",
                "Usage: nearside assert [OPTIONS] LIMITS [TRACE] [-- <CMD>...]",
            ),
            ("hugepages find", "\n  -- <CMD>..., or <TRACE>, or --pid <PID>\n", "find [OPTIONS] [TRACE] [-- <CMD>...]"),
            ("run --verify true", "\n  one of --shm, --file\n", "Usage: nearside run [OPTIONS] [COMMAND]..."),
            ("compare", "\n  -- <CMD>...\n", "Usage: nearside compare [OPTIONS] -- <CMD>..."),
        ] {
            let said = said(line);
            assert!(said.contains(missing) && said.contains(usage), "{line}: {said}");
        }
    }

    /// The words of the tables must be those of commands, which change.
    #[test]
    fn the_tables_name_commands() {
        let mut cli = Cli::command();
        cli.build();
        for (name, ..) in ALTERNATIVES {
            let words: Vec<String> = name.split(' ').skip(1).map(str::to_owned).collect();
            let (command, depth) = command_of(&cli, &words);
            assert_eq!((command.get_bin_name(), depth), (Some(name), words.len()));
        }
    }

    fn each_usage(command: &mut Command, check: &mut impl FnMut(&str)) {
        check(&command.render_usage().to_string());
        command.get_subcommands_mut().for_each(|verb| each_usage(verb, check));
    }

    #[test]
    fn usage_lines_fit_on_a_terminal() {
        let mut cli = Cli::command();
        cli.build();
        each_usage(&mut cli, &mut |usage| {
            assert!(usage.lines().all(|line| line.chars().count() <= 100), "{usage}");
        });
    }
}
