//! The experiment files of nearside, and mistakes in others.

use explore::{Comparison, ExperimentError, Suite, Value, plan};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

const GOOD: &str = r#"title = "A table"
about = "What it is."

[sources]
table = "a study, table 1"

[fragments]
chase = "nearside-workloads chase --pin {cpu}"

[[experiment]]
name = "latency"
preset = "small-2x2"
memory_per_node = "512M"
quantity = "latency, {distance}"
unit = "%"
command = "numactl -m{node} {chase}"
figure = "/mean_ns"
against = "numactl -m0 {chase}"
compare = "increase"
published = 44
within = "3 points"
source = "table"
each = [{ distance = "1 hop", node = 1, cpu = 0 }, { distance = "2 hops", node = 2, cpu = 3, published = 50 }]
"#;

fn read(text: &str) -> Result<Suite, ExperimentError> {
    Suite::from_toml(text, Path::new("folder/table.toml"))
}

#[test]
fn rows_become_experiments() {
    let suite = read(GOOD).unwrap();
    let [one, two] = &suite.experiments[..] else { panic!("{suite:?}") };
    assert_eq!(
        (suite.name.as_str(), one.name.as_str(), two.quantity.as_str()),
        ("table", "latency", "latency, 2 hops")
    );
    assert_eq!((one.published.to_string(), two.published.to_string()), ("44".into(), "50".into()));
    let Value::Compared(Comparison::Increase, remote, local) = &two.value else { panic!("{two:?}") };
    assert_eq!(remote.command, "numactl -m2 nearside-workloads chase --pin 3");
    assert_eq!(local.command, "numactl -m0 nearside-workloads chase --pin 3");
    assert_eq!(remote.boot.to_string(), "small-2x2, 512 MiB a node");
}

#[track_caller]
fn mistake(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "{from}");
    let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
    assert!(error.contains(expected), "`{expected}` is not in: {error}");
}

#[test]
fn mistakes_have_file_line_field_and_rule() {
    mistake("small-2x2", "small-2x3", "folder/table.toml:12: experiment[0].preset: there is no preset `small-2x3`");
    mistake(
        "\"512M\"",
        "\"512 miles\"",
        "folder/table.toml:13: experiment[0].memory_per_node: `512 miles` is not a size",
    );
    mistake("3 points", "3 dots", "folder/table.toml:21: experiment[0].within: `3 dots` is not one of");
    mistake("\"%\"", "\"ns\"", "folder/table.toml:21: experiment[0].within: points are percentage points");
    mistake("\"increase\"", "\"more\"", "folder/table.toml:19: experiment[0].compare: unknown variant `more`");
    mistake("{distance}", "{distant}", "folder/table.toml:14: experiment[0].quantity: {distant} is neither in");
    mistake("{distance}", "{distance", ":14: experiment[0].quantity: a { starts a word");
    mistake("distance}", "node}", ":23: experiment[0].each[0].distance: no text of this experiment uses {distance}");
    mistake("/mean_ns", "mean_ns", ":17: experiment[0].figure: `mean_ns` is not a JSON pointer");
    mistake("figure = \"/mean_ns\"\n", "", "experiment[0].figure: needs one of `figure`, `report`");
    let curve = |at| format!("curve = {{ points = \"/p\", x = \"/x\", y = \"/y\", at = \"{at}\" }}");
    mistake("figure = \"/mean_ns\"", &curve("much"), ":17: experiment[0].curve: `at` must be a number, is `much`");
    mistake("compare = \"increase\"\n", "", "experiment[0].compare: needs `against`");
    mistake("command =", "saturate = []\n#", "experiment[0].saturate: needs at least one command");
    mistake(
        "source = \"table\"",
        "source = \"table\"\nreason = \"why\"\nwas = inf",
        "experiment[0].reason: needs a number `was`",
    );
    mistake("source = \"table\"", "source = \"table\"\nwas = 3", "experiment[0].reason: needs a number `was`");
    mistake(
        "source = \"table\"",
        "source = \"table\"\nleast = 3",
        "experiment[0].least: must be a number, no more than",
    );
    mistake("published = 44\n", "", "experiment[0].published: needs a number");
    mistake("published = 44", "published = nan", "experiment[0].published: needs a number");
    mistake(
        "source = \"table\"",
        "source = \"book\"",
        ":22: experiment[0].source: `book` is not declared in [sources]",
    );
    mistake("[fragments]", "[fragments]\nother = \"\"", ":8: fragments.other: it is not used");
    mistake("[fragments]", "fragments = 3\n[x]", "table.toml");
    mistake("title =", "title", "folder/table.toml:1: ");
    mistake("quantity", "repeats = 0\nquantity", ":14: experiment[0].repeats: must be from 1 to 100, is 0");
    mistake(
        "[[experiment]]",
        "[[contradiction]]\ntext = \"\"\nsource = \"x\"\n[[experiment]]",
        "contradiction[0].source: `x` is not",
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = machine::chain(&Suite::load(Path::new("no/such.toml")).unwrap_err());
    assert!(error.starts_with("cannot read the experiments in no/such.toml: "), "{error}");
}

/// The files of the repository; campaigns are in a folder of their own.
fn experiments() -> impl Iterator<Item = std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let paths = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
}

#[test]
fn the_experiments_of_nearside_are_good_and_have_names_of_their_own() {
    let (mut quick, mut names) = (Vec::new(), BTreeSet::new());
    for file in experiments() {
        let suite = Suite::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let own: BTreeSet<String> = suite.experiments.iter().map(|experiment| experiment.name.clone()).collect();
        for name in own {
            assert!(names.insert(name.clone()), "{}: another file has an experiment {name}", suite.name);
        }
        quick.extend(suite.experiments.into_iter().filter(|experiment| experiment.quick));
    }
    // They run in every test.
    assert!((1..=4).contains(&plan(&quick).len()), "{} boots for the quick ones", plan(&quick).len());
}

/// A number that was put into a preset is not a prediction of it.
#[test]
fn a_number_that_is_in_the_preset_is_marked_as_an_input() {
    let files = experiments().map(|file| Suite::load(&file).unwrap());
    for experiment in files.flat_map(|suite| suite.experiments) {
        let scale = match experiment.unit.as_str() {
            "ns" => 1.0,
            "MB/s" => 1e6,
            _ => continue,
        };
        let machine = machine::presets::find(experiment.value.preset()).unwrap();
        let number = experiment.published * scale;
        let is_same = |other: f64| (other / number - 1.0).abs() < 1e-3;
        let is_in_preset = matches!(experiment.value, Value::Alone(_))
            && numbers(&serde_json::to_value(&machine).unwrap()).into_iter().any(is_same);
        assert!(experiment.input || !is_in_preset, "{}: {}", experiment.name, experiment.quantity);
    }
}

/// All numbers in a JSON value.
fn numbers(json: &serde_json::Value) -> Vec<f64> {
    match json {
        serde_json::Value::Number(number) => number.as_f64().into_iter().collect(),
        serde_json::Value::Array(items) => items.iter().flat_map(numbers).collect(),
        serde_json::Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".*") {
        let _ = read(&text);
    }

    #[test]
    fn no_change_of_a_good_file_makes_it_panic(at in 0..GOOD.len(), byte in any::<char>(), length in 0..20_usize) {
        let end = (at + length).min(GOOD.len());
        let _ = read(&format!("{}{byte}{}", &GOOD[..at], &GOOD[end..]));
    }
}

/// The campaigns of the repository are read, and their claims compare cells that they have.
#[test]
fn the_campaigns_are_good() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/campaigns");
    for (name, cells, effects) in [("gachod", 84, 7), ("huge-pages", 6, 5), ("npb", 84, 3), ("spacing", 20, 5)] {
        let campaign = explore::Campaign::load(&folder.join(format!("{name}.toml")), "1").unwrap();
        assert_eq!(campaign.cells.len(), cells, "{name}");
        let (none, all): (_, Vec<_>) = (explore::Results::default(), campaign.cells.iter().collect());
        let found = explore::Judged::new(&campaign, &none, &all).effects();
        assert!(found.len() == effects && found.iter().all(|effect| !effect.pairs.is_empty()), "{found:?}");
    }
}
