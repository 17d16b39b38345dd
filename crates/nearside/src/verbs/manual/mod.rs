//! `nearside manual`: man pages and shell completions, generated from the command line's definition, the agent's
//! configuration and the guide to machine files. Hidden, for `make install`.

mod configuration;
mod machine_files;
mod page;
mod references;

use crate::Cli;
use crate::output;
use crate::verbs::completions::{Shell, script};
use clap::{Args, Command, CommandFactory};
use references::Pages;
use roff::Roff;
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
    let man = arguments.share.join("man");
    let pages = Pages::of(&cli);
    man_pages(&cli, &pages, &man.join("man1"))?;
    for (name, page) in
        [(configuration::NAME, configuration::page(&pages)), (machine_files::NAME, machine_files::page(&pages))]
    {
        write_page(&man.join("man5").join(format!("{name}.5")), &page)?;
    }
    for (shell, path) in COMPLETIONS {
        write(&arguments.share.join(path), script(shell)?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A page for the command, and one for each verb.
fn man_pages(command: &Command, pages: &Pages, folder: &Path) -> Result<(), Box<dyn Error>> {
    write_page(&folder.join(format!("{}.1", page::name(command))), &page::page(command, pages))?;
    page::shown(command).try_for_each(|verb| man_pages(verb, pages, folder))
}

/// Characters beyond ASCII become names of glyphs, which every formatter knows in every locale.
fn write_page(path: &Path, page: &Roff) -> Result<(), Box<dyn Error>> {
    let glyph = |c: char| match c {
        '\u{a0}' => "\\ ".to_owned(),
        page::UNBROKEN => "\\%".to_owned(),
        c if c.is_ascii() => c.to_string(),
        c => format!("\\[u{:04X}]", u32::from(c)),
    };
    let text: String = page.render().chars().map(glyph).collect();
    write(path, text.as_bytes())
}

fn write(path: &Path, text: &[u8]) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|why| format!("cannot make the folder {}: {why}", folder.display()))?;
    }
    Ok(output::write(std::str::from_utf8(text)?, Some(path))?)
}
