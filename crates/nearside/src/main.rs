//! The command line: parses arguments and calls the crates.

mod explore;
mod interrupt;
mod open_trace;
mod options;
mod output;
mod process;
mod verbs;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use clap_complete::CompleteEnv;
use options::candidates::with_programs;
use options::help_text::hanging;
use options::process_name::NoProcess;
use options::usage_error::{UsageError, with_hints};
use options::user_configuration::UserConfiguration;
use options::value_error::in_words;
use report::escape_message;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use verbs::{Verb, completions};

/// nearside finds, explains and fixes NUMA problems on Linux, on the machine you have or on one it builds for you.
#[derive(Debug, Parser)]
#[command(name = "nearside", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,

    #[command(flatten)]
    terminal: output::terminal::Terminal,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  it failed; the message says what was tried, why it failed and what to do
  2  the command line is wrong
Commands that start programs pass on their exit status, except top; some commands have further codes. Each command's --help lists its own.";

fn main() -> ExitCode {
    // The lab's virtual machines run this same program as their init process.
    if lab::guest::is_guest() {
        lab::guest::main();
        return ExitCode::FAILURE;
    }
    linux::raise_file_limit();
    interrupt::survive_file_limits();
    CompleteEnv::with_factory(|| with_programs(Cli::command())).var(completions::VARIABLE).complete();
    match run() {
        Ok(code) => code,
        Err(error) => {
            print_error(error.as_ref());
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let (configuration, broken) = match UserConfiguration::load() {
        Ok(configuration) => (configuration, None),
        Err(why) => (UserConfiguration::default(), Some(why)),
    };
    let command = || configuration.apply(Cli::command());
    let matches = match command().try_get_matches() {
        // Its lines depend on the terminal's width, which commands that do their work need not ask for.
        Err(help) if help.kind() == ErrorKind::DisplayHelp => {
            let width = output::terminal::help_width();
            hanging(command(), width).term_width(width).try_get_matches()
        }
        matches => matches,
    };
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    if let Some(why) = broken {
        match &parsed {
            // Its message goes first, as later ones may follow from missing defaults.
            Ok(Cli { verb, .. }) if verb.works_without_configuration() => print_error(why.as_ref()),
            Err(help) if !help.use_stderr() => {}
            _ => return Err(UsageError::boxed(why)),
        }
    }
    let Cli { verb, terminal } = parsed.unwrap_or_else(|error| exit(error));
    configuration.cache.into_iter().for_each(lab::setup::keep_in);
    verb.run(terminal)
}

/// Prints an error with its causes.
fn print_error(error: &(dyn Error + 'static)) {
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(std::io::stderr(), "nearside: {}", escape_message(&machine::chain(error)));
}

/// Ends with a message about the command line, which may contain any argument.
fn exit(error: clap::Error) -> ! {
    // The same words wherever a process is looked for.
    if let Some(missing) = error.source().and_then(|source| source.downcast_ref::<NoProcess>()) {
        print_error(missing);
        std::process::exit(error.exit_code());
    }
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let error = with_hints(in_words(error), &mut Cli::command(), &words);
    let text = error.render().to_string();
    let plain = escape_message(&text);
    if error.use_stderr() && plain != text {
        let _ = write!(std::io::stderr(), "{plain}");
        std::process::exit(error.exit_code());
    }
    // Help that could not be printed is no success.
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        let code = output::printed(printed).map_or_else(
            |why| {
                print_error(&why);
                1
            },
            |_| 0,
        );
        std::process::exit(code);
    }
    error.exit()
}
