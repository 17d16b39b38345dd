//! What the documents say of the tree, checked against the tree: the map of crates, the tests that the specification
//! names and its length, and links.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// A workspace's crate without the prefix that its published name has.
fn short(package: &str) -> &str {
    package.strip_prefix("nearside-").unwrap_or(package)
}

/// Of each folder with a crate of the workspace: its short name, and those of the crates that it is built with.
fn crates() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let names: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let workspace = text(&metadata["workspace_root"]);
    packages
        .iter()
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let folder = Path::new(&manifest).parent().unwrap().strip_prefix(&workspace).unwrap();
            // Tests may use what they like: `kind` is null for what the crate itself is built with.
            let uses = package["dependencies"].as_array().unwrap().iter();
            let uses = uses.filter(|used| used["kind"].is_null()).map(|used| text(&used["name"]));
            let uses = uses.filter(|used| names.contains(used)).map(|used| short(&used).to_owned()).collect();
            (folder.to_str().unwrap().to_owned(), (short(&text(&package["name"])).to_owned(), uses))
        })
        .collect()
}

/// Rows of ARCHITECTURE.md's map, in the page's order: folder, and what it uses.
fn map() -> Vec<(String, BTreeSet<String>)> {
    let page = document("ARCHITECTURE.md");
    let (_, map) = page.split_once("<!-- map of crates -->\n").expect("the map begins with its marker");
    let (map, _) = map.split_once("<!-- end of the map -->\n").expect("the map ends with its marker");
    let rows = map.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let uses = cells[2].split(", ").filter(|name| *name != "-").map(str::to_owned).collect();
        (cells[0].trim_matches('`').to_owned(), uses)
    })
    .collect()
}

#[test]
fn the_map_of_crates_is_what_cargo_says() {
    let said: BTreeMap<String, BTreeSet<String>> = map().into_iter().collect();
    let is: BTreeMap<_, _> = crates().into_iter().map(|(folder, (_, uses))| (folder, uses)).collect();
    let row = |(folder, uses): (&String, &BTreeSet<String>)| {
        let uses: Vec<&str> = uses.iter().map(String::as_str).collect();
        format!("| `{folder}` | ... | {} |", if uses.is_empty() { "-".to_owned() } else { uses.join(", ") })
    };
    let wanted: Vec<_> = is.iter().filter(|(folder, uses)| said.get(*folder) != Some(*uses)).map(row).collect();
    assert!(wanted.is_empty(), "ARCHITECTURE.md lacks these rows, or has them otherwise: {wanted:#?}");
    let gone: Vec<_> = said.keys().filter(|folder| !is.contains_key(*folder)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md has crates that the workspace lacks: {gone:?}");
    assert_eq!(map().len(), is.len(), "a crate has one row");
}

#[test]
fn no_crate_depends_on_one_of_a_higher_row() {
    let crates = crates();
    let mut above = BTreeSet::new();
    let mut upward = Vec::new();
    for (folder, uses) in map() {
        upward.extend(uses.iter().filter(|used| above.contains(*used)).map(|used| (folder.clone(), used.clone())));
        above.extend(crates.get(&folder).map(|(name, _)| name.clone()));
    }
    assert!(upward.is_empty(), "dependencies that point upwards in ARCHITECTURE.md: {upward:?}");
}

/// All files below a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found
}

/// Whether a source file is the one that a reference names: `file.rs`, `file/mod.rs` or `file/tests.rs`; `lab_file` is
/// `lab/file.rs` as well.
fn is_named(path: &Path, name: &str) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let parent = path.parent().and_then(Path::file_name).and_then(|parent| parent.to_str());
    let (Some(stem), Some(parent)) = (stem, parent) else { return false };
    stem == name || format!("{parent}_{stem}") == name || (matches!(stem, "mod" | "tests") && parent == name)
}

/// Rows of the specification's tables.
fn promises() -> String {
    document("SPECIFICATION.md").lines().filter(|line| line.starts_with('|')).collect::<Vec<_>>().join("\n")
}

/// Names of the functions in a source that have this attribute. Other attributes and comments may be in between.
fn functions_with<'a>(attribute: &str, source: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut has_attribute = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with(attribute) {
            has_attribute = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let (_, declared) = line.split_once("fn ").unwrap_or_default();
            found.extend(declared.split_once('(').map(|(name, _)| name).filter(|_| has_attribute));
            has_attribute = false;
        }
    }
    found
}

#[test]
fn only_functions_with_the_attribute_are_tests() {
    let source = "#[test]\n#[ignore = \"slow\"]\n// Why.\nfn first() {\n}\n\nfn helper() {\n}\nproptest! {\n    #[test]\n    \
        fn second(x in 0..9) {\n    }\n}\n#[test]\nconst N: usize = 1;\nfn other() {}\n";
    assert_eq!(functions_with("#[test]", source), BTreeSet::from(["first", "second"]));
    assert_eq!(functions_with("#[ignore", source), BTreeSet::from(["first"]));
}

#[test]
fn tests_that_the_specification_names_are_there() {
    let promises = promises();
    let references = promises.split('`').skip(1).step_by(2).filter(|code| code.contains("::"));
    let mut missing = Vec::new();
    let mut count = 0;
    for reference in references {
        count += 1;
        let parts: Vec<&str> = reference.split("::").collect();
        let folder = match parts[0] {
            "nearside-workloads" => "workloads".into(),
            "bench" => "bench".into(),
            name => format!("crates/{name}"),
        };
        let sources = files(&root().join(folder), "rs").into_iter().filter(|path| is_named(path, parts[1]));
        let texts: Vec<String> = sources.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let is_there = texts.iter().any(|text| match parts.get(2) {
            Some(test) => functions_with("#[test]", text).contains(test),
            None => text.contains("#[test]") || text.contains("proptest!"),
        });
        if !is_there {
            missing.push(reference);
        }
    }
    assert!(count > 50, "{count} references");
    assert!(missing.is_empty(), "SPECIFICATION.md names tests that are not there: {missing:#?}");
}

#[test]
fn the_specification_marks_the_tests_that_only_make_nightly_runs() {
    let promises = promises();
    let marked = promises.split("` (nightly)").collect::<Vec<_>>();
    let marked = marked.split_last().unwrap().1.iter().map(|before| before.rsplit(['`', ':']).next().unwrap());
    let sources = ["bench", "crates", "workloads"].into_iter().flat_map(|folder| files(&root().join(folder), "rs"));
    let sources: Vec<String> = sources.map(|path| fs::read_to_string(path).unwrap()).collect();
    let ignored: BTreeSet<&str> = sources.iter().flat_map(|source| functions_with("#[ignore", source)).collect();
    assert_eq!(marked.collect::<BTreeSet<_>>(), ignored, "marked with (nightly), and ignored");
}

#[test]
fn the_specification_has_at_most_3500_words() {
    let page = document("SPECIFICATION.md");
    let is_word = |token: &&str| token.chars().any(|c| c != '|' && c != '-');
    let count = page.split_whitespace().filter(is_word).count();
    assert!(count <= 3500, "{count} words: merge promises of one mechanism, and leave out what no user relies on");
}

/// Lines of a document without its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut pages = files(&root().join("docs"), "md");
    for folder in [".", "crates/model", "fuzz"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().flatten().map(|entry| entry.path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    assert!(pages.len() > 20);
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for target in prose(&text).flat_map(|line| line.split("](").skip(1)) {
            let target = target.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = linked.exists() && {
                let linked = fs::read_to_string(&linked).unwrap_or_default();
                heading.is_empty()
                    || prose(&linked)
                        .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
            };
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}
