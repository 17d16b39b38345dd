use super::*;
use crate::campaign::{Claim, Judged, Measured, Outcome, Part, Progress, Results, Store, StoreError, Unit, ranking};
use proptest::prelude::*;

/// T13 (Gachod 2024, listing 5.3): balancing in two states and four pinnings.
const STUDY: &str = r#"
title = "the study's grid"
command = "program --json"
seconds = "/seconds"
runs = { min = 2, max = 5, until = "3 %" }
seed = 7
[metrics]
A = "/a"
[grid]
balancing = { nb-enabled = "on", nb-disabled = "off" }
pinning = ["sockorder", "sockets", "sequential", "none"]
[[effect]]
name = "P4"
of = { pinning = "sequential", balancing = "nb-disabled" }
against = { pinning = "sockorder" }
expect = "increase"
at_least = "5 %"
source = "Gachod 6.2.1"
[[effect]]
name = "P3"
of = { balancing = "nb-enabled" }
against = { balancing = "nb-disabled" }
expect = "same"
within = "10 %"
[[correlation]]
name = "P6"
metric = "A"
expect = "at most"
value = -0.95
"#;

fn campaign(text: &str) -> Campaign {
    Campaign::from_toml(text, Path::new("campaign.toml"), "1").unwrap()
}

fn mistakes(text: &str) -> String {
    Campaign::from_toml(text, Path::new("campaign.toml"), "1").unwrap_err().to_string()
}

fn unit(cell: &Cell, round: u32, outcome: Outcome) -> Unit {
    Unit {
        cell: cell.name.clone(),
        id: cell.id.clone(),
        round,
        labels: BTreeMap::new(),
        command: cell.command.clone(),
        places: None,
        campaign: String::new(),
        nearside: String::new(),
        model: None,
        host: None,
        kernel: String::new(),
        began_s: 0.0,
        load: None,
        notes: Vec::new(),
        outcome,
    }
}

fn measured(cell: &Cell, round: u32, seconds: f64) -> Unit {
    let metrics = [("A".to_owned(), 1.0 - seconds / 100.0)].into();
    unit(cell, round, Outcome::Measured(Measured { seconds, wall_seconds: seconds, metrics }))
}

#[test]
fn a_grid_of_two_by_four_has_eight_names() {
    let study = campaign(STUDY);
    let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
    let expected = [
        "nb-enabled-sockorder",
        "nb-enabled-sockets",
        "nb-enabled-sequential",
        "nb-enabled-none",
        "nb-disabled-sockorder",
        "nb-disabled-sockets",
        "nb-disabled-sequential",
        "nb-disabled-none",
    ];
    assert_eq!(names, expected);
    let ids: BTreeSet<&str> = study.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids.len(), 8);
    let cell = &study.cells[6];
    assert_eq!((cell.balancing, cell.pinning), (Some(false), Some(Pinning::Sequential)));
    assert_eq!(study.labels(cell).collect::<Vec<_>>(), [("balancing", "nb-disabled"), ("pinning", "sequential")]);
    assert_eq!(study.cell(&cell.labels), Some(cell));
}

/// T14: a command is what a shell would make of it, in its order.
#[test]
fn words_and_quotes_of_a_command_are_those_of_a_shell() {
    let text =
        "title = \"t\"\ncommand = \"sh -c 'echo {size} {n}' '' end\"\n[grid]\nsize = { small = \"1 MiB\" }\nn = [3]\n";
    assert_eq!(campaign(text).cells[0].command, ["sh", "-c", "echo 1 MiB 3", "", "end"]);
    assert_eq!(campaign(text).cells[0].name, "small-3");
}

#[test]
fn the_id_of_a_cell_is_that_of_what_decides_its_result() {
    let ids = |text: &str| campaign(text).cells.iter().map(|cell| cell.id.clone()).collect::<Vec<_>>();
    let changed = |from: &str, to: &str| {
        let text = STUDY.replace(from, to);
        assert_ne!(text, STUDY);
        ids(&text) != ids(STUDY)
    };
    assert!(changed("--json", "--json --more") && changed("/seconds", "/time") && changed("\"/a\"", "\"/b\""));
    assert!(!changed("max = 5", "max = 50") && !changed("the study's grid", "another") && !changed("3 %", "1 %"));
    let lab = STUDY.replace("[grid]", "[grid]\nmachine = [\"small-2x2\"]");
    let in_lab = |version| Campaign::from_toml(&lab, Path::new("c.toml"), version).unwrap().cells[0].id.clone();
    assert!(in_lab("1") != in_lab("2") && in_lab("1") != campaign(STUDY).cells[0].id);
    // A setting of a later version leaves the results of earlier ones to their cells.
    let defaults = "Lab { cpus_per_node: None, memory_per_node: None, time_scale: 1, fidelity: Full, as_root: false, \
                    host_timeout_s: 3600 }";
    assert_eq!(Lab::default().identity(), defaults);
    let numbered = |numbers: &str| {
        let lab = format!("{lab}\n[lab]\ncpu_numbers = \"{numbers}\"\n");
        Campaign::from_toml(&lab, Path::new("c.toml"), "1").unwrap().cells[0].id.clone()
    };
    assert!(numbered("nested") == in_lab("1") && numbered("preset") != in_lab("1"));
    // Cells that stay keep their results when others are added.
    let more = STUDY.replace("\"none\"]", "\"none\"]\n[[exclude]]\nbalancing = \"nb-enabled\"");
    assert_eq!(ids(&more), ids(STUDY)[4..]);
}

#[test]
fn mistakes_are_found_where_they_are() {
    let mistakes_of = |from: &str, to: &str| mistakes(&STUDY.replacen(from, to, 1));
    for (from, to, expected) in [
        ("[grid]", "[grid]\nsize = [1]", "campaign.toml:10: grid.size: no command or variable has {size}"),
        ("\"off\"", "\"of\"", "grid.balancing: values are `on` and `off`"),
        ("\"none\"]", "\"non\"]", "`non` is no pinning"),
        ("\"none\"]", "\"none\", \"none\"]", "has a label twice"),
        ("min = 2", "min = 1", "runs.min: must be at least 2"),
        ("max = 5", "max = 1", "runs.min: must be from 1 to max"),
        ("\"3 %\"", "\"3\"", "is not a percentage"),
        ("program --json", "program '", "a quote without its end"),
        ("program --json", "program {x}", "{x}"),
        ("pinning = \"sequential\", ", "pin = 'sequential', ", "effect[0].of.pin: there is no axis `pin`"),
        ("against = { pinning = \"sockorder\" }", "against = {}", "must name labels"),
        ("at_least = \"5 %\"", "within = \"5 %\"", "only `same` and `no increase` have it"),
        ("\"increase\"", "\"no increase\"", "`no increase` has `within`"),
        ("value = -0.95", "value = -95", "must be from -1 to 1"),
        ("command = \"program --json\"", "", "is needed, or an axis `app`"),
        ("title", "tile", "did you mean `title`"),
        ("[grid]", "[grid]\nmachine = [\"small-2x3\"]", "grid.machine"),
        ("seconds = \"/seconds\"", "seconds = \"s\"", "neither a JSON pointer"),
        ("[metrics]", "[metrics]\nround = \"/r\"", "metrics.round: has the name of a column"),
        ("program --json", "program {cell}", "{cell}"),
    ] {
        let found = mistakes_of(from, to);
        assert!(found.contains(expected), "{to}: {found}");
    }
    let huge =
        format!("title = 't'\ncommand = '{{a}} {{b}}'\n[grid]\na = {0:?}\nb = {0:?}\n", (0..400).collect::<Vec<_>>());
    assert!(mistakes(&huge).contains("more than 100000 combinations"));
    let twice = "title = 't'\n[grid]\napp = { cg = 'cg {size}', ep = 'ep' }\nsize = [1, 2]\n";
    assert!(mistakes(twice).contains("`ep-1` and `ep-2` are the same run: exclude one"));
}

#[test]
fn baselines_of_several_cells_and_names_that_no_output_can_have_are_mistakes() {
    let several = format!("{STUDY}\n[baseline]\npinning = [\"none\", \"sockets\"]\n");
    assert!(mistakes(&several).contains("baseline: has one label of an axis"), "{}", mistakes(&several));
    for name in ["a\\u001b]0;x\\u0007", "vmstat.pgfault", "mean(A)"] {
        let named = STUDY.replace("[grid]", &format!("[grid]\n\"{name}\" = [\"1\"]"));
        assert!(mistakes(&named).contains("the name of an axis has 1 to 64 letters"), "{}", mistakes(&named));
    }
}

#[test]
fn a_ratio_has_an_interval_if_both_sides_ran_on_the_same_hosts() {
    let campaign = campaign(STUDY);
    let all: Vec<&Cell> = campaign.cells.iter().collect();
    let has_interval = |effect: usize, on_b: fn(usize, u32) -> bool| {
        let number = |cell: &Cell| all.iter().position(|of| of.id == cell.id).unwrap();
        let unit = |cell: &Cell, round: u32| Unit {
            host: Some(if on_b(number(cell), round) { "b" } else { "a" }.to_owned()),
            ..measured(cell, round, 1.0 + f64::from(round) / 1000.0)
        };
        let units = all.iter().flat_map(|cell| (0..20).map(move |round| unit(cell, round)));
        let results = Results::of(&campaign, units.collect::<Vec<_>>()).0;
        Judged::new(&campaign, &results, &all).effects()[effect].ratio.unwrap().interval.is_some()
    };
    // One pair: the third of the last four cells, and the first of them.
    let other_hosts = [|number, round| number == 6 && round < 2, |number, round| number == 6 && round < 3];
    assert_eq!(other_hosts.map(|on_b| has_interval(0, on_b)), [true, false], "a tenth of the runs, and more");
    // All runs of a cell are one part's, which ran on one host.
    assert_eq!((has_interval(0, |_, _| false), has_interval(0, |number, _| number / 2 % 2 == 1)), (true, false));
    // Four pairs: each of the first four cells with one of the last four.
    assert!(!has_interval(1, |number, _| number >= 4), "what differs may be the host");
    assert!(has_interval(1, |number, _| (number >= 4) != (number % 2 == 0)), "both hosts are on both sides");
    assert!(!has_interval(1, |number, _| number == 0), "one of four");
}

#[test]
fn a_cell_that_is_the_fastest_itself_is_compared_with_itself() {
    let text = "title = 't'\ncommand = 'p {n}'\nseconds = '/s'\n[grid]\nn = [1, 2, 3]\n[[effect]]\nname = 'e'\n\
                of = { n = '1' }\nagainst = { n = ['1', '2', '3'] }\nexpect = 'same'\nwithin = '1 %'\n";
    let campaign = campaign(text);
    let all: Vec<&Cell> = campaign.cells.iter().collect();
    let times = |cell: &Cell| if cell.labels == [0] { [1.0, 1.5, 0.5] } else { [9.0, 9.1, 9.2] };
    let units = all.iter().flat_map(|cell| (0..).zip(times(cell)).map(|(round, s)| measured(cell, round, s)));
    let results = Results::of(&campaign, units.collect::<Vec<_>>()).0;
    let effect = &Judged::new(&campaign, &results, &all).effects()[0];
    assert_eq!((effect.claim, effect.ratio.unwrap().interval), (Claim::Met, Some((1.0, 1.0))), "it does not vary");
}

#[test]
fn braces_are_doubled() {
    let text = "title = 't'\ncommand = 'awk \"{{print {n}}}\" }'\n[grid]\nn = [3]\n";
    assert_eq!(campaign(text).cells[0].command, ["awk", "{print 3}", "}"]);
}

#[test]
fn a_cell_runs_until_its_interval_is_narrow() {
    let study = campaign(STUDY);
    let progress = Progress { campaign: &study };
    let cells: Vec<&Cell> = study.cells.iter().collect();
    let [narrow, wide, failing] = [cells[0], cells[1], cells[2]];
    let mut results = Results::of(&study, []).0;
    assert_eq!((progress.next_round(&results, &cells), progress.left(&results, &cells)), (Some(0), (16, 40)));
    assert_eq!(progress.round(&results, &cells, 0).len(), 8);
    for round in 0..5 {
        results.add(measured(wide, round, f64::from(10 + round)));
        if round < 2 {
            results.add(measured(narrow, round, 10.0 + f64::from(round) / 1e3));
            assert_eq!(progress.is_over(&results, narrow), round == 1);
        }
        assert_eq!(progress.is_over(&results, wide), round == 4, "up to max runs");
    }
    results.add(unit(failing, 0, Outcome::Failed { why: "exit status 3".into(), output: String::new() }));
    assert!(progress.is_over(&results, failing));
    assert_eq!(progress.left(&results, &cells), (10, 25));
    // Results after a gap are those of an older run; the gap is filled first.
    results.add(measured(cells[3], 1, 1.0));
    assert!(progress.round(&results, &cells, 0).contains(&cells[3]));
}

#[test]
fn rounds_have_their_own_orders_that_the_seed_decides() {
    let study = campaign(STUDY);
    let cells: Vec<&Cell> = study.cells.iter().collect();
    let order = |campaign: &Campaign, round, cells: &[&Cell]| -> Vec<String> {
        let mut results = Results::of(&study, []).0;
        for before in 0..round {
            for cell in cells {
                results.add(measured(cell, before, f64::from(1 + before * 9)));
            }
        }
        let found = campaign.clone();
        Progress { campaign: &found }
            .round(&results, &found.cells.iter().filter(|c| cells.contains(c)).collect::<Vec<_>>(), round)
            .iter()
            .map(|cell| cell.name.clone())
            .collect()
    };
    let first = order(&study, 0, &cells);
    assert_eq!(first, order(&study, 0, &cells));
    assert_ne!(first, order(&study, 1, &cells));
    assert_ne!(first, order(&campaign(&STUDY.replace("seed = 7", "seed = 8")), 0, &cells));
    let listed = campaign(&STUDY.replace("seed = 7", "order = \"listed\""));
    assert_eq!(order(&listed, 0, &cells)[..3], ["nb-enabled-sockorder", "nb-enabled-sockets", "nb-enabled-sequential"]);
    // Two cells keep their order if others are done.
    let few: Vec<&Cell> = cells[..4].to_vec();
    let kept: Vec<String> = first.iter().filter(|name| few.iter().any(|cell| cell.name == **name)).cloned().collect();
    assert_eq!(order(&study, 0, &few), kept);
}

#[test]
fn claims_are_met_missed_or_unclear() {
    let study = campaign(STUDY);
    let run = |times: &[(usize, [f64; 2])]| {
        let units = times.iter().flat_map(|(cell, times)| {
            (0..).zip(times).map(|(round, seconds)| measured(&study.cells[*cell], round, *seconds))
        });
        Results::of(&study, units.collect::<Vec<_>>()).0
    };
    let all = |sequential: f64| {
        let times: Vec<(usize, [f64; 2])> = (0..8)
            .map(|cell| {
                let seconds = if cell % 4 == 2 { sequential } else { 10.0 };
                (cell, [seconds, seconds + 0.01])
            })
            .collect();
        run(&times)
    };
    let cells: Vec<&Cell> = study.cells.iter().collect();
    let effects = |results: &Results| Judged::new(&study, results, &cells).effects();
    let correlations = |results: &Results| Judged::new(&study, results, &cells).correlation_results();
    let claims = |results: &Results| effects(results).iter().map(|effect| effect.claim).collect::<Vec<_>>();
    assert_eq!(claims(&all(12.0)), [Claim::Met, Claim::Met]);
    assert_eq!(claims(&all(10.2)), [Claim::Missed, Claim::Met]);
    assert_eq!(claims(&run(&[(6, [8.0, 16.0]), (4, [10.0, 10.1])])), [Claim::Unclear, Claim::NoData]);
    let effects = effects(&all(12.0));
    assert_eq!(effects[1].pairs.len(), 4);
    assert_eq!((effects[0].expected.as_str(), effects[0].source.as_str()), ("at least 5 % more", "Gachod 6.2.1"));
    assert!((effects[0].ratio.unwrap().mean - 12.005 / 10.005).abs() < 1e-9);
    let correlated = correlations(&all(12.0));
    assert_eq!(correlated[0].claim, Claim::Met);
    assert!((correlated[0].found.as_ref().unwrap().r + 1.0).abs() < 1e-9);
    let ranking = ranking(&study, &all(12.0), &Selector::default());
    assert_eq!((ranking.len(), ranking[0].found.runs), (1, 16));
    assert_eq!(correlations(&run(&[]))[0].claim, Claim::NoData);
    // Of some of the cells, only claims are judged that are about no others.
    let (results, some) = (all(12.0), cells[4..].to_vec());
    let judged = Judged::new(&study, &results, &some);
    assert_eq!(judged.effects().iter().map(|effect| effect.name.as_str()).collect::<Vec<_>>(), ["P4"]);
    assert_eq!(judged.correlations().count(), 0);
}

/// A policy beside the fastest of all, on average and in each program.
#[test]
fn claims_may_be_about_the_fastest_and_about_each_pair() {
    let policies = campaign(
        r#"
title = "t"
command = "{policy} {program}"
[grid]
program = ["a", "b"]
policy = ["none", "one", "other"]
[[effect]]
name = "on average"
of = { policy = "other" }
against = { policy = ["none", "one", "other"] }
expect = "no increase"
within = "3 %"
[[effect]]
name = "each"
each = true
of = { policy = "other" }
against = { policy = ["none", "one", "other"] }
expect = "no increase"
within = "3 %"
"#,
    );
    let effects = |times: [f64; 6]| {
        let runs = policies.cells.iter().zip(times);
        let units = runs.flat_map(|(cell, time)| [measured(cell, 0, time), measured(cell, 1, time + 1e-6)]);
        let results = Results::of(&policies, units.collect::<Vec<_>>()).0;
        Judged::new(&policies, &results, &policies.cells.iter().collect::<Vec<_>>()).effects()
    };
    let [average, each] = effects([1.2, 1.3, 1.0, 2.0, 1.0, 1.05]).try_into().unwrap();
    assert_eq!((average.claim, average.expected.as_str()), (Claim::Met, "at most 3 % more"));
    assert!((average.ratio.unwrap().mean - 1.05_f64.sqrt()).abs() < 1e-3, "{average:?}");
    let worst = each.worst.unwrap();
    assert_eq!((each.claim, worst.of.as_str(), worst.against.as_str()), (Claim::Missed, "b-other", "b-one"));
    let [average, each] = effects([1.2, 1.3, 1.0, 2.0, 1.0, 1.02]).try_into().unwrap();
    assert_eq!((average.claim, each.claim), (Claim::Met, Claim::Met));
    let units = policies.cells[1..].iter().map(|cell| measured(cell, 0, 1.0));
    let results = Results::of(&policies, units.collect::<Vec<_>>()).0;
    let cells: Vec<&Cell> = policies.cells.iter().collect();
    let unknown = Judged::new(&policies, &results, &cells).effects();
    assert!(unknown.iter().all(|effect| effect.claim == Claim::NoData), "the missing one may be the fastest");
    let slow_in = |program: usize| {
        let units = policies.cells.iter().enumerate().filter(|(at, _)| at / 3 == program);
        let units = units.map(|(at, cell)| measured(cell, 0, if at % 3 == 2 { 2.0 } else { 1.0 }));
        let results = Results::of(&policies, units.collect::<Vec<_>>()).0;
        Judged::new(&policies, &results, &cells).effects()
    };
    let some = slow_in(0);
    assert_eq!([some[0].claim, some[1].claim], [Claim::NoData, Claim::Missed], "one is enough to miss it");
    assert_eq!(some[1].worst.as_ref().unwrap().of, "a-other");
}

#[test]
fn a_folder_holds_each_result_once_and_nothing_by_halves() {
    let study = campaign(STUDY);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let lock = store.lock(None).unwrap();
    let all: Vec<&Cell> = study.cells.iter().collect();
    let part = |index, count| Some(Part::new(&all, index, count));
    let is_busy = |part: &Option<Part>| matches!(store.lock(part.as_ref()), Err(StoreError::Busy(_)));
    assert!([None, part(0, 2)].iter().all(is_busy));
    drop(lock);
    let _parts = [part(0, 2), part(1, 2)].map(|part| store.lock(part.as_ref()).unwrap());
    // Part 0 of 3 has cells of both, and so may have part 1 of 2 of some of the cells.
    assert!([None, part(0, 2), part(0, 3), Some(Part::new(&all[1..], 1, 2))].iter().all(is_busy));
    let kept =
        [measured(&study.cells[0], 0, 1.5), measured(&study.cells[0], 1, 2.5), measured(&study.cells[1], 0, 3.5)];
    for unit in &kept {
        store.keep(unit).unwrap();
    }
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, store.file(&study.cells[0].id, 0).with_extension("new")).unwrap();
    store.keep(&kept[0]).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "links of other users are not followed");
    // What a kill leaves, a damaged file and a result in the place of another.
    let of_cell = store.file(&study.cells[0].id, 0).parent().unwrap().to_owned();
    std::fs::write(of_cell.join("9.new"), "{").unwrap();
    std::fs::write(of_cell.join("7.json"), "{").unwrap();
    std::fs::copy(store.file(&study.cells[0].id, 0), of_cell.join("8.json")).unwrap();
    let (units, notes) = store.read().unwrap();
    assert_eq!(units.len(), 3);
    assert!(notes.len() == 2 && notes[0].contains("7.json is no result") && notes[1].contains("8.json is the result"));
    let fewer = STUDY.replace("[[correlation]]", "[[exclude]]\npinning = \"sockorder\"\n[[correlation]]");
    let (results, others) = Results::of(&campaign(&fewer), units);
    assert_eq!((others, results.units(&study.cells[1].id).len()), (2, 1), "results of cells that are gone stay");
    store.forget(&kept[0]).unwrap();
    assert_eq!(store.read().unwrap().0.len(), 2);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".*") {
        let _ = Campaign::from_toml(&text, Path::new("c.toml"), "1");
    }

    /// Any change of a good file is either read or refused with a line.
    #[test]
    fn changed_files_are_read_or_refused(at in 0..STUDY.len(), length in 0..40_usize, with in "[a-z0-9{}\\[\\]=\" %|-]{0,12}") {
        let end = (at + length).min(STUDY.len());
        let text = format!("{}{with}{}", &STUDY[..at], &STUDY[end..]);
        match Campaign::from_toml(&text, Path::new("c.toml"), "1") {
            Ok(campaign) => prop_assert!(campaign.cells.windows(2).all(|pair| pair[0].labels < pair[1].labels)),
            Err(error) => prop_assert!(error.to_string().starts_with("c.toml:"), "{error}"),
        }
    }
}
