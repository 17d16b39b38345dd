//! `nearside completions`: the script that makes a shell complete nearside's options and their values.

use crate::output;
use clap::{Args, ValueEnum};
use clap_complete::env::Shells;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// Print the script that completes commands, options, presets, policies and objects in a shell
///
/// `make install` and the packages install these scripts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(nearside completions bash)              in this shell; in ~/.bashrc for all
  nearside completions zsh > ~/.zfunc/_nearside    with fpath+=~/.zfunc before compinit
  nearside completions fish > ~/.config/fish/completions/nearside.fish")]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
}

/// The variable by which the script asks for completions; its value is the shell's name.
pub const VARIABLE: &str = "NEARSIDE_COMPLETE";

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    output::write(&script(arguments.shell)?, None)?;
    Ok(ExitCode::SUCCESS)
}

/// The script for a shell. It calls nearside for each completion.
pub fn script(shell: Shell) -> Result<String, Box<dyn Error>> {
    let name: &str = shell.into();
    let shells = Shells::builtins();
    let completer = shells.completer(name).ok_or_else(|| io::Error::other(format!("no completions for {name}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "nearside", "nearside", "nearside", &mut script)?;
    Ok(String::from_utf8(script)?)
}
