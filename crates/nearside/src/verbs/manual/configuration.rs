//! nearside.toml(5): the comments of the configuration that is installed, as a manual page.

use super::page::{begin, item, marked, prose, see_also};
use super::references::Pages;
use placement::Thresholds;
use roff::{Roff, bold, roman};

/// The name of the page.
pub const NAME: &str = "nearside.toml";

/// The file that is installed. A test of the agent's checks that it has every key, with its default.
const TEXT: &str = include_str!("../../../../../packaging/nearside.toml");

/// What a comment of the file is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The file.
    File(String),
    /// The table with this header.
    Table(String, String),
    /// These keys, with their values.
    Keys(Vec<String>, String),
}

/// The parts of a configuration. A line that begins with `# ` is a comment; one that begins with `#` alone is a key or a
/// table that is commented out.
fn parts(text: &str) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment = if comment.is_empty() { words.to_owned() } else { format!("{comment} {words}") };
            continue;
        }
        let about = std::mem::take(&mut comment);
        let setting = line.trim_start_matches('#');
        match found.last_mut() {
            _ if setting.is_empty() => found.extend((!about.is_empty()).then_some(Part::File(about))),
            _ if setting.starts_with('[') => found.push(Part::Table(setting.to_owned(), about)),
            Some(Part::Keys(keys, _)) if about.is_empty() => keys.push(setting.to_owned()),
            _ => found.push(Part::Keys(vec![setting.to_owned()], about)),
        }
    }
    found
}

/// The page.
pub fn page(pages: &Pages) -> Roff {
    let mut page = begin(NAME, "5", "configuration of the agent of nearside");
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("/etc/nearside.toml"), roman(", or another file of "), bold("nearside agent --config")]);
    page.control("SH", ["DESCRIPTION"]);
    let parts = parts(TEXT);
    for part in &parts {
        match part {
            Part::File(about) => {
                prose(&mut page, about, "PP");
                page.control("PP", []);
                page.text(marked(
                    "The file is TOML. Its values below are the defaults, or examples where there is none. `nearside agent \
                     reload` reads it again.",
                ));
                page.control("SH", ["KEYS"]);
            }
            Part::Table(header, about) => {
                page.control("SS", [header.as_str()]);
                prose(&mut page, about, "PP");
            }
            Part::Keys(keys, about) => {
                for (index, key) in keys.iter().enumerate() {
                    page.control(if index == 0 { "TP" } else { "TQ" }, []);
                    page.text([bold(key)]);
                }
                prose(&mut page, about, "IP");
            }
        }
    }
    for threshold in Thresholds::table() {
        let tag = vec![bold(threshold.name), roman(format!(" = {}", threshold.default))];
        item(&mut page, tag, threshold.about);
    }
    page.control("SH", ["FILES"]);
    item(
        &mut page,
        vec![bold("/etc/nearside.toml")],
        "The configuration of the service, below the prefix of the installation.",
    );
    see_also(&mut page, &pages.see_also(NAME, &format!("{TEXT}\nnearside agent, nearside place, nearside reserve")));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_belong_to_what_follows_them() {
        let text = "# The file.\n# Of all.\n\n# A policy.\npolicy = \"x\"\n# Two.\n#a = 1\n#b = 2\n\n# A table.\n[t]\n#c = 3\n\n#[t.u]\n";
        let keys = |keys: &[&str], about: &str| {
            Part::Keys(keys.iter().map(|key| (*key).to_owned()).collect(), about.to_owned())
        };
        let expected = [
            Part::File("The file. Of all.".to_owned()),
            keys(&["policy = \"x\""], "A policy."),
            keys(&["a = 1", "b = 2"], "Two."),
            Part::Table("[t]".to_owned(), "A table.".to_owned()),
            keys(&["c = 3"], ""),
            Part::Table("[t.u]".to_owned(), String::new()),
        ];
        assert_eq!(parts(text), expected);
    }
}
