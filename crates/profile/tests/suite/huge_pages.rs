//! Verdicts on generated accesses to huge pages. T20 and T31 are claims of the huge-pages study's specification: parts
//! apart are falsely shared and the same parts truly, and fewer samples find less.

use crate::support::Trace;
use machine::NodeId;
use profile::{Action, Confidence, Filter, HugePage, Sharing};
use trace::{AccessKind, What};

const START: u64 = 0x6000_0000;
const HUGE: u64 = 2 << 20;
const PAGES: u64 = 512;

/// How a block is used: from a random page and a random number below 1000, the node.
type Users = fn(u64, u64) -> u32;

/// Private data: one node, whichever part.
const PRIVATE: Users = |_, _| 2;
/// Both nodes use all of it, in these shares.
const HALVES: Users = |_, chance| u32::from(chance < 500);
const QUARTER: Users = |_, chance| u32::from(chance < 250);
const TENTH: Users = |_, chance| u32::from(chance < 100);
/// Disjoint parts, of which the smaller has a quarter or a half.
const FALSE_QUARTER: Users = |page, _| u32::from(page < PAGES / 4);
const FALSE_HALF: Users = |page, _| u32::from(page >= PAGES / 2);
const FALSE_FOUR: Users = |page, _| (page * 4 / PAGES) as u32;

/// `SplitMix64`: of a linear generator, every n-th number is too regular for rates of errors.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }
}

/// Verdicts on blocks with samples of these users in random order, all on node 0, 2 % of them of another node.
fn judged(samples: u64, users: &[Users], blocks_each: u64) -> Vec<HugePage> {
    let mut trace = Trace::new(&[1]);
    let blocks = users.len() as u64 * blocks_each;
    trace.allocate((1, 1, 0), START, blocks * HUGE, "table_new");
    let mut random = Random(samples);
    for _ in 0..samples {
        for block in 0..blocks {
            let (page, chance, noise) = (random.below(PAGES), random.below(1000), random.below(1000));
            let mut node = users[(block / blocks_each) as usize](page, chance);
            if noise < 20 {
                node = (node + 1) % 4;
            }
            let (cpu, line) = (2 * node + random.below(2) as u32, random.below(64));
            let address = START + block * HUGE + page * 4096 + line * 64;
            trace.access((1, 10 + cpu, cpu), address, 0, AccessKind::Load);
        }
    }
    placed(&mut trace, blocks);
    let pages = trace.profile().view(&Filter::default()).flow().huge_pages();
    assert_eq!(pages.len() as u64, blocks);
    pages
}

/// Says that the kernel placed these blocks as huge pages on node 0.
fn placed(trace: &mut Trace, blocks: u64) {
    for block in 0..blocks {
        let address = START + block * HUGE;
        trace.event(1, 1, 0, What::PagePlaced { address, bytes: HUGE, node: NodeId(0), from: None });
    }
}

/// The share of these blocks that are judged falsely shared.
fn found(pages: &[HugePage]) -> f64 {
    pages.iter().filter(|page| page.is_falsely_shared()).count() as f64 / pages.len() as f64
}

#[test]
fn t20_parts_apart_are_falsely_shared_and_the_same_parts_truly() {
    let (parts, whole) = ([FALSE_QUARTER, FALSE_HALF, FALSE_FOUR], [HALVES, QUARTER]);
    for page in judged(200, &parts, 20) {
        assert_eq!((page.sharing, page.confidence, page.is_huge), (Sharing::FalselyShared, Confidence::High, true));
        assert!(page.p_value < 1e-6 && page.held > 0.9, "{page:?}");
        let saving = page.saving.unwrap();
        assert!(saving.low_ns > 0.0 && saving.low_ns < saving.ns && saving.ns < saving.high_ns, "{saving:?}");
        assert!(page.misplaced_pages > 50 && page.lies_on == [NodeId(0)], "{page:?}");
    }
    for page in judged(200, &whole, 20) {
        assert_eq!(page.sharing, Sharing::TrulyShared, "{page:?}");
    }
    let quarter = &judged(400, &[FALSE_QUARTER], 1)[0];
    let nodes: Vec<NodeId> = quarter.owners.iter().map(|owner| owner.node).collect();
    assert_eq!(nodes, [NodeId(1), NodeId(0)]);
    assert!(quarter.owners[0].pages.abs_diff(128) <= 16, "{:?}", quarter.owners);
    assert_eq!(quarter.owner_of(START + 100 * 4096), Some(NodeId(1)));
    assert_eq!(quarter.owner_of(START + HUGE), None);
}

#[test]
fn of_blocks_with_a_minority_of_a_quarter_32_samples_find_95_percent_and_64_find_99() {
    let all = [FALSE_QUARTER, HALVES, PRIVATE];
    for (samples, least) in [(32, 0.95), (64, 0.99)] {
        let pages = judged(samples, &all, 400);
        let found = found(&pages[..400]);
        assert!(found >= least, "{found} with {samples} samples");
    }
}

#[test]
fn of_truly_shared_and_private_data_at_most_one_percent_is_found() {
    for samples in [16, 32, 64, 200] {
        let pages = judged(samples, &[HALVES, QUARTER, TENTH, PRIVATE], 500);
        for (pages, users) in pages.chunks(500).zip(["halves", "a quarter", "a tenth", "one node"]) {
            let found = found(pages);
            assert!(found <= 0.01, "{found} of {users} with {samples} samples");
        }
        // Also among those that are found rightly.
        let pages = judged(samples, &[FALSE_HALF, HALVES, PRIVATE], 300);
        assert!(found(&pages[300..]) <= 0.01, "{} with {samples} samples", found(&pages[300..]));
    }
}

#[test]
fn t31_fewer_samples_find_less() {
    let shares: Vec<f64> =
        [100, 48, 24, 16, 12].map(|samples| found(&judged(samples, &[FALSE_QUARTER, PRIVATE], 300)[..300])).to_vec();
    assert!(shares.windows(2).all(|pair| pair[0] >= pair[1]), "{shares:?}");
    assert!(shares[0] > 0.99 && shares[3] < 0.9 && shares[4] <= 0.0, "{shares:?}");
    let few = judged(15, &[FALSE_HALF], 1).remove(0);
    assert_eq!((few.sharing, few.confidence, few.saving), (Sharing::Unknown, Confidence::Low, None));
}

/// Of more than 2 M samples a part is judged, which stands for all.
#[test]
fn shares_and_savings_do_not_depend_on_the_number_of_samples_that_are_judged() {
    let of = |samples: u64| {
        let blocks = 300;
        let pages = judged(samples, &[FALSE_HALF], blocks);
        let remote: f64 = pages.iter().map(|page| (page.remote_samples * page.stands_for) as f64).sum();
        let avoidable: f64 =
            pages.iter().map(|page| (page.saving.unwrap().avoidable_samples * page.stands_for) as f64).sum();
        let ns: f64 = pages.iter().map(|page| page.saving.unwrap().ns).sum();
        let all = (samples * blocks) as f64;
        (pages[0].stands_for, [remote / all, avoidable / all, ns / all])
    };
    let (few, many) = (of(1_000), of(7_500));
    assert_eq!((few.0, many.0), (1, 2));
    for (few, many) in few.1.iter().zip(many.1) {
        assert!((few / many - 1.0).abs() < 0.02, "{few} {many}");
    }
}

/// Threads sweep their parts one after the other, which successions take for one user.
#[test]
fn parts_that_are_swept_in_bursts_and_only_read_want_small_pages_before_copies() {
    let mut trace = Trace::new(&[1]);
    let blocks = 12;
    trace.allocate((1, 99, 0), START, blocks * HUGE, "table_new");
    for _ in 0..40 {
        for node in 0..4_u64 {
            for step in 0..blocks * 8 {
                let (block, part) = (step / 8, step % 8);
                let page = node * PAGES / 4 + part * 16 + trace.random(16);
                let address = START + block * HUGE + page * 4096 + trace.random(64) * 64;
                let cpu = 2 * node as u32;
                trace.access((1, 10 + cpu, cpu), address, 0, AccessKind::Load).weight = 50.0;
            }
        }
    }
    placed(&mut trace, blocks);
    let profile = trace.profile();
    let view = profile.view(&Filter::default());
    let advice = &view.advice(1)[0];
    assert_eq!((advice.action, advice.confidence), (Action::SplitHugePages, Confidence::High));
    let gain = advice.gain.unwrap();
    assert!(gain.speedup > 1.1 && gain.local_access_ratio_after > 0.9, "{gain:?}");
    assert!(view.flow().huge_pages().iter().all(HugePage::is_falsely_shared));
}

#[test]
fn pages_that_alternate_are_found_below_the_cuts_and_lines_that_do_need_padding() {
    let pages = judged(120, &[|page, _| (page % 2) as u32], 30);
    assert!(pages.iter().all(HugePage::is_falsely_shared), "{} found", found(&pages));
    assert!(pages.iter().all(|page| page.owners.iter().all(|owner| owner.pages == 1)));
    // Other pages of the same object may be shared truly.
    let mut users: Vec<Users> = vec![|page, _| (page % 2) as u32; 14];
    users.push(HALVES);
    let pages = judged(120, &users, 5);
    let (apart, together) = pages.split_at(70);
    assert!(found(apart) >= 0.9 && found(together) <= 0.0, "{}, {}", found(apart), found(together));
    let mut trace = Trace::new(&[1]);
    trace.allocate((1, 99, 0), START, HUGE, "table_new");
    for _ in 0..4000 {
        let line = trace.random(2000);
        let cpu = (line % 2 * 2) as u32;
        trace.access((1, 10 + cpu, cpu), START + line * 64, 0, AccessKind::Store);
    }
    let page = trace.profile().view(&Filter::default()).flow().huge_pages().remove(0);
    assert_eq!(page.sharing, Sharing::PaddingNeeded, "{page:?}");
}

#[test]
fn blocks_whose_users_change_drift_and_partly_shared_ones_are_mixed() {
    let mixed: Users = |page, chance| if page < PAGES / 2 { 0 } else { u32::from(chance < 500) };
    assert!(judged(300, &[mixed], 20).iter().all(|page| page.sharing == Sharing::Mixed));
    assert!(judged(300, &[PRIVATE], 20).iter().all(|page| page.sharing == Sharing::OneOwner));
    let mut trace = Trace::new(&[1]);
    trace.allocate((1, 99, 0), START, HUGE, "table_new");
    for number in 0..400 {
        let page = trace.random(PAGES);
        let cpu = 2 * u32::from((page < 200) == (number < 200));
        let address = START + page * 4096 + trace.random(64) * 64;
        trace.access((1, 10 + cpu, cpu), address, 0, AccessKind::Load);
    }
    let page = trace.profile().view(&Filter::default()).flow().huge_pages().remove(0);
    assert_eq!((page.sharing, page.is_huge), (Sharing::Drifting, false));
}
