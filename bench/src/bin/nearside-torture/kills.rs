//! The agent is killed at random moments, and each time everything is as before once the next one has started.

use crate::Part;
use crate::load::{Load, has_acted, kill};
use crate::random::Random;
use bench::attacks::Ground;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Latest moment of a kill: an agent has moved threads several times by then.
const LATEST: Duration = Duration::from_millis(150);

pub fn run(programs: &Path, kills: usize, seed: u64) -> Part {
    let mut load = Load::start(Ground::new(programs)?)?;
    let (acting, mut random) = (load.acting(), Random(seed));
    let (mut killed, mut acted, mut broken) = (0, 0, Vec::new());
    broken.extend(load.restore()?);
    let before = load.state()?;
    for number in 0..kills {
        let moment = random.moment(LATEST);
        let mut agent = load.ground().agent(&acting, &[])?;
        sleep(moment);
        kill(&mut agent)?;
        acted += usize::from(has_acted(&before, &load.state()?));
        let told = load.restore()?;
        broken.extend(told.map(|said| format!("kill {number} after {moment:?}: the next agent: {said}")));
        let after = load.state()?;
        if after != before {
            broken.push(format!("kill {number} after {moment:?}: {before:?} became {after:?}"));
        }
        if !load.is_well()? {
            broken.push(format!("kill {number} after {moment:?}: the managed program has ended"));
            break;
        }
        killed += 1;
    }
    if acted == 0 && kills > 10 {
        broken.push("no agent had changed anything when it was killed: this shows nothing".to_owned());
    }
    Ok((format!("{killed} kills, {acted} of agents that had moved threads"), broken))
}
