//! D4: a user of the socket opens connections and is silent.

use crate::attacks::{Ground, OTHER, Start, Tally, failed, while_another_user};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// Connections that the attacker holds: more than the agent has slots for.
const HELD: usize = 64;

pub fn run(ground: &Ground, times: usize) -> io::Result<Tally> {
    let folder = ground.folder("own", 0, 0o755)?;
    let socket = folder.join("agent.sock");
    let mut agent = ground.agent(&format!("folder = \"{}\"\n[socket]\ngroup = \"{OTHER}\"", folder.display()), &[])?;
    if agent.wait_until_up()? != Start::Up {
        return Err(failed(agent.said()));
    }
    let (mut held, mut tally) = (Vec::new(), Tally::default());
    let connect = || {
        if let Ok(stream) = UnixStream::connect(&socket) {
            held.push(stream);
        }
        if held.len() > HELD {
            // The oldest: there are always some that are silent for long, and new ones.
            held.remove(0);
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    while_another_user(connect, || {
        for _ in 0..times {
            for verb in ["status", "pause", "resume"] {
                let mut ask = Command::new(ground.program("nearside"));
                let ran = ask.args(["agent", verb, "--socket"]).arg(&socket).output()?;
                tally.tried += 1;
                tally.worked += usize::from(ran.status.success());
                if !ran.status.success() {
                    tally.won.push(format!("root's {verb}: {}", String::from_utf8_lossy(&ran.stderr).trim()));
                }
            }
        }
        Ok(())
    })?;
    if agent.stop()?.is_none() {
        tally.won.push("the agent hung".to_owned());
    }
    Ok(tally)
}
