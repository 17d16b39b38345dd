//! Host time of one decision of `carrefour`, with all gates open, and of one of `predict`. The targets are in docs/figures.md.

mod round;
#[path = "round/sixteen_nodes.rs"]
mod sixteen_nodes;

use divan::Bencher;
use placement::{Observation, Policy};

fn main() {
    divan::main();
}

fn measure(bencher: Bencher, pages: u64) {
    decide(bencher, &round::policy(pages).expect("a policy of this machine"), &round::observation(pages));
}

fn decide(bencher: Bencher, policy: &Policy, observation: &Observation) {
    bencher.with_inputs(|| policy.clone()).bench_local_values(|mut policy| {
        let decision = policy.decide(observation);
        (policy, decision)
    });
}

#[divan::bench(sample_count = 200, sample_size = 1)]
fn pages_30_000(bencher: Bencher) {
    measure(bencher, 30_000);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn pages_1_000_000(bencher: Bencher) {
    measure(bencher, 1_000_000);
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn predict_50_segments_on_16_nodes(bencher: Bencher) {
    decide(bencher, &sixteen_nodes::policy().expect("a policy of this machine"), &sixteen_nodes::observation());
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn predict_50_segments_on_16_nodes_used_in_turns(bencher: Bencher) {
    let policy = sixteen_nodes::policy().expect("a policy of this machine");
    decide(bencher, &policy, &sixteen_nodes::observation_in_turns());
}
