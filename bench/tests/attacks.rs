//! What another user tries against root's agent and recordings, each in a short loop. `make torture` runs 2,000 of each.

use bench::attacks::{ATTACKS, Ground};
use std::path::Path;

/// Tries of each attack: each takes 50 ms, or less.
const TIMES: usize = 16;

fn attack(finding: &str) {
    if !rustix::process::geteuid().is_root() {
        return test_tools::skipped("only root can be attacked by another user");
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_nearside-demo")).parent().unwrap();
    assert!(programs.join("nearside").exists(), "run `cargo build --release --workspace` first");
    let ground = Ground::new(programs).unwrap();
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
