//! How a process uses memory, from its threads: misses per instruction, and where its accesses go.

use crate::costs::Costs;
use crate::observation::Thread;

/// How a process used memory in a round. None where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Misses of the last-level cache per thousand instructions (MPKI), of threads for which both are counted.
    pub misses_per_thousand_instructions: Option<f64>,
    /// Accesses to other nodes than that of the thread's CPU, over all that memory served, 0 to 1.
    pub remote_ratio: Option<f64>,
}

impl ProcessUse {
    /// For the threads of one process.
    pub fn new<'a>(threads: impl IntoIterator<Item = &'a Thread>, costs: &Costs) -> Self {
        let (mut misses, mut instructions, mut remote, mut all) = (0.0, 0.0, 0.0, 0.0);
        for thread in threads {
            if let (Some(missed), Some(executed)) = (thread.cache_misses, thread.instructions) {
                misses += missed as f64;
                instructions += executed as f64;
            }
            let Some(node) = thread.cpu.and_then(|cpu| costs.node_of_cpu(cpu)) else { continue };
            for of in &thread.accesses {
                all += of.accesses as f64;
                remote += if of.node == node { 0.0 } else { of.accesses as f64 };
            }
        }
        let ratio = |part: f64, of: f64| (of > 0.0).then(|| part / of);
        Self {
            misses_per_thousand_instructions: ratio(1000.0 * misses, instructions),
            remote_ratio: ratio(remote, all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::NodeAccesses;
    use machine::{CpuId, NodeId, Pid, Tid};

    #[test]
    fn threads_are_summed_and_what_is_not_counted_is_left_out() {
        let costs = Costs::new(&machine::presets::find("small-2x2").unwrap());
        let thread = |tid: u32, cpu: u32, counted: Option<(u64, u64)>, accesses: [u64; 2]| Thread {
            cpu: Some(CpuId(cpu)),
            instructions: counted.map(|(instructions, _)| instructions),
            cache_misses: counted.map(|(_, misses)| misses),
            accesses: [0, 1]
                .map(|node| NodeAccesses { node: NodeId(node), accesses: accesses[node as usize] })
                .to_vec(),
            ..Thread::new(Pid(1), Tid(tid))
        };
        let threads = [
            thread(1, 0, Some((10_000, 50)), [30, 10]),
            thread(2, 2, None, [20, 0]),
            thread(3, 0, Some((0, 0)), [0, 0]),
        ];
        let used = ProcessUse::new(&threads, &costs);
        assert_eq!((used.misses_per_thousand_instructions, used.remote_ratio), (Some(5.0), Some(0.5)));
        assert_eq!(ProcessUse::new(&threads[2..], &costs), ProcessUse::default());
    }
}
