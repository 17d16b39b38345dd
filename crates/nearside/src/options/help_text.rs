//! The text after a command's options: `--help` shows it with hanging indents, and the manual as sections.

use clap::Command;
use report::Layout;

/// Headings that texts have, and those of the manual (man-pages(7)) in its order.
const HEADINGS: [(&str, &str); 7] = [
    ("Policies", "POLICIES"),
    ("Keys", "KEYS"),
    ("Privileges", "PRIVILEGES"),
    ("Exit codes", "EXIT STATUS"),
    ("Environment", "ENVIRONMENT"),
    ("Notes", NOTES),
    ("Examples", EXAMPLES),
];
/// For paragraphs without a heading.
const NOTES: &str = "NOTES";
/// A paragraph that follows examples is about the command, not about the examples.
const EXAMPLES: &str = "EXAMPLES";
/// The indent of rows.
const INDENT: &str = "  ";
/// Rows without columns, such as long commands, go on at this indent.
const DEEPER: &str = "      ";

/// A line of a table, or an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The first column: a name, a code or a command.
    pub key: String,
    /// The second column, which may be empty.
    pub meaning: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    Paragraph(String),
    Rows(Vec<Row>),
}

/// A section of the manual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub heading: &'static str,
    pub blocks: Vec<Block>,
}

impl Row {
    /// Columns are at least two spaces apart.
    fn of(line: &str) -> Option<Self> {
        let row = line.strip_prefix(INDENT)?;
        let (key, meaning) = row.trim_end().split_once(INDENT).unwrap_or((row.trim_end(), ""));
        Some(Self { key: key.to_owned(), meaning: meaning.trim_start().to_owned() })
    }
}

impl Section {
    fn add_row(&mut self, row: Row) {
        match self.blocks.last_mut() {
            // A meaning on the next line.
            Some(Block::Rows(rows)) if row.key.is_empty() => match rows.last_mut() {
                Some(last) if last.meaning.is_empty() => last.meaning = row.meaning,
                Some(last) => last.meaning = format!("{} {}", last.meaning, row.meaning),
                None => rows.push(row),
            },
            Some(Block::Rows(rows)) => rows.push(row),
            _ => self.blocks.push(Block::Rows(vec![row])),
        }
    }

    fn add_line(&mut self, line: &str, is_new: bool) {
        match self.blocks.last_mut() {
            Some(Block::Paragraph(text)) if !is_new => *text = format!("{text} {line}"),
            _ => self.blocks.push(Block::Paragraph(line.to_owned())),
        }
    }
}

/// The sections of a text, in the manual's order.
pub fn sections(text: &str) -> Vec<Section> {
    let mut all: Vec<Section> = HEADINGS.map(|(_, heading)| Section { heading, blocks: Vec::new() }).into();
    let mut at = NOTES;
    let mut is_new = true;
    for line in text.lines() {
        let row = Row::of(line);
        let found = heading(line);
        at = match found {
            Some((heading, _)) => heading,
            None if is_new && row.is_none() && at == EXAMPLES => NOTES,
            None => at,
        };
        if let Some(section) = all.iter_mut().find(|section| section.heading == at) {
            match (row, found) {
                (Some(row), _) => section.add_row(row),
                (None, Some((_, rest))) if rest.is_empty() => {}
                (None, Some((_, rest))) => section.add_line(&capitalised(rest), true),
                (None, None) if line.is_empty() => {}
                (None, None) => section.add_line(line, is_new),
            }
        }
        is_new = line.is_empty();
    }
    all.retain(|section| !section.blocks.is_empty());
    all
}

/// The heading that a line begins with, and what follows: `Exit codes: 0 ...`, or `Exit codes, unless ...:`.
fn heading(line: &str) -> Option<(&'static str, &str)> {
    HEADINGS.iter().find_map(|(name, heading)| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix(','))?;
        Some((*heading, rest.trim()))
    })
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// The same text with the lines of tables and examples wrapped, so that each goes on below its own column.
fn hung(text: &str, width: usize) -> String {
    let layout = Layout::new(width, false);
    let wrapped = |line: &str| match Row::of(line) {
        Some(_) if line.chars().count() <= width => format!("{line}\n"),
        Some(row) if row.meaning.is_empty() => {
            let lines = layout.wrapped(DEEPER, &row.key);
            format!("{INDENT}{}", lines.trim_start())
        }
        Some(row) => {
            let column = line.len() - row.meaning.len();
            layout.wrapped(&line[..column], &row.meaning)
        }
        None => format!("{line}\n"),
    };
    text.lines().map(wrapped).collect::<String>().trim_end().to_owned()
}

/// A command whose help, and that of its subcommands, has hanging indents for this width.
pub fn hanging(command: Command, width: usize) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = command.mut_subcommands(|command| hanging(command, width));
    match text {
        Some(text) => command.after_help(hung(&text, width)),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, meaning: &str) -> Row {
        Row { key: key.to_owned(), meaning: meaning.to_owned() }
    }

    #[test]
    fn a_text_is_its_sections_in_the_manuals_order() {
        let text = "Options may be short.\n\nExamples:\n  nearside run a  one\n  nearside run b\n                  two\n\n\
                    Costs are shares.\n\nExit codes, unless the program runs:\n  0  well\n  1  not\nSome have more.\n\n\
                    Privileges: none.";
        let paragraph = |text: &str| Block::Paragraph(text.to_owned());
        let expected = [
            ("PRIVILEGES", vec![paragraph("None.")]),
            (
                "EXIT STATUS",
                vec![
                    paragraph("Unless the program runs:"),
                    Block::Rows(vec![row("0", "well"), row("1", "not")]),
                    paragraph("Some have more."),
                ],
            ),
            ("NOTES", vec![paragraph("Options may be short."), paragraph("Costs are shares.")]),
            ("EXAMPLES", vec![Block::Rows(vec![row("nearside run a", "one"), row("nearside run b", "two")])]),
        ];
        let expected = expected.map(|(heading, blocks)| Section { heading, blocks });
        assert_eq!(sections(text), expected);
        assert_eq!(sections(""), []);
    }

    #[test]
    fn rows_go_on_below_their_column() {
        let text = "Policies:\n  auto      processes and their memory move\n  a long command of several words\n  x  y";
        let expected = "Policies:\n  auto      processes and\n            their memory\n            move\n  a long command of\n      \
                        several words\n  x  y";
        assert_eq!(hung(text, 26), expected);
    }
}
