//! Messages about values of options, without the words of Rust's standard library.

use clap::Error;
use clap::error::{ContextKind, ErrorKind};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// The same error, with the reason in words if it is that a number could not be read.
pub fn in_words(error: Error) -> Error {
    let context = |kind| error.get(kind).map_or_else(String::new, ToString::to_string);
    let (value, option) = (context(ContextKind::InvalidValue), context(ContextKind::InvalidArg));
    let reason = std::error::Error::source(&error).and_then(|why| reason(why, &value));
    let Some(reason) = reason.filter(|_| error.kind() == ErrorKind::ValueValidation) else { return error };
    let message = format!("invalid value '{value}' for '{option}': {reason}\n\nFor more information, try '--help'.\n");
    Error::raw(ErrorKind::ValueValidation, message)
}

fn reason(why: &(dyn std::error::Error + 'static), value: &str) -> Option<String> {
    if let Some(error) = why.downcast_ref::<ParseIntError>() {
        return Some(match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "the number is too large".to_owned(),
            IntErrorKind::Zero => "must be at least 1".to_owned(),
            // The least value is not known here, as the option's range was not tried.
            _ if value.parse::<i128>().is_ok() => "the number must not be negative".to_owned(),
            _ => "expected a whole number".to_owned(),
        });
    }
    if why.is::<ParseFloatError>() {
        return Some("expected a number".to_owned());
    }
    // clap's own text about a range: `0 is not in 1..=4294967295`.
    let text = why.to_string();
    let (_, range) = text.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let most = most.strip_prefix('=').unwrap_or(most);
    let is_limit = |most: &str| most.parse() == Ok(u32::MAX) || most.parse() == Ok(u64::MAX) || most.is_empty();
    let is_above = || value.parse::<i128>().ok() > most.parse().ok().filter(|_| !most.is_empty());
    Some(match is_limit(most) {
        true if !most.is_empty() && is_above() => format!("must be at most {most}"),
        true => format!("must be at least {least}"),
        false => format!("must be from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{Arg, Command, CommandFactory, Parser};

    /// What only readers of Rust know.
    const LEAKS: [&str; 8] = [
        "invalid digit",
        "..",
        "target type",
        "float literal",
        "expected struct",
        "from empty string",
        "ParseInt",
        "u32",
    ];

    fn each_option(command: &Command, path: &[String], check: &mut impl FnMut(&[String], &Arg)) {
        for option in command.get_arguments().filter(|option| option.get_action().takes_values()) {
            check(path, option);
        }
        for verb in command.get_subcommands() {
            each_option(verb, &[path, &[verb.get_name().to_owned()]].concat(), check);
        }
    }

    #[test]
    fn no_option_answers_in_the_words_of_rust() {
        let (mut tried, mut numbers) = (0, 0);
        each_option(&Cli::command(), &["nearside".to_owned()], &mut |path, option| {
            let Some(name) = option.get_long() else { return };
            for value in ["x", "-1", "0", "", "1e999", "99999999999999999999999", "1.5", "nan"] {
                let arguments = path.iter().cloned().chain([format!("--{name}={value}")]);
                let Err(error) = Cli::try_parse_from(arguments) else { continue };
                let text = in_words(error).to_string();
                // The usage line has `...` where values may be repeated.
                let message = text.split("\n\n").next().unwrap_or_default().replace("...", "");
                let leak = LEAKS.iter().find(|leak| message.contains(**leak));
                assert_eq!(leak, None, "{path:?} --{name}={value}: {text}");
                tried += 1;
                numbers += usize::from(message.contains("whole number"));
            }
        });
        assert!(tried > 500 && numbers > 50, "{tried} errors, {numbers} about numbers");
    }

    #[test]
    fn ranges_are_reported_as_far_as_they_say_something() {
        let message = |argument: &str| {
            let error = Cli::try_parse_from(["nearside", "report", "trace", argument]).unwrap_err();
            in_words(error).to_string().lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(message("--top=0"), "error: invalid value '0' for '--top <N>': must be at least 1");
        assert_eq!(message("--top=x"), "error: invalid value 'x' for '--top <N>': expected a whole number");
        assert!(message("--top=-1").contains("must not be negative") || message("--top=-1").contains("at least 1"));
    }
}
