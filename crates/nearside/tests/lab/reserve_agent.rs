//! Grants that the agent makes for its callers, as root and other users of a virtual machine.

use crate::library::compiled;
use crate::reserve::run_script;
use crate::support::{Lab, RunOutput};
use test_tools::Checks;
use test_tools::json_fields::assert_documented;

/// An agent that makes grants, and how to see what is left of them.
const BEGIN: &str = include_str!("programs/reserve_agent_begin.sh");

const CALLS: &str = include_str!("programs/reserve_agent_calls.sh");

const KILL: &str = include_str!("programs/reserve_agent_kill.sh");

const TIMES: &str = include_str!("programs/reserve_agent_times.sh");

const STUDY: &str = include_str!("programs/reserve_agent_study.sh");

const DRAWN: &str = include_str!("programs/reserve_agent_drawn.sh");

const ZONE: &str = include_str!("programs/reserve_agent_zone.sh");

const FAULTS: &str = include_str!("programs/reserve_agent_faults.sh");

const END: &str = include_str!("programs/reserve_agent_end.sh");

fn run(part: &str) -> RunOutput {
    run_in(&Lab::new(), "small-4x2", &[], part)
}

/// What a batch system's prolog calls, as packages have it.
const HOOK: &str = include_str!("../../../../packaging/adopt-cgroup");

fn run_in(lab: &Lab, machine: &str, fidelity: &[&str], part: &str) -> RunOutput {
    std::fs::write(lab.path("work/adopt-cgroup"), HOOK).unwrap();
    let ran = run_script(lab, machine, fidelity, &[BEGIN, part, END].concat());
    assert_eq!(ran.section("end"), "status 0\nsame\ngrants\nmachine.toml\n", "{}", ran.text());
    ran
}

/// Zones of the study: grants have partitions within the zone's, and programs without a grant run elsewhere.
#[test]
fn an_isolated_zone_has_no_other_programs_and_goes_on_after_a_kill() {
    let ran = run(ZONE);
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    let all_outside = "root\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0-3\n";
    part("zone", &|zone| assert_eq!(zone, format!("{all_outside}taskset 1\n")));
    part("grants", &|grants| {
        let own = "Cpus_allowed_list:\t2\n0::/nearside-zone/nearside-grant-1\nCpus_allowed_list:\t4-5\n";
        // All CPUs of the zone may be isolated at once: no other program has to run there.
        assert!(grants.starts_with(&format!("{own}status 0\nstatus 0\nstatus 0\n")), "{grants}");
        assert!(grants.contains("node 0: 0 of the cores of CPU 0 are free"), "{grants}");
        assert!(grants.ends_with("control group /outer is outside of the isolated zone\nstatus 1\n"), "{grants}");
    });
    part("killed", &|killed| assert_eq!(killed, format!("{all_outside}Cpus_allowed_list:\t6\n{all_outside}")));
    // Programs leave the zone with their grants.
    part("live", &|live| {
        let inside = "Cpus_allowed_list:\t2\nMems_allowed_list:\t1\n";
        let outside = "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t";
        assert_eq!(live, format!("{inside}{outside}1\n{outside}0-3\n0::/\n{inside}"));
    });
    part("ended", &|ended| {
        let gone = "ls: cannot access '/sys/fs/cgroup/nearside-zone': No such file or directory\n";
        let all = "Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nsame\n";
        assert!(ended.starts_with(&format!("status 0\n{gone}{all}")), "{ended}");
        assert!(ended.ends_with("no CPU would be left for the rest of the machine\n"), "{ended}");
    });
}

/// A grant that draws nothing is in no one's way, and one that begins to draw more than its neighbour's bound allows is
/// reported.
#[test]
fn what_grants_draw_is_counted_and_forecasts_follow() {
    let ran = run_in(&Lab::new(), "small-4x2", &[], DRAWN);
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    // The tenant has no program yet: it counts with all that its core can draw.
    part("unseen", &|said| {
        assert!(said.starts_with("refused: memory of node 3: it would be slowed by +105.1 %"), "{said}");
        assert!(said.ends_with("status 3\n"), "{said}");
    });
    part("idle", &|said| {
        assert!(said.contains("guard") && said.contains("controller 3 guarded"), "{said}");
        assert!(said.contains(" 0.0/0.0 ") && said.contains("all other CPUs draw "), "{said}");
    });
    part("busy", &|said| {
        let first = said.lines().next().unwrap_or_default();
        let slow = first.strip_prefix("by the most that was drawn lately, others slow grant ").unwrap_or_default();
        assert!(slow.contains(" (guard) by ") && slow.contains(", and its bound is 5.0 %: grant 1 draws "), "{said}");
        assert!(said.contains("  draws ") && said.contains(" GB/s in reads and "), "{said}");
    });
    part("json", &|text| {
        let list: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_documented("reserve list", [&list]);
        let (tenant, guard) = (&list["grants"][0], &list["grants"][1]);
        let read = tenant["drawn"]["read"].as_f64().unwrap();
        assert!((2e9..6e9).contains(&read), "{text}");
        assert_eq!((&guard["times_above_bound"], &tenant["times_above_bound"]), (&1.into(), &0.into()), "{text}");
        assert!(guard["forecast_slowdown"].as_f64() > Some(0.05), "{text}");
    });
    part("ended", &|said| assert_eq!(said, ""));
}

#[test]
fn the_agent_makes_grants_and_nothing_is_left_of_them() {
    let ran = run(CALLS);
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    part("none", &|none| {
        assert_eq!(none.matches("no agent makes grants on this machine").count(), 2, "{none}");
        assert!(none.matches("status 4\n").count() == 2 && none.ends_with("no grants\nstatus 0\n"), "{none}");
    });
    part("run", &|run| {
        assert!(
            run.starts_with("Cpus_allowed_list:\t2\nMems_allowed_list:\t1\n0::/nearside-grant-1\ngrant 1\n"),
            "{run}"
        );
        let quota: f64 = run.lines().nth(4).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((1000.0..7000.0).contains(&quota), "{run}");
        assert!(run.ends_with("2-3\nstatus 7\nsame\n"), "{run}");
    });
    part("not started", &|it| assert!(it.contains("cannot start /nowhere/program") && it.ends_with("same\n"), "{it}"));
    part("options", &|it| assert!(it.contains("are in its configuration\nstatus 2\n"), "{it}"));
    part("user", &|user| {
        assert!(user.starts_with("65534\n0::/nearside-grant-") && user.ends_with("status 0\nsame\n"), "{user}");
    });
    part("quota", &|quota| {
        assert_eq!(quota.matches("may have 0 grants in all, has 0 and asks for 1\nstatus 3\n").count(), 2, "{quota}");
        assert!(quota.contains("may have 3 cores in all, has 2 and asks for 2\nstatus 3\n"), "{quota}");
        assert!(quota.ends_with("same\n"), "{quota}");
    });
    part("killed", &|killed| {
        let (ms, rest) = killed.split_once('\n').unwrap();
        assert!(ms.parse::<u32>().unwrap() <= 200 && rest == "same\n", "{killed}");
    });
    part("named", &|named| {
        assert!(named.contains("\"granted\": true") && named.contains("the name is taken by grant"), "{named}");
        assert!(named.contains("status 3\nCpus_allowed_list:\t4-5\nMems_allowed_list:\t2\nstatus 5\n"), "{named}");
        assert!(named.contains("status 0\nCpus_allowed_list:\t4-5\nMems_allowed_list:\t2-3\nmax 100000\n"), "{named}");
        assert!(named.contains("memory of node 2-3") && named.lines().last().unwrap().ends_with("db"), "{named}");
    });
    part("strangers", &strangers);
    part("holder", &|holder| {
        let lines: Vec<&str> = holder.lines().collect();
        assert!(lines[0].ends_with("is another user's") && lines[1] == "status 1", "{holder}");
        assert_eq!(lines[2..], ["status 0", "Cpus_allowed_list:\t0-7", "same"], "{holder}");
    });
    part("two", &|two| {
        assert!(two.starts_with("status 0\n0::/nearside-grant-") && two.ends_with("\nstatus 0\nsame\n"), "{two}");
    });
    part("full", &|full| assert_eq!(full, "0::/\nsame\n"));
    part("moved", &|moved| {
        let lines: Vec<&str> = moved.lines().collect();
        assert_eq!(lines[0], "Cpus_allowed_list:\t0", "{moved}");
        assert!(lines[2].contains("moves from CPUs 0 to CPUs 2"), "{moved}");
        assert_eq!(lines[3..], ["Cpus_allowed_list:\t2", "Mems_allowed_list:\t1", "same"], "{moved}");
    });
    part("adopt", &adopted);
    part("job", &|job| {
        assert!(job.starts_with("status 0\ngrant ") && job.contains(" (job-7): CPUs 2-3, memory of node 1 "), "{job}");
        assert!(job.ends_with(" guarded\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t1\nsame\n"), "{job}");
    });
    part("lease", &|lease| assert_eq!(lease, "same\n"));
    part("lost", &lost);
    part("removed", &|removed| {
        assert!(
            removed.contains("there is no such file or folder\nstatus 1\nstatus 0\nits CPUs or nodes are not"),
            "{removed}"
        );
        // A partition is a member first, before the kernel removes its files.
        let ends = ["No such device (os error 19)\nsame\n", "cpuset.cpus.partition is `member`\nsame\n"];
        assert!(ends.iter().any(|end| removed.ends_with(end)), "{removed}");
    });
    part("many", &|many| assert_eq!(many, "same\n"));
    part("second", &|second| assert!(second.contains("an agent is running already (process N)"), "{second}"));
}

/// Which groups become grants, and what they have then.
fn adopted(adopt: &str) {
    for said in [
        "/ cannot become a grant: it is the topmost one, or its name has `..`\nstatus 1\n",
        "outer cannot become a grant: it is named from the topmost one, such as /batch.slice\nstatus 1\n",
        "/../outer cannot become a grant: it is the topmost one, or its name has `..`\nstatus 1\n",
        "/nowhere cannot become a grant: there is no such control group\nstatus 1\n",
        "the kernel makes partitions of topmost groups: leave --isolate core and cache out\nstatus 1\n",
        "only root may make a control group a grant\nstatus 1\nCpus_allowed_list:\t6\nMems_allowed_list:\t3\n67108864\n",
        "/outer/inner cannot become a grant: it is, has or is in grant ",
        "\nCpus_allowed_list:\t6\nMems_allowed_list:\t2-3\n",
        "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t1\n\nroot\ntaskset 1\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nrestored\nsame\n",
    ] {
        assert!(adopt.contains(said), "{said}: {adopt}");
    }
}

#[test]
fn an_agent_that_is_killed_leaves_grants_that_are_whole_or_none() {
    let ran = run(KILL);
    let left = ran.section("left");
    for said in [
        " 2-3 1 - by CPU time - - +N % N s db\n",
        " 4 2-3 - no - - +N % N s outer\n",
        " 6 3 - no - - +N % N s -\n",
        "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t1\nCpus_allowed_list:\t4\nMems_allowed_list:\t2-3\nCpus_allowed_list:\t6\n",
        "\ntaskset 1\nlimited as before\nrefused: the name is taken by grant N (db)\n",
        "info,name=\"db\",owner=\"0\",cpus=\"2-3\",idle_siblings=\"\",nodes=\"1\",guarded=\"yes\"} 1\n",
        "cpus} 2\ncpus} 1\ncpus} 1\nmost_slowdown_ratio} 0.05\n3\n",
    ] {
        assert!(left.contains(said), "{said}: {left}");
    }
    assert!(
        !left.contains("broken") && left.ends_with("Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nsame\n"),
        "{left}"
    );
    assert_eq!(ran.section("kills").trim(), "4 same", "{}", ran.text());
    // A grant and its end take some forty changes; the other calls some ninety.
    for (section, least, apart) in [("steps", 20, 6), ("changes", 60, 24)] {
        let text = ran.section(section);
        let mut lines = text.lines();
        let [last, each, left] = [(); 3].map(|()| lines.next().unwrap_or_else(|| panic!("{text}")).trim());
        let (last, kills) = (last.parse::<u32>().unwrap(), each.strip_suffix(" same").unwrap());
        assert!((least..900).contains(&last), "{text}");
        assert_eq!(kills.parse(), Ok((last - 1) / apart), "{}", ran.text());
        assert!(left.parse::<u32>().unwrap() >= 1, "no kill hit a grant: {text}");
        assert_eq!(lines.next(), (section == "changes").then_some("as before"), "{text}");
    }
}

#[test]
fn ended_clients_old_handles_and_full_disks_change_no_grant() {
    let ran = run(FAULTS);
    let checks = Checks::new();
    let part =
        |name: &'static str, expected: &'static str| checks.part(name, || assert_eq!(ran.section(name), expected));
    part("between", "has \nhas stays \nhas \nsame\n");
    part(
        "old handle",
        "nearside: the agent refused: grant 3 is another user's\nstatus 1\n\
        nearside: the agent refused: grant 3 is another user's\nstatus 1\nstatus 0\nsame\n",
    );
    part(
        "no CPU",
        "nearside: the agent refused: no CPU would be left for the rest of the machine\nstatus 1\n\
        Cpus_allowed_list:\t6-7\nMems_allowed_list:\t0-3\nsame\n",
    );
    part(
        "full disk",
        "nearside: the agent refused: cannot write to /run/nearside/grant-2.journal: the disk is full\nstatus 1\n\
        has before \nstatus 0\nhas after \nsame\n",
    );
}

/// With 48 CPUs, in simulated time.
#[test]
fn grants_are_made_and_ended_in_time() {
    let ran = run_in(&Lab::new(), "magny-cours-4p", &[], TIMES);
    let times = ran.section("times");
    let lines: Vec<(&str, u32)> =
        times.lines().filter_map(|line| line.split_once(' ').map(|(what, ms)| (what, ms.parse().unwrap()))).collect();
    assert!(lines.len() == 9 && times.ends_with("same\n"), "{times}");
    for (what, ms) in lines {
        let most = match what {
            "grant" => 100,
            "release" => 150,
            _ => 200,
        };
        assert!(ms <= most, "{what}: {ms} ms, and at most {most}: {times}");
    }
    // C45: who comes first is moved.
    let moved = ran.section("moved");
    let ms: u32 = moved.lines().next().and_then(|line| line.strip_prefix("moved ")).unwrap().parse().unwrap();
    assert!(ms <= 500 && moved.ends_with("\n6\n"), "{moved}");
    // C41: at most 0.5 % of a CPU for 25 grants.
    let (worked_ns, rest) = ran.section("monitor").split_once('\n').unwrap();
    assert!(worked_ns.parse::<u64>().unwrap() <= 10_000_000 && rest == "same\n", "{worked_ns} {rest}");
}

/// The study's twelve calls by the library and as lines, its shell's form, parts of grants, and requests that wait.
#[test]
fn grants_are_given_by_the_studys_calls_in_part_and_in_order() {
    let lab = Lab::new();
    let program = compiled(&lab, "grants.c", false);
    let ran = run_in(&lab, "small-4x2", &[], &STUDY.replace("PROGRAM", &program.display().to_string()));
    let checks = Checks::new();
    let part = |name: &'static str, check: &dyn Fn(&str)| checks.part(name, || check(ran.section(name)));
    part("program", &by_the_library);
    part("rcm", &|rcm| {
        let (begun, refused) = rcm.split_once("status 7\nsame\n").unwrap();
        assert!(begun.starts_with("Cpus_allowed_list:\t0\nMems_allowed_list:\t0\n0::/nearside-grant-"), "{rcm}");
        assert!(refused.contains("may have 0 grants in all, has 0 and asks for 1\nstatus 3\n"), "{rcm}");
        assert!(refused.contains("usage: rcm is_isolated(0/1)"), "{rcm}");
    });
    part("inherited", &|it| {
        assert!(it.starts_with("error 61: cannot find the grant of this program: "), "{it}");
        assert!(it.ends_with("\nreleased\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\n0::/\nsame\n"), "{it}");
    });
    part("only", &|only| {
        for said in [
            "Cpus_allowed_list:\t4-5\nMems_allowed_list:\t2\ngrant ",
            " (db): no CPUs of its own, memory of node 2 ",
            "status 0\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t2\n67108864\nothers 0\n/nearside-grant-N-shared\n",
            "status 0\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nnearside: there is no grant \"db\"\nsame\n",
            "\"granted\": true,\nCpus_allowed_list:\t4-5\nMems_allowed_list:\t0-3\n",
            "is another user's\nstatus 1\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nsame\n",
            "Cpus_allowed_list:\t2\nMems_allowed_list:\t1\ngrant ",
            "\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t1\nmember\nsame\n",
        ] {
            assert!(only.contains(said), "{said}: {only}");
        }
    });
    part("wait", &|wait| {
        let (over, granted) = wait.split_once("others meanwhile\n").unwrap();
        let lines: Vec<&str> = over.lines().collect();
        assert!(lines[0].contains("requests that have waited for longer are in the way"), "{wait}");
        assert_eq!(lines[1], "status 3", "{wait}");
        assert!(lines[2].contains("2 of the cores of CPUs 2-3 are free, 3 wanted"), "{wait}");
        assert_eq!(
            lines[3..],
            ["refused: the user may have 0 grants in all, has 0 and asks for 1", "status 3"],
            "{wait}"
        );
        assert_eq!(granted, "both\ntwo\nsame\n", "{wait}");
    });
    part("ends", &|it| assert_eq!(it, "status 0\nsame\n"));
}

/// The output of `grants.c`, by a user who may have two grants of three cores together.
fn by_the_library(said: &str) {
    let (calls, lists) = said.split_once("lists\n").unwrap();
    let parts = [
        "grant 1 (one): CPU 2, memory of node 1 ",
        "entered\nCpus_allowed_list:\t2\nMems_allowed_list:\t1\n0::/nearside-grant-1\n",
        // A core of its cache becomes a further grant's, and idles again when that has ended.
        "grant 2 (two): CPU 3, memory of node 1 ",
        "\n2-3\nrefused 16: cannot get a grant: the user may have 2 grants in all, has 2 and asks for 1\n2-3\n",
        "more memory\nCpus_allowed_list:\t2\nMems_allowed_list:\t1,3\n",
        "refused 22: cannot add memory to grant 1: no node 9: this machine has nodes 0-3\n",
        " 10000\nmax 100000\nwithout cores\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t1,3\n0::/nearside-grant-1-shared\n\n",
        "without both\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\n0::/",
        "refused 1: cannot release the memory of grant 1 (agent: Operation not permitted (os error 1)): the descriptor is no handle",
    ];
    let mut rest = calls;
    for part in parts {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part}: {said}")).1;
    }
    // A list that cannot be granted as a whole changes nothing; one that can gives what it releases to its own request.
    let lines: Vec<&str> = lists.lines().collect();
    assert_eq!(lines[0], "{\"granted\":{\"grants\":[3,4]: 2 handles", "{said}");
    assert_eq!((lines[1], lines[2], lines[3]), ("4,6", "{\"not_admitted\":: 0 handles", "4,6"), "{said}");
    assert_eq!((lines[4], lines[5]), ("{\"granted\":{\"grants\":[5]: 1 handles", "0,6"), "{said}");
    assert_eq!(lines[6..], ["same"], "{said}");
}

/// A partition that the kernel ends twice, with what the agent says and shows.
fn lost(section: &str) {
    let invalid = "cpuset.cpus.partition is `isolated invalid";
    let (shown, said) = section.split_once("same\n").unwrap();
    assert!(
        shown.starts_with("  \"forecast_slowdown\": null,\n  \"lost\": \"/sys/fs/cgroup/nearside-grant-"),
        "{section}"
    );
    assert_eq!(said.matches(invalid).count(), 2, "{section}");
    let words: Vec<bool> = said.lines().map(|line| line.starts_with("its CPUs and nodes are its own again")).collect();
    assert_eq!(words, [false, true, false, true], "{section}");
}

/// What the agent answers users without the right to a grant, and which processes no grant takes.
fn strangers(section: &str) {
    let (others, own) = section.split_once("process N").unwrap();
    assert_eq!(others.matches("is another user's\nstatus 1\n").count(), 3, "{section}");
    let own = format!("process N{own}");
    for said in [
        "it is of user 0, and the caller is user 65534\nstatus 1\nstatus 0\n",
        "it is the first process of the system\nstatus 1\n",
        "it is a kernel thread\nstatus 1\n",
        "it is the agent\nstatus 1\n",
        "already\nstatus 1\n",
        "it has ended\nstatus 1\n",
        "(pidfd_open): No such process (os error 3)\nstatus 1\n",
        "-3 is no process: numbers of processes are above 0\nstatus 2\n",
    ] {
        assert!(section.contains(said), "{said}: {section}");
    }
    let end = "{\n  \"schema\": 1,\n  \"released\": ";
    assert!(own.contains(end), "{section}");
    assert!(own.ends_with("Cpus_allowed_list:\t0-7\nMems_allowed_list:\t0-3\nsame\n"), "{section}");
}
