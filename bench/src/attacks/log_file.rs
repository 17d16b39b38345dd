//! D5: a pipe, or a link, in the place of the agent's decision log.

use crate::attacks::{Ground, Start, Tally, while_another_user};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

pub fn run(ground: &Ground, starts: usize) -> io::Result<Tally> {
    let secret = ground.write("secret", "of root\n")?;
    fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
    let mut tally = Tally::default();
    // Root's own mistake, which no other user has part in.
    let pipe = ground.folder("own", 0, 0o755)?.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    start(ground, &pipe, &secret, &mut tally)?;
    let log = ground.folder("sticky", 0, 0o1777)?.join("log");
    let mut turn = 0_usize;
    let mut read = Vec::new();
    let exchange = || {
        turn += 1;
        if turn.is_multiple_of(2) {
            let _ = symlink(&secret, &log);
        } else if mknodat(CWD, &log, FileType::Fifo, Mode::RWXU, 0).is_ok() {
            // What the agent would write into it.
            if let Ok(pipe) = open(&log, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
                std::thread::sleep(Duration::from_micros(100));
                let mut bytes = [0; 64];
                let count = rustix::io::read(&pipe, &mut bytes).unwrap_or(0);
                read.extend_from_slice(bytes.get(..count).unwrap_or_default());
            }
        }
        let _ = fs::remove_file(&log);
    };
    while_another_user(exchange, || {
        for _ in 1..starts {
            start(ground, &log, &secret, &mut tally)?;
            let _ = fs::remove_file(&log);
        }
        Ok(())
    })?;
    if !read.is_empty() {
        tally.won.push("the log was written into a pipe of another user".to_owned());
    }
    Ok(tally)
}

fn start(ground: &Ground, log: &Path, secret: &Path, tally: &mut Tally) -> io::Result<()> {
    let own = ground.path("own");
    let configuration = format!("folder = \"{}\"\n[log]\nfile = \"{}\"", own.display(), log.display());
    let mut agent = ground.agent(&configuration, &[])?;
    let start = agent.wait_until_up()?;
    tally.tried += 1;
    // The log is optional: without it the agent serves all the same.
    tally.worked += usize::from(start == Start::Up);
    if start == Start::Hung || agent.stop()?.is_none() {
        tally.won.push("the agent hung".to_owned());
    }
    let found = fs::metadata(secret)?;
    if (found.mode() & 0o7777, found.uid(), fs::read(secret)?) != (0o600, 0, b"of root\n".to_vec()) {
        tally.won.push("a file of root was changed".to_owned());
        fs::write(secret, "of root\n")?;
        fs::set_permissions(secret, Permissions::from_mode(0o600))?;
    }
    Ok(())
}
