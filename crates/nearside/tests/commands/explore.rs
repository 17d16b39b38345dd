//! `nearside explore` on any host: results, what is continued after any end, and wrong files.

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// Eight cells, whose programs print their time.
const GRID: &str = r#"
title = "eight cells"
command = "sh program {a}.{b} {a}"
seconds = "/seconds"
runs = { min = 2, max = 3, until = "1 %" }
[metrics]
n = "/n"
[grid]
a = { one = 1, two = 2 }
b = [0, 1, 2, 3]
"#;

/// A folder with a campaign.
struct Place(TempDir);

impl Place {
    fn new(campaign: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write(campaign);
        place
    }

    fn write(&self, campaign: &str) {
        // Braces in a campaign are words.
        fs::write(self.path("program"), "#!/bin/sh\necho \"{\\\"seconds\\\": $1, \\\"n\\\": $2}\"\n").unwrap();
        fs::write(self.path("c.toml"), campaign).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn nearside(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("nearside"));
        command.current_dir(self.0.path()).args(["explore", "c.toml"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn explore(&self, arguments: &[&str], status: i32) -> (String, String) {
        let Output { status: ended, stdout, stderr } = self.nearside(arguments).output().unwrap();
        let (printed, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!(ended.code(), Some(status), "{printed}\n{said}");
        (printed, said)
    }

    /// The results in a folder: the cell and round of each, with its time.
    fn results(&self, folder: &str) -> BTreeMap<(String, u64), Option<String>> {
        let mut all = BTreeMap::new();
        for cell in fs::read_dir(self.path(folder).join("cells")).unwrap() {
            for file in fs::read_dir(cell.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "json") {
                    let unit: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
                    let seconds = unit.pointer("/outcome/measured/seconds").map(Value::to_string);
                    let key = (unit["cell"].as_str().unwrap().to_owned(), unit["round"].as_u64().unwrap());
                    assert_eq!(all.insert(key, seconds), None, "a result is there twice");
                }
            }
        }
        all
    }
}

#[test]
fn a_campaign_runs_once_and_is_listed_and_reported() {
    let place = Place::new(GRID);
    let (listed, _) = place.explore(&["--list"], 0);
    assert!(listed.contains("one-0 ") && listed.ends_with("8 cells, 16 to 24 runs left\n"), "{listed}");
    let (tables, _) = place.explore(&["--collect", "--csv", "-"], 1);
    assert!(tables.starts_with("cell,a,b,") && tables.lines().count() == 1, "only the table of runs: {tables}");
    assert!(!place.path("c.results").exists(), "reading makes no folder");
    let (printed, said) = place
        .explore(&["--csv", "runs.csv", "--json", "all.json", "--html", "page.html", "--parquet", "runs.parquet"], 0);
    assert!(printed.starts_with("eight cells: 8 cells, 16 runs\n"), "{printed}");
    assert!(said.contains("nearside: two-3, run 2: 2.300000 s; "), "{said}");
    let results = place.results("c.results");
    assert_eq!((results.len(), results[&("two-3".to_owned(), 1)].as_deref()), (16, Some("2.3")));
    let csv = fs::read_to_string(place.path("runs.csv")).unwrap();
    assert!(csv.starts_with("cell,a,b,host,failed,round,seconds,wall_seconds,n"), "{csv}");
    assert_eq!(csv.lines().count(), 17);
    assert!(fs::read_to_string(place.path("page.html")).unwrap().contains("<title>nearside explore: eight cells"));
    assert!(fs::read(place.path("runs.parquet")).unwrap().starts_with(b"PAR1"));
    let json: Value = serde_json::from_str(&fs::read_to_string(place.path("all.json")).unwrap()).unwrap();
    assert_eq!((&json["cells"][7]["metrics"]["n"], &json["left"]), (&2.0.into(), &0.into()));
    // Nothing is run again, and what was run is found by its labels.
    let (printed, said) = place.explore(&["--only", "a=two,b=1|3"], 0);
    assert!(printed.starts_with("eight cells: 2 cells, 4 runs\n") && said.is_empty(), "{printed}{said}");
    assert!(place.explore(&["--list"], 0).0.ends_with("8 cells, 0 runs left\n"));
    assert!(place.explore(&["--only", "a=three"], 2).1.contains("its labels are one, two"));
}

#[test]
fn claims_of_the_file_decide_the_exit_code() {
    let claim = |expect: &str| {
        format!(
            "{GRID}[[effect]]\nname = \"P\"\nof = {{ a = \"two\" }}\nagainst = {{ a = \"one\" }}\nexpect = {expect}\n"
        )
    };
    let place = Place::new(&claim("\"increase\"\nat_least = \"70 %\""));
    let (printed, _) = place.explore(&["--quiet"], 0);
    assert!(printed.contains("at least 70 % more  +87.6 %") && printed.contains(" met\n"), "{printed}");
    place.write(&claim("\"decrease\""));
    let (printed, _) = place.explore(&["--collect"], 3);
    assert!(printed.contains(" missed\n"), "{printed}");
    assert!(printed.contains("16 runs were made before the last change of the file"), "{printed}");
}

#[test]
fn a_cell_that_fails_is_a_result_with_its_reason() {
    let place = Place::new(
        r#"
title = "failures"
seconds = "/seconds"
timeout_s = 0.5
runs = { min = 2, max = 2 }
[grid]
app = { good = "sh program 1 1", loud = "yes", status = "sh -c 'echo why >&2; exit 3'", hang = "sleep 60", silent = "echo none", missing = "./none" }
"#,
    );
    let (printed, _) = place.explore(&["--quiet"], 1);
    for expected in [
        "status failed: exit status 3\n",
        "it was ended after 0.5 s",
        "it was ended because it had printed more than 64 MiB",
        "it printed no positive time that matches `seconds = \"/seconds\"`",
        "cannot start `./none`: there is no such file or folder",
        "The last lines of status:\n  | why",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert_eq!(place.results("c.results").len(), 7, "a cell that failed is not run again");
    place.explore(&["--quiet"], 1);
    assert_eq!(place.results("c.results").len(), 7);
    fs::write(place.path("none"), "#!/bin/sh\nexec sh program 2 2\n").unwrap();
    fs::set_permissions(place.path("none"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let (printed, said) = place.explore(&["--retry"], 1);
    assert!(
        said.contains("missing, run 1: 2.000000 s") && said.contains("hang, run 1: it was ended"),
        "{printed}{said}"
    );
    assert!(!said.contains("good"), "{said}");
    assert_eq!(place.results("c.results").len(), 8);
}

#[test]
fn shards_together_are_the_whole() {
    let place = Place::new(GRID);
    place.explore(&["--quiet", "--into", "whole"], 0);
    let parts = ["2/3", "0/3", "1/3"];
    let run = |shard: &&str| place.nearside(&["--quiet", "--into", "parts", "--shard", shard]).spawn().unwrap();
    for mut child in parts.iter().map(run).collect::<Vec<_>>() {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(place.results("parts"), place.results("whole"));
    place.explore(&["--into", "parts", "--collect"], 0);
    assert!(place.explore(&["--shard", "3/3"], 2).1.contains("is not I/K"));
    assert!(place.explore(&["--slurm", "2", "--html", "page.html"], 2).1.contains("cannot be used with"));
    // Two hosts get each setting, so that a difference between them is none between settings.
    for part in ["0/2", "1/2"] {
        let (listed, _) = place.explore(&["--list", "--shard", part], 0);
        let number = |text: &str| listed.lines().filter(|line| line.starts_with(text)).count();
        assert_eq!((number("one-"), number("two-")), (2, 2), "{listed}");
        assert!([0, 1, 2, 3].iter().all(|b| listed.contains(&format!("-{b} "))), "{listed}");
    }
}

/// The claim is about all cells: only a run that has all of them judges it, whatever the others have left.
#[test]
fn parts_do_not_judge_claims_about_the_whole() {
    let place = Place::new(&format!(
        "{GRID}{}",
        "[[effect]]\nname = \"P\"\nagainst = { a = \"one\" }\nexpect = \"decrease\"\n"
    ));
    for part in [["--shard", "0/2"], ["--shard", "1/2"], ["--only", "a=two"]] {
        let (printed, _) = place.explore(&[part[0], part[1], "--quiet"], 0);
        assert!(printed.contains("1 of 1 claims of the file are not judged: they need cells"), "{printed}");
    }
    assert!(place.explore(&["--collect"], 3).0.contains(" missed\n"));
}

#[test]
fn results_have_their_host_and_several_are_noted() {
    let place = Place::new(GRID);
    place.explore(&["--quiet", "--csv", "runs.csv"], 0);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = fs::read_dir(place.path("c.results/cells")).unwrap().next().unwrap().unwrap().path().join("0.json");
    let unit = fs::read_to_string(&first).unwrap();
    assert!(unit.contains(&format!("\"host\": \"{host}\"")), "{unit}");
    fs::write(&first, unit.replace(&format!("\"host\": \"{host}\""), "\"host\": \"other\\u001b[2J\"")).unwrap();
    let (printed, _) = place.explore(&["--collect"], 0);
    assert!(printed.contains("the runs are of 2 hosts (") && !printed.contains('\u{1b}'), "{printed}");
}

/// What a program of a campaign starts ends with nearside, even if that is killed.
#[test]
fn a_killed_campaign_leaves_no_process() {
    let place = Place::new(
        "title = \"children\"\ncommand = \"sh -c 'sleep 987 & echo $! > child; wait'\"\n\
         runs = { min = 1, max = 1 }\n[grid]\npinning = [\"none\"]\n",
    );
    let mut nearside = place.nearside(&["--quiet"]).spawn().unwrap();
    let child = || fs::read_to_string(place.path("child")).ok()?.trim().parse::<u32>().ok();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            sleep(Duration::from_millis(10));
        }
    };
    until("the program does not start", &|| child().is_some());
    let child = child().unwrap();
    nearside.kill().unwrap();
    nearside.wait().unwrap();
    let status = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    until("the program's child runs on", &|| status().is_empty() || status().contains(") Z "));
}

#[test]
fn a_campaign_that_is_killed_at_any_time_has_the_same_results_in_the_end() {
    let place = Place::new(&GRID.replace("min = 2, max = 3", "min = 3, max = 4"));
    place.explore(&["--quiet", "--into", "whole"], 0);
    let mut random = machine::Random(22);
    for _ in 0..20 {
        let mut child = place.nearside(&["--quiet", "--into", "killed"]).spawn().unwrap();
        sleep(Duration::from_millis(5 + random.below(60) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    place.explore(&["--quiet", "--into", "killed"], 0);
    assert_eq!(place.results("killed"), place.results("whole"));
}

#[test]
fn a_full_disk_ends_the_campaign_and_leaves_nothing_by_halves() {
    let place = Place::new(GRID);
    let limited = place.nearside(&["--quiet"]);
    let mut shell = Command::new("sh");
    shell.current_dir(place.0.path()).args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(limited.get_program());
    let ended = shell.args(limited.get_args()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("cannot write c.results/cells/"), "{said}");
    assert_eq!(place.results("c.results").len(), 0);
    place.explore(&["--quiet"], 0);
    assert_eq!(place.results("c.results").len(), 16);
}

#[test]
fn two_campaigns_do_not_share_a_folder() {
    let place = Place::new(GRID);
    fs::create_dir(place.path("c.results")).unwrap();
    let lock = File::create(place.path("c.results/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let (_, said) = place.explore(&[], 1);
    assert!(said.contains("another nearside explore is running into c.results"), "{said}");
    // Looking is allowed.
    place.explore(&["--list"], 0);
    drop(lock);
    place.explore(&["--quiet"], 0);
}

#[test]
fn a_changed_file_keeps_the_results_of_cells_that_stay() {
    let place = Place::new(GRID);
    place.explore(&["--quiet", "--only", "a=one"], 0);
    place.write(&GRID.replace("b = [0, 1, 2, 3]", "b = [3, 4]"));
    let (printed, said) = place.explore(&[], 0);
    assert!(printed.contains("6 results in the folder are of cells that this file does not have"), "{printed}");
    assert!(!said.contains("one-3") && said.contains("one-4, run 1: 1.400000 s"), "{said}");
    place.write(&GRID.replace("[grid]", "[grid]\nmachin = [1]"));
    let (_, said) = place.explore(&[], 2);
    assert!(said.contains("c.toml:9: grid.machin: no command or variable has {machin}"), "{said}");
}

#[test]
fn pinnings_reach_the_program_as_openmps_places() {
    let place = Place::new(
        "title = \"places\"\ncommand = \"sh {pinning}\"\n\
         runs = { min = 1, max = 1 }\n[grid]\npinning = [\"sockorder\", \"none\"]\n",
    );
    // The settings' own words are no words of commands.
    let (_, said) = place.explore(&[], 2);
    assert!(said.contains("{pinning}"), "{said}");
    place.write(
        "title = \"places\"\ncommand = \"sh -c 'env | grep -E \\\"^G?OMP\\\" | sort > env.$0; cat env.$0' {n}\"\n\
         runs = { min = 1, max = 1 }\n[grid]\npinning = [\"sockorder\"]\nn = [1]\n",
    );
    let mut command = place.nearside(&["--quiet"]);
    command.env("OMP_NUM_THREADS", "77").env("OMP_WAIT_POLICY", "passive");
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.is_empty(), "--quiet: {said}");
    let variables = fs::read_to_string(place.path("env.1")).unwrap();
    let lines: Vec<&str> = variables.lines().collect();
    assert!(lines[0].starts_with("GOMP_CPU_AFFINITY=") && lines[1].starts_with("OMP_NUM_THREADS="), "{variables}");
    assert!(lines[2] == "OMP_PLACES={0}" || lines[2].contains("},{"), "{variables}");
    assert!(lines[3] == "OMP_PROC_BIND=close" && lines.len() == 4 && !variables.contains("77"), "{variables}");
}

/// Variables are part of a cell: another value is another cell.
#[test]
fn the_file_sets_variables_and_cells_depend_on_them() {
    let campaign = "title = \"variables\"\ncommand = \"sh -c 'echo t$OMP_NUM_THREADS=$OMP_SCHEDULE'\"\nseconds = \"t4={}\"\n\
                    runs = { min = 1, max = 1 }\n[environment]\nOMP_NUM_THREADS = \"{threads}\"\nOMP_SCHEDULE = \"7\"\n\
                    [grid]\nthreads = [4]\n";
    let place = Place::new(campaign);
    let mut command = place.nearside(&[]);
    let ran = command.env("OMP_SCHEDULE", "8").env("KMP_BLOCKTIME", "1").output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success() && said.contains("4, run 1: 7.000000 s"), "{said}");
    assert!(said.contains("KMP_BLOCKTIME, OMP_SCHEDULE of this environment are left out"), "{said}");
    place.write(&campaign.replace("\"7\"", "\"9\""));
    assert!(place.explore(&["--list"], 0).0.contains("1 runs left"));
    place.write(&campaign.replace("OMP_SCHEDULE =", "\"A=B\" ="));
    assert!(place.explore(&["--list"], 2).1.contains("is no name, or no value, of a variable"));
}

/// Slurm's own controller is not needed for what nearside does: it writes a script and gives it to `sbatch`. This one runs
/// the tasks as Slurm would, and the last one twice, as after a requeue.
#[test]
fn a_job_array_runs_the_whole_campaign() {
    let place = Place::new(GRID);
    let without = place.nearside(&["--slurm", "3"]).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8(without.stderr).unwrap();
    assert!(without.status.code() == Some(1) && said.contains("is Slurm installed here?"), "{said}");
    fs::create_dir(place.path("bin")).unwrap();
    let sbatch = "#!/bin/sh\ngrep -q '^#SBATCH --array=0-2$' \"$1\" || exit 9\nfor task in 0 1 2 2; do\n\
                  SLURM_ARRAY_TASK_ID=$task sh \"$1\" || exit 8\ndone\n";
    fs::write(place.path("bin/sbatch"), sbatch).unwrap();
    fs::set_permissions(place.path("bin/sbatch"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    let submitted = place.nearside(&["--slurm", "3"]).env("PATH", path).status().unwrap();
    assert!(submitted.success(), "{submitted}");
    assert_eq!(place.results("c.results").len(), 16);
    assert!(place.explore(&["--collect"], 0).0.starts_with("eight cells: 8 cells, 16 runs\n"));
}

/// A task that is put back into the queue must not repeat what has failed meanwhile: submitting forgets failures, once.
#[test]
fn a_job_array_retries_what_failed_before_it_was_submitted() {
    let place = Place::new(
        "title = \"fails\"\ncommand = \"sh -c 'echo {n} >> began; exit 3'\"\nruns = { min = 1, max = 1 }\n[grid]\nn = [1]\n",
    );
    place.explore(&["--quiet"], 1);
    fs::create_dir(place.path("bin")).unwrap();
    let sbatch = "#!/bin/sh\nfor task in 0 0; do SLURM_ARRAY_TASK_ID=$task sh \"$1\"; done\ntrue\n";
    fs::write(place.path("bin/sbatch"), sbatch).unwrap();
    fs::set_permissions(place.path("bin/sbatch"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    let submitted = place.nearside(&["--slurm", "1", "--retry"]).env("PATH", path).output().unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    assert_eq!(fs::read_to_string(place.path("began")).unwrap(), "1\n1\n");
}
