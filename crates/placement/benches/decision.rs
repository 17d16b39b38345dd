//! Host time of one decision of `carrefour`, with all gates open. The targets are in docs/figures.md.

mod round;

use divan::Bencher;

fn main() {
    divan::main();
}

fn measure(bencher: Bencher, pages: u64) {
    let (policy, observation) = (round::policy(pages).expect("a policy of this machine"), round::observation(pages));
    bencher.with_inputs(|| policy.clone()).bench_local_values(|mut policy| {
        let decision = policy.decide(&observation);
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
