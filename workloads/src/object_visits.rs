//! How fast threads visit objects that they, or threads of other nodes, allocated: `HelenOS`'s test `numaslab1` (Horký:
//! Support for NUMA hardware in `HelenOS`, 2011, section 7.3).

use crate::cure::nodes;
use crate::error::Error;
use linux::{Tid, affinity, set_affinity};
use machine::CpuSet;
use std::hint::black_box;
use std::io;
use std::thread;
use std::time::Instant;

/// Distance of the words of an object that a visit reads and writes, in words: a cache line's.
const STRIDE: usize = 8;

/// A CPU with the index of its node.
type Place = (usize, CpuSet);

/// A thread on each CPU allocates as many objects of `bytes` as there are CPUs. Then it visits those that it allocated, or
/// one of each thread on another node, `count` times. Returns the mean time of a visit in us, and the standard deviation of
/// the threads' times as a share of it.
pub fn visits(bytes: usize, is_remote: bool, count: u64) -> Result<(f64, f64), Error> {
    let places = places()?;
    if is_remote && places.iter().all(|(node, _)| *node == places[0].0) {
        return Err(Error::System(io::Error::other("this machine has one node: run it in `nearside lab run`")));
    }
    let words = (bytes / 8).max(1);
    let fill = |index: usize| (0..places.len()).map(|_| vec![index as u64; words]).collect::<Vec<_>>();
    let all: Vec<Vec<Vec<u64>>> = on_each(&places, (0..places.len()).collect(), |index| Ok(fill(index)))?;
    let mut visited: Vec<Vec<Vec<u64>>> = places.iter().map(|_| Vec::new()).collect();
    for (owner, objects) in all.into_iter().enumerate() {
        for (index, object) in objects.into_iter().enumerate() {
            let visitor = if is_remote { index } else { owner };
            if !is_remote || places[visitor].0 != places[owner].0 {
                visited[visitor].push(object);
            }
        }
    }
    let times: Vec<f64> = on_each(&places, visited, |mut objects| {
        let began = Instant::now();
        let mut left = count;
        while left > 0 {
            for object in objects.iter_mut().take(left as usize) {
                object.iter_mut().step_by(STRIDE).for_each(|word| *word = black_box(*word).wrapping_add(1));
                left -= 1;
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / count as f64)
    })?;
    Ok(mean_and_deviation(&times))
}

fn mean_and_deviation(times: &[f64]) -> (f64, f64) {
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
    (mean, variance.sqrt() / mean)
}

/// The CPUs that this process may use.
fn places() -> Result<Vec<Place>, Error> {
    let nodes = nodes(&affinity(Tid::CALLER).map_err(Error::System)?)?;
    let of_node = |(index, (_, cpus)): (usize, &(_, CpuSet))| {
        cpus.iter().map(|cpu| (index, CpuSet::from_iter([cpu]))).collect::<Vec<_>>()
    };
    Ok(nodes.iter().enumerate().flat_map(of_node).collect())
}

/// Runs `work` on each CPU at the same time, with its own input.
fn on_each<I: Send, O: Send>(
    places: &[Place],
    inputs: Vec<I>,
    work: impl Fn(I) -> io::Result<O> + Sync,
) -> Result<Vec<O>, Error> {
    thread::scope(|scope| {
        let work = &work;
        let started = places.iter().zip(inputs).map(|((_, cpu), input)| {
            scope.spawn(move || {
                set_affinity(Tid::CALLER, cpu)?;
                work(input)
            })
        });
        // All of them, before the first is waited for.
        let running: Vec<_> = started.collect();
        let ended = running.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).map_err(Error::System)
        });
        ended.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_visits_its_own_objects() {
        let (us, deviation) = visits(4096, false, 1000).unwrap();
        assert!(us > 0.0 && deviation >= 0.0);
    }

    #[test]
    fn the_deviation_is_a_share_of_the_mean() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 0.5));
        assert_eq!(mean_and_deviation(&[2.0]), (2.0, 0.0));
    }
}
