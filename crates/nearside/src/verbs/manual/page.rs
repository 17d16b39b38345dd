//! The manual page of a command, from its definition.

use super::references::{Pages, files};
use crate::options::help_text::{Block, Row, Section, sections};
use clap::builder::ValueRange;
use clap::{Arg, Command};
use roff::{Inline, Roff, bold, italic, roman};

/// Longest line of an example, with its comment. Terminals have 80 columns, and man indents by 7.
const LONGEST: usize = 72;
/// Before a word that is not hyphenated: headings switch hyphenation on again. Becomes roff's escape.
pub const UNBROKEN: char = '\u{2060}';
/// The empty argument of a macro.
const EMPTY: &str = "\"\"";

/// The name of a page, such as `nearside-lab-run`.
pub fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

/// The verbs that have a page.
pub fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// The head of a page, and its section NAME.
pub fn begin(name: &str, section: &str, what: &str) -> Roff {
    let mut page = Roff::new();
    let version = concat!("nearside ", env!("CARGO_PKG_VERSION"));
    // No date: the same source gives the same page.
    page.control("TH", [name.to_uppercase().as_str(), section, EMPTY, version, "Manual of nearside"]);
    // Neither gaps between words nor broken names of options.
    page.control("ad", ["l"]).control("nh", []);
    page.control("SH", ["NAME"]);
    // One line, without markup: apropos reads it.
    page.text([roman(format!("{name} - {}", what.replace('`', "")))]);
    page
}

/// The page of a command that is built.
pub fn page(command: &Command, pages: &Pages) -> Roff {
    let name = name(command);
    let what = text(command.get_about());
    let mut page = begin(&name, "1", what.trim_end_matches('.'));
    synopsis(&mut page, command);
    page.control("SH", ["DESCRIPTION"]);
    prose(&mut page, &description(command), "PP");
    commands(&mut page, command);
    options(&mut page, command);
    let after = text(command.get_after_help());
    let (last, first): (Vec<Section>, Vec<_>) =
        sections(&after).into_iter().partition(|section| ["NOTES", "EXAMPLES"].contains(&section.heading));
    for section in &first {
        write_section(&mut page, section);
    }
    let mut files = files(&name).peekable();
    if files.peek().is_some() {
        page.control("SH", ["FILES"]);
    }
    files.for_each(|(path, what)| item(&mut page, vec![italic(path)], what));
    for section in &last {
        write_section(&mut page, section);
    }
    see_also(&mut page, &pages.see_also(&name, &everything(command)));
    page
}

/// The section SEE ALSO.
pub fn see_also(page: &mut Roff, names: &[String]) {
    if names.is_empty() {
        return;
    }
    page.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let (name, section) = name.split_once('(').unwrap_or((name, ""));
        let comma = if index + 1 < names.len() { ",\n" } else { "" };
        line.extend([roman(UNBROKEN), bold(name), roman(format!("({section}{comma}"))]);
    }
    page.text(line);
}

fn text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default()
}

fn description(command: &Command) -> String {
    text(command.get_long_about().or_else(|| command.get_about()))
}

/// All that a page says, to find what it refers to.
fn everything(command: &Command) -> String {
    let options = command.get_arguments().map(|option| text(option.get_long_help().or_else(|| option.get_help())));
    let name = name(command);
    let files = files(&name).map(|(_, what)| what.to_owned());
    let parts = [description(command), text(command.get_after_help())].into_iter().chain(options).chain(files);
    parts.collect::<Vec<_>>().join("\n")
}

/// Options with their values, then the arguments. Nothing is broken within the brackets of an option.
fn synopsis(page: &mut Roff, command: &Command) {
    page.control("SH", ["SYNOPSIS"]);
    let words = command.get_bin_name().unwrap_or(command.get_name());
    if let Some(usage) = command.get_overridden_usage() {
        for form in usage.to_string().lines().map(str::trim) {
            page.control("SY", [words]);
            page.text([roman(form.strip_prefix(words).unwrap_or(form).trim_start())]);
            page.control("YS", []);
        }
        return;
    }
    page.control("SY", [words]);
    let mut line: Vec<Inline> = Vec::new();
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| arg.is_positional());
    for option in options {
        let mut parts = names(option, "|");
        parts.extend(values(option, "\u{a0}"));
        bracketed(&mut line, option.is_required_set(), parts);
    }
    for argument in positional {
        let dashes = argument.is_last_set().then(|| roman("--\u{a0}"));
        let parts = dashes.into_iter().chain([italic(value_names(argument))]).chain(dots(argument));
        bracketed(&mut line, argument.is_required_set(), parts.collect());
    }
    if shown(command).next().is_some() {
        line.push(italic("command"));
    }
    page.text(line);
    page.control("YS", []);
}

fn bracketed(line: &mut Vec<Inline>, is_required: bool, parts: Vec<Inline>) {
    let (open, close) = if is_required { ("", "\n") } else { ("[", "]\n") };
    line.push(roman(open));
    line.extend(parts);
    line.push(roman(close));
}

fn names(option: &Arg, between: &'static str) -> Vec<Inline> {
    let short = option.get_short().into_iter().chain(option.get_visible_short_aliases().unwrap_or_default());
    let aliases = option.get_visible_aliases().unwrap_or_default();
    let long = option.get_long().into_iter().chain(aliases).map(|long| format!("--{long}"));
    let all = short.map(|short| format!("-{short}")).chain(long).map(bold);
    let mut line: Vec<Inline> = all.flat_map(|name| [roman(between), name]).collect();
    if !line.is_empty() {
        line.remove(0);
    }
    line
}

fn value_names(arg: &Arg) -> String {
    arg.get_value_names().map_or_else(|| arg.get_id().to_string().to_uppercase(), |names| names.join(" "))
}

fn dots(argument: &Arg) -> Option<Inline> {
    let most = argument.get_num_args().map_or(1, |range| range.max_values());
    let is_repeated = matches!(argument.get_action(), clap::ArgAction::Append);
    (most > 1 || is_repeated && argument.is_positional()).then(|| roman("..."))
}

/// The value of an option: `--option VALUE`, or `--option [VALUE]` where it may be left out.
fn values(option: &Arg, space: &str) -> Vec<Inline> {
    let Some(range) = option.get_num_args().filter(ValueRange::takes_values) else { return Vec::new() };
    let (open, close) = if range.min_values() == 0 { ("[", "]") } else { ("", "") };
    let equals = if option.is_require_equals_set() { "=" } else { "" };
    let before = if equals.is_empty() { format!("{space}{open}") } else { format!("{open}{equals}") };
    vec![roman(before), italic(value_names(option)), roman(close)]
}

fn commands(page: &mut Roff, command: &Command) {
    let mut verbs = shown(command).peekable();
    if verbs.peek().is_some() {
        page.control("SH", ["COMMANDS"]);
    }
    for verb in verbs {
        item(page, vec![bold(name(verb)), roman("(1)")], &text(verb.get_about()));
    }
}

/// Arguments, then options: those without a heading, and the others under theirs.
fn options(page: &mut Roff, command: &Command) {
    page.control("SH", ["OPTIONS"]);
    let shown: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in shown.iter().filter_map(|arg| arg.get_help_heading()) {
        if !headings.contains(&Some(heading)) {
            headings.push(Some(heading));
        }
    }
    for heading in std::iter::once(None).chain(headings) {
        if let Some(heading) = heading {
            page.control("SS", [heading]);
        }
        let (arguments, options): (Vec<&Arg>, Vec<&Arg>) =
            shown.iter().copied().filter(|arg| arg.get_help_heading() == heading).partition(|arg| arg.is_positional());
        arguments.into_iter().chain(options).for_each(|arg| option(page, arg));
    }
}

fn option(page: &mut Roff, arg: &Arg) {
    let tag = if arg.is_positional() {
        [italic(value_names(arg))].into_iter().chain(dots(arg)).collect()
    } else {
        names(arg, ", ").into_iter().chain(values(arg, " ")).collect()
    };
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let is_shown = !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values();
    let default = if is_shown { format!(" [default: {}]", defaults.join(",")) } else { String::new() };
    let help = text(arg.get_long_help().or_else(|| arg.get_help()));
    item(page, tag, &format!("{help}{default}"));
    let values = if arg.is_hide_possible_values_set() { Vec::new() } else { arg.get_possible_values() };
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if values.is_empty() || !arg.get_action().takes_values() {
        return;
    }
    page.control("RS", []);
    for value in values {
        item(page, vec![bold(value.get_name())], &text(value.get_help()));
    }
    page.control("RE", []);
}

/// A tag, and its meaning as an indented paragraph below.
pub fn item(page: &mut Roff, tag: Vec<Inline>, meaning: &str) {
    page.control("TP", []);
    page.text(tag);
    prose(page, meaning, "IP");
}

/// Paragraphs, separated by empty lines; indented lines are items of a list.
pub fn prose(page: &mut Roff, text: &str, separator: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        match line.strip_prefix("  ") {
            _ if line.is_empty() => {
                page.control(separator, []);
            }
            None => {
                page.text(marked(line));
            }
            Some(first) => {
                page.control("RS", []);
                let rest = std::iter::from_fn(|| lines.next_if(|line| line.starts_with("  ")));
                for line in std::iter::once(first).chain(rest.map(str::trim_start)) {
                    page.control("IP", ["\\(bu", "2"]);
                    page.text(marked(line));
                }
                page.control("RE", []);
            }
        }
    }
}

fn write_section(page: &mut Roff, section: &Section) {
    page.control("SH", [section.heading]);
    for (index, block) in section.blocks.iter().enumerate() {
        match block {
            Block::Paragraph(text) => {
                if index > 0 {
                    page.control("PP", []);
                }
                page.text(marked(text));
            }
            Block::Rows(rows) if section.heading == "EXAMPLES" => examples(page, rows),
            Block::Rows(rows) => rows.iter().for_each(|row| item(page, vec![bold(&row.key)], &row.meaning)),
        }
    }
}

/// Commands as they are typed; comments are beside them if all lines are short enough, and otherwise below.
fn examples(page: &mut Roff, rows: &[Row]) {
    let column = rows.iter().filter(|row| !row.meaning.is_empty()).map(|row| row.key.len()).max().unwrap_or(0) + 2;
    let fits = |row: &Row| row.meaning.is_empty() || column + row.meaning.len() <= LONGEST;
    let is_beside = rows.iter().all(fits);
    page.control("nf", []);
    for Row { key, meaning } in rows {
        let gap = " ".repeat(if is_beside { column.saturating_sub(key.len()) } else { 4 });
        let comment = std::iter::once(roman(gap)).chain(marked(meaning));
        if meaning.is_empty() {
            page.text([bold(key)]);
        } else if is_beside {
            page.text(std::iter::once(bold(key)).chain(comment).collect::<Vec<_>>());
        } else {
            page.text([bold(key)]).text(comment.collect::<Vec<_>>());
        }
    }
    page.control("fi", []);
}

/// A text whose parts between backticks are bold.
pub fn marked(text: &str) -> Vec<Inline> {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return vec![roman(text)];
    }
    let part = |(index, part): (usize, &&str)| if index % 2 == 0 { roman(*part) } else { bold(*part) };
    parts.iter().enumerate().filter(|(_, part)| !part.is_empty()).map(part).collect()
}
