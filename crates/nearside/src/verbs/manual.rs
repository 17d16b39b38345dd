//! `nearside manual`: man pages and shell completions, generated from the command line's definition. Hidden, for `make
//! install`.

use crate::Cli;
use crate::output;
use crate::verbs::completions::{Shell, script};
use clap::{Args, CommandFactory};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where shells look for completions, below a `share` folder.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/nearside"),
    (Shell::Zsh, "zsh/site-functions/_nearside"),
    (Shell::Fish, "fish/vendor_completions.d/nearside.fish"),
];

/// Write man pages and shell completions
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Arguments {
    /// The folder to write to, such as /usr/local/share
    share: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut cli = Cli::command();
    cli.build();
    man_pages(&cli, &arguments.share.join("man/man1"))?;
    for (shell, path) in COMPLETIONS {
        write(&arguments.share.join(path), script(shell)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A page for the command, and one for each verb.
fn man_pages(command: &clap::Command, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    write(&folder.join(format!("{name}.1")), &page)?;
    let mut verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    verbs.try_for_each(|verb| man_pages(verb, folder))
}

fn write(path: &Path, text: &[u8]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|why| format!("cannot make the folder {}: {why}", folder.display()))?;
    }
    Ok(output::write(std::str::from_utf8(text)?, Some(path))?)
}
