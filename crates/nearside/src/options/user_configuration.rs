//! The user's own defaults: `~/.config/nearside/config.toml`.

use clap::Command;
use linux::{PrivateFolder, Trust};
use machine::{Violation, bounded, read_checked};
use serde::Deserialize;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Defaults of options. What is given on the command line takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfiguration {
    /// `--machine` of the lab's commands.
    machine: Option<String>,
    /// `--color`.
    color: Option<String>,
    /// The folder of what `lab setup` fetches.
    pub cache: Option<PathBuf>,
}

/// Values of `color`.
const COLORS: [&str; 3] = ["auto", "always", "never"];

impl UserConfiguration {
    /// Reads the file; the defaults if there is none. Only root and the user may be able to change it, as `cache` has
    /// programs that are run.
    pub fn load() -> Result<Self, Box<dyn Error>> {
        let Some(path) = path().filter(|path| path.exists()) else { return Ok(Self::default()) };
        let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
        let file = PrivateFolder::existing_file(&path, Trust::Groups).map_err(|why| failed(&machine::chain(&why)))?;
        let bytes = bounded::bytes_of(file, bounded::MOST_BYTES).map_err(|why| failed(&why))?;
        let text = String::from_utf8(bytes).map_err(|_| failed(&"it is not UTF-8"))?;
        Self::from_toml(&text, &path).map_err(Into::into)
    }

    fn from_toml(text: &str, path: &Path) -> Result<Self, String> {
        read_checked(text, path, Self::violations)
            .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut must = |field: &str, holds: bool, rule: String| {
            if !holds {
                found.push(Violation { field: field.to_owned(), rule });
            }
        };
        let is_color = self.color.as_ref().is_none_or(|color| COLORS.contains(&color.as_str()));
        must("color", is_color, format!("must be one of {}", COLORS.join(", ")));
        let is_absolute = self.cache.as_ref().is_none_or(|cache| cache.is_absolute());
        must("cache", is_absolute, "must be an absolute path".to_owned());
        let is_text = self.machine.as_ref().is_none_or(|machine| !machine.is_empty());
        must("machine", is_text, "must name a preset or a machine file".to_owned());
        found
    }

    /// The command line with these defaults.
    pub fn apply(&self, mut command: Command) -> Command {
        if let Some(color) = self.color.clone() {
            command = command.mut_arg("color", |arg| arg.default_value(color));
        }
        let Some(machine) = self.machine.clone() else { return command };
        command.mut_subcommand("lab", |lab| {
            ["run", "record"].into_iter().fold(lab, |lab, verb| {
                let machine = machine.clone();
                lab.mut_subcommand(verb, |verb| {
                    verb.mut_arg("machine", |arg| arg.required(false).default_value(machine))
                })
            })
        })
    }
}

/// A user's base folder: that of the variable, else one below the home folder. A relative path counts as unset, as the
/// XDG specification requires.
pub fn xdg_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder(variable).or_else(|| folder("HOME").map(|home| home.join(below_home)))
}

/// `$XDG_CONFIG_HOME/nearside/config.toml`, or `~/.config/nearside/config.toml`. A relative path counts as unset, as the
/// XDG specification requires.
fn path() -> Option<PathBuf> {
    let base = xdg_folder("XDG_CONFIG_HOME", ".config")?;
    Some(base.join("nearside/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<UserConfiguration, String> {
        UserConfiguration::from_toml(text, Path::new("config.toml"))
    }

    #[test]
    fn mistakes_have_their_line_and_their_key() {
        assert_eq!(read("").unwrap(), UserConfiguration::default());
        let all = "machine = \"small-4x2\"\ncolor = \"never\"\ncache = \"/var/cache/nearside\"\n";
        assert_eq!(read(all).unwrap().machine.as_deref(), Some("small-4x2"));
        for (text, says) in [
            ("machine = 3", "config.toml:1: machine: invalid type: integer `3`, expected a string"),
            ("\ncolour = \"never\"", "config.toml:2: colour: unknown field `colour` (did you mean `color`?)"),
            ("color = \"red\"", "config.toml:1: color: must be one of auto, always, never"),
            ("cache = \"here\"", "config.toml:1: cache: must be an absolute path"),
            ("machine = \"\"", "config.toml:1: machine: must name a preset"),
            ("color = ", "config.toml:1: "),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(machine|color|cache|[a-z]{0,8})? ?=? ?.{0,80}") {
            let _ = read(&text);
        }
    }
}
