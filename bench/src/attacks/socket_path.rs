//! D2: a link in the place of the agent's socket, by which root would give away a file.

use crate::attacks::{Ground, OTHER, Start, Tally, while_another_user};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub fn run(ground: &Ground, starts: usize) -> io::Result<Tally> {
    let secret = ground.write("secret", "of root\n")?;
    fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
    let mut tally = Tally::default();
    below_theirs(ground, &secret, starts.div_ceil(2), &mut tally)?;
    beside_theirs(ground, &secret, starts / 2, &mut tally)?;
    Ok(tally)
}

/// Starts an agent whose socket belongs to the attacker, which is as much as a configuration can give away.
fn start(ground: &Ground, socket: &Path, secret: &Path, tally: &mut Tally) -> io::Result<bool> {
    let own = ground.path("own");
    let configuration = format!(
        "folder = \"{}\"\n[socket]\npath = \"{}\"\nowner = \"{OTHER}\"\ngroup = \"{OTHER}\"",
        own.display(),
        socket.display()
    );
    let mut agent = ground.agent(&configuration, &[])?;
    let start = agent.wait_until_up()?;
    let found = fs::metadata(secret)?;
    let is_same = (found.mode() & 0o7777, found.uid(), found.gid()) == (0o600, 0, 0);
    tally.tried += 1;
    if !is_same {
        tally.won.push(format!("a file of root has mode {:o}, owner {}", found.mode() & 0o7777, found.uid()));
        fs::remove_file(secret)?;
        fs::write(secret, "of root\n")?;
        fs::set_permissions(secret, Permissions::from_mode(0o600))?;
    }
    if start == Start::Hung || agent.stop()?.is_none() {
        tally.won.push("the agent hung".to_owned());
    }
    Ok(start == Start::Up)
}

/// The socket's folder lies below one of the attacker's, who exchanges it: no agent may start at all.
fn below_theirs(ground: &Ground, secret: &Path, starts: usize, tally: &mut Tally) -> io::Result<()> {
    ground.folder("theirs", OTHER, 0o755)?;
    let [run, trap] = [ground.folder("theirs/run", 0, 0o755)?, ground.folder("theirs/trap", OTHER, 0o755)?];
    symlink(secret, trap.join("agent.sock"))?;
    let exchange = || {
        let _ = renameat_with(CWD, &run, CWD, &trap, RenameFlags::EXCHANGE);
    };
    while_another_user(exchange, || {
        for _ in 0..starts {
            if start(ground, &run.join("agent.sock"), secret, tally)? {
                tally.won.push("an agent serves below a folder of another user".to_owned());
            }
        }
        Ok(())
    })
}

/// The socket is made where all users may make files: the attacker makes the name first, or removes what is there and has
/// become the attacker's.
fn beside_theirs(ground: &Ground, secret: &Path, starts: usize, tally: &mut Tally) -> io::Result<()> {
    let socket: PathBuf = ground.folder("sticky", 0, 0o1777)?.join("agent.sock");
    let link = || {
        let _ = symlink(secret, &socket);
        let _ = fs::remove_file(&socket);
    };
    while_another_user(link, || {
        for _ in 0..starts {
            tally.worked += usize::from(start(ground, &socket, secret, tally)?);
            let _ = fs::remove_file(&socket);
        }
        Ok(())
    })
}
