//! machine-files(5): the guide's text about machine files as a manual page, with the range of each number.

use super::page::{begin, item, marked, prose, see_also};
use super::references::Pages;
use machine::{NumberRange, number_ranges};
use roff::{Roff, bold, roman};

/// The name of the page.
pub const NAME: &str = "machine-files";

/// The guide. A test of `machine` checks that it has every key.
const TEXT: &str = include_str!("../../../../../docs/machine-files.md");

/// The guide's headings and the page's, in the page's order. The part before the first heading has no name.
const SECTIONS: [(&str, &str); 4] =
    [("", "DESCRIPTION"), ("Values", "VALUES"), ("Fields", "FIELDS"), ("An example", "EXAMPLES")];

/// A block of the guide. Lines of paragraphs and items are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Block {
    Heading(String),
    Paragraph(String),
    Item(String),
    Code(Vec<String>),
    Row(Field),
}

/// A row of a table of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    /// With its backticks.
    name: String,
    is_needed: bool,
    meaning: String,
}

impl Field {
    /// `None` for the rows above the fields.
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        let (name, needed, meaning) = (cells.next()?, cells.next()?, cells.next()?);
        let is_field = name.starts_with('`');
        is_field.then(|| Self { name: name.to_owned(), is_needed: needed == "needed", meaning: meaning.to_owned() })
    }
}

/// The blocks of a text. Code is between fences, whatever it has.
fn blocks(text: &str) -> Vec<Block> {
    let parts = text.split("```").enumerate();
    let blocks = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split("\n\n").flat_map(of_paragraph).collect(),
        // The first line names the language.
        _ => vec![Block::Code(part.lines().skip(1).map(str::to_owned).collect())],
    });
    blocks.collect()
}

/// The blocks of a part without empty lines. The title is none.
fn of_paragraph(text: &str) -> Vec<Block> {
    let text = text.trim();
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(heading) = text.strip_prefix("## ") {
        vec![Block::Heading(heading.to_owned())]
    } else if let Some(items) = text.strip_prefix("* ") {
        items.split("\n* ").map(|item| Block::Item(joined(item))).collect()
    } else if text.starts_with('|') {
        text.lines().filter_map(Field::parse).map(Block::Row).collect()
    } else if text.is_empty() || text.starts_with("# ") {
        Vec::new()
    } else {
        vec![Block::Paragraph(joined(text))]
    }
}

/// The blocks below a heading; those before the first for an empty one.
fn section<'a>(blocks: &'a [Block], heading: &str) -> impl Iterator<Item = &'a Block> {
    let mut current = "";
    let below = blocks.iter().filter(move |block| {
        if let Block::Heading(text) = block {
            current = text;
        }
        current == heading && !matches!(block, Block::Heading(_))
    });
    below.collect::<Vec<_>>().into_iter()
}

/// The table that a paragraph introduces: `` `[core]` says ``.
fn table(paragraph: &str) -> Option<&str> {
    let name = paragraph.strip_prefix('`')?.split('`').next()?;
    name.starts_with('[').then_some(name)
}

/// The page.
pub fn page(pages: &Pages) -> Roff {
    let blocks = blocks(TEXT);
    let ranges = number_ranges();
    let mut page = begin(NAME, "5", "descriptions of NUMA machines for nearside");
    page.control("SH", ["SYNOPSIS"]);
    let mut intro = section(&blocks, "");
    if let Some(Block::Code(lines)) = intro.next() {
        code(&mut page, lines);
    }
    for (heading, title) in SECTIONS {
        page.control("SH", [title]);
        let skipped = usize::from(heading.is_empty());
        let mut of = "";
        for (index, block) in section(&blocks, heading).skip(skipped).enumerate() {
            write_block(&mut page, block, index, &mut of, &ranges);
        }
    }
    see_also(&mut page, &pages.see_also(NAME, TEXT));
    page
}

/// Writes a block. `of` is the table that its fields are in.
fn write_block<'a>(page: &mut Roff, block: &'a Block, index: usize, of: &mut &'a str, ranges: &[NumberRange]) {
    match block {
        Block::Heading(_) => {}
        Block::Paragraph(text) => {
            match table(text) {
                Some(name) => {
                    *of = name;
                    page.control("SS", [name]);
                }
                None if index > 0 => {
                    page.control("PP", []);
                }
                None => {}
            }
            prose(page, text, "PP");
        }
        Block::Item(text) => {
            page.control("IP", ["\\(bu", "2"]);
            page.text(marked(text));
        }
        Block::Code(lines) => code(page, lines),
        Block::Row(field) => {
            let name = field.name.trim_matches('`');
            let needed = if field.is_needed { " (required)" } else { "" };
            let table = of.trim_matches(['[', ']']);
            let range = ranges.iter().find(|range| range.table == table && range.field == name);
            let range = range.map(|range| format!(" Range: {}.", range.range)).unwrap_or_default();
            let meaning = format!("{}.{range}", field.meaning.trim_end_matches('.'));
            item(page, vec![bold(name), roman(needed)], &meaning);
        }
    }
}

/// Lines as they are.
fn code(page: &mut Roff, lines: &[String]) {
    page.control("PP", []).control("nf", []);
    for line in lines {
        page.text([roman(line.as_str())]);
    }
    page.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_text() {
        let text = "# Title\n\n```toml\na = 1\n\n[b]\n```\n\nOne\ntwo `[c]`.\n\n## Head\n\n* an item\n  of two lines\n* another\n\n\
                    `[c]` has:\n\n| field | | meaning |\n|---|---|---|\n| `d` | needed | e, `f` |\n| `g` | | h. |\n";
        let field = |name: &str, is_needed, meaning: &str| {
            Block::Row(Field { name: name.to_owned(), is_needed, meaning: meaning.to_owned() })
        };
        let expected = [
            Block::Code(["a = 1", "", "[b]"].map(str::to_owned).to_vec()),
            Block::Paragraph("One two `[c]`.".to_owned()),
            Block::Heading("Head".to_owned()),
            Block::Item("an item of two lines".to_owned()),
            Block::Item("another".to_owned()),
            Block::Paragraph("`[c]` has:".to_owned()),
            field("`d`", true, "e, `f`"),
            field("`g`", false, "h."),
        ];
        let found = blocks(text);
        assert_eq!(found, expected);
        assert_eq!(section(&found, "").count(), 2);
        assert_eq!(section(&found, "Head").count(), 5);
        assert_eq!((table("`[c]` has:"), table("`d`"), table("One")), (Some("[c]"), None, None));
    }

    /// Every heading of the guide is a section of the page, but for the last, which the page makes itself.
    #[test]
    fn no_part_of_the_guide_is_left_out() {
        let blocks = blocks(TEXT);
        let headings: Vec<&str> = blocks
            .iter()
            .filter_map(|block| if let Block::Heading(text) = block { Some(text.as_str()) } else { None })
            .collect();
        let known = |heading: &&str| SECTIONS.iter().any(|(known, _)| known == heading) || *heading == "See also";
        assert!(headings.len() == 4 && headings.iter().all(known), "{headings:?}");
    }
}
