//! What another user tries against root's agent and recordings, each in a short loop. `make torture` runs 2,000 of each.

use bench::attacks::{ATTACKS, Ground, Start};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tries of each attack: each takes 50 ms, or less.
const TIMES: usize = 16;

/// `None`, and reported, if the user is not root.
fn ground() -> Option<Ground> {
    if !rustix::process::geteuid().is_root() {
        test_tools::skipped("only root can be attacked by another user");
        return None;
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_nearside-demo")).parent().unwrap();
    assert!(programs.join("nearside").exists(), "run `cargo build --release --workspace` first");
    Some(Ground::new(programs).unwrap())
}

fn attack(finding: &str) {
    let Some(ground) = ground() else { return };
    let attack = ATTACKS.iter().find(|attack| attack.name.starts_with(finding)).unwrap();
    let tally = (attack.run)(&ground, TIMES).unwrap();
    assert_eq!(tally.won, Vec::<String>::new());
    assert!(tally.tried >= TIMES, "{tally:?}");
}

macro_rules! tests {
    ($($name:ident: $finding:literal,)+) => {
        $(#[test] fn $name() { attack($finding); })+
    };
}

tests! {
    a_journals_folder_that_is_exchanged_is_not_used: "D1 ",
    a_sockets_path_that_is_exchanged_gives_no_file_away: "D2 ",
    another_user_reports_no_objects_to_roots_recording: "D3 ",
    silent_clients_do_not_keep_root_out: "D4 ",
    a_pipe_or_link_as_log_neither_stops_the_agent_nor_is_written: "D5 ",
    exchanged_names_make_root_open_no_other_file: "D16 ",
}

/// The journal, the log and the socket are closed to other users; the metrics are for another one, and the folder shows
/// names only, so that the socket's group reaches it.
#[test]
fn an_agents_files_under_umask_0_are_as_documented() {
    let Some(ground) = ground() else { return };
    let folder = ground.path("agent");
    let path = |name: &str| ground.path(name).display().to_string();
    let configuration = format!(
        "folder = \"{}\"\n[log]\nfile = \"{}\"\n[metrics]\nfile = \"{}\"",
        folder.display(),
        path("decisions"),
        path("metrics.prom")
    );
    let mut agent = ground.agent(&configuration, &["sh", "-c", "umask 0; exec \"$@\"", "sh"]).unwrap();
    assert_eq!(agent.wait_until_up().unwrap(), Start::Up, "{}", agent.said());
    let deadline = Instant::now() + Duration::from_secs(10);
    while !ground.path("metrics.prom").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let files = ["agent", "agent/agent.journal", "agent/agent.sock", "decisions", "metrics.prom"];
    let modes = files.map(|name| fs::metadata(ground.path(name)).unwrap().mode() & 0o7777);
    assert_eq!(modes, [0o755, 0o600, 0o660, 0o640, 0o644]);
    assert!(agent.stop().unwrap().is_some_and(|status| status.success()));
}
