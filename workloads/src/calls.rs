//! System calls of crate `linux`, each tried on memory of this process; prints the results, for tests on machines with
//! several nodes.

use crate::error::Error;
use crate::options::CallsOptions;
use linux::{
    Advice, AdvisedProcess, HUGE_PAGE, MemoryMode, MemoryPolicy, Misplaced, NodeState, PageBatch, Pages, Pid, Process,
    Switch, Tid, advise, bind_range, huge_pages_by_node, memory_policy_at, next_interleave_node, set_affinity,
    set_home_node, set_memory_policy, split_huge_pages,
};
use machine::{NodeId, NodeSet};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::slice::from_ref;
use std::thread;
use std::time::Duration;

const PAGE: usize = machine::SMALL_PAGE as usize;
/// Number of attempts to split a huge page.
const SPLIT_TRIES: u32 = 100;
/// Number of pages to place: not a multiple of any number of nodes.
const COUNT: usize = 401;

type Tried = Result<Value, Box<dyn std::error::Error + Send + Sync>>;

/// Tries the calls, and prints one line of JSON: each result, or its error as text.
pub fn run(options: &CallsOptions) -> Result<(), Error> {
    let [first, second] = options.nodes[..] else {
        return Err(Error::System(io::Error::other("name two nodes, such as --nodes 0,1")));
    };
    let (first, second) = (NodeId(first), NodeId(second));
    let mut told = BTreeMap::new();
    let mut attempt = |name: &'static str, tried: &(dyn Fn() -> Tried + Sync)| {
        // Policies and CPUs belong to a thread, and end with it.
        let tried = thread::scope(|scope| scope.spawn(tried).join());
        let tried = tried.unwrap_or_else(|_| Err("it panicked".into()));
        told.insert(name, tried.unwrap_or_else(|error| json!(error.to_string())));
    };
    attempt("first_touch", &|| first_touch(first, second));
    attempt("inherited", &|| inherited(first, second));
    attempt("interleaved", &|| interleaved(first, second));
    attempt("home_node", &|| home_node(first, second));
    attempt("weighted", &|| weighted(first, second));
    attempt("huge", &huge);
    attempt("switch", &switch);
    if let (Some(pid), Some(start)) = (options.pid, options.start) {
        attempt("other_process", &|| other_process(Pid(pid), start));
    }
    writeln!(io::stdout().lock(), "{}", json!(told))?;
    Ok(())
}

fn set(nodes: &[NodeId]) -> NodeSet {
    nodes.iter().copied().collect()
}

/// Memory in small pages, none of them present.
fn reserve(pages: usize) -> io::Result<(Pages, usize)> {
    let mut memory = Pages::reserve(pages * PAGE)?;
    // A kernel without huge pages needs no advice against them.
    let _ = memory.advise_huge(false);
    let start = memory.range().start as usize;
    Ok((memory, start))
}

fn touch(memory: &mut Pages, pages: std::ops::Range<usize>) {
    pages.for_each(|page| memory.touch(page * PAGE));
}

/// The node of each present page.
fn nodes(start: usize, pages: usize) -> io::Result<Vec<NodeId>> {
    let mut batch = PageBatch::with_capacity(pages);
    (0..pages).for_each(|page| batch.push((start + page * PAGE) as u64, None));
    batch.locate(Pid(std::process::id()))?;
    Ok(batch.statuses().filter_map(|(_, status)| status.node().ok()).collect())
}

fn by_node(nodes: &[NodeId]) -> Value {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(node.to_string()).or_default() += 1;
    }
    json!(counts)
}

fn go_to(node: NodeId) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let cpus = NodeState::read(Path::new("/sys"))?.cpus_of(&[node].into_iter().collect());
    Ok(set_affinity(Tid::CALLER, &cpus)?)
}

/// Half of the memory from each node.
fn first_touch(first: NodeId, second: NodeId) -> Tried {
    let (mut memory, start) = reserve(COUNT)?;
    let policy = memory_policy_at(start)?;
    go_to(first)?;
    touch(&mut memory, 0..COUNT / 2);
    go_to(second)?;
    touch(&mut memory, COUNT / 2..COUNT);
    Ok(json!({ "policy": format!("{:?}", policy.mode), "pages": by_node(&nodes(start, COUNT)?) }))
}

/// A range with a policy keeps it when the thread's policy changes; a new range has the thread's new policy.
fn inherited(first: NodeId, second: NodeId) -> Tried {
    let ((mut old, old_start), (mut new, new_start)) = (reserve(COUNT)?, reserve(COUNT)?);
    old.bind(&MemoryPolicy::bind(first))?;
    touch(&mut old, 0..8);
    set_memory_policy(&MemoryPolicy::bind(second))?;
    touch(&mut old, 8..16);
    touch(&mut new, 0..16);
    Ok(json!({ "old": by_node(&nodes(old_start, 16)?), "new": by_node(&nodes(new_start, 16)?) }))
}

fn interleaved(first: NodeId, second: NodeId) -> Tried {
    let (mut memory, start) = reserve(COUNT)?;
    memory.bind(&MemoryPolicy::new(MemoryMode::Interleave, set(&[first, second])))?;
    touch(&mut memory, 0..COUNT);
    let found = nodes(start, COUNT)?;
    let alternate = found.windows(2).all(|pair| pair[0] != pair[1]);
    set_memory_policy(&MemoryPolicy::new(MemoryMode::Interleave, set(&[first, second])))?;
    let next = next_interleave_node()?;
    let is_one = next == first || next == second;
    Ok(json!({ "pages": by_node(&found), "alternate": alternate, "next_is_one": is_one }))
}

/// From a CPU of the first node, memory that may be on both nodes: without a home node, and with the second as home
/// node.
fn home_node(first: NodeId, second: NodeId) -> Tried {
    let ((mut without, without_start), (mut with, with_start)) = (reserve(COUNT)?, reserve(COUNT)?);
    let both = MemoryPolicy::new(MemoryMode::PreferredMany, set(&[first, second]));
    without.bind(&both)?;
    with.bind(&both)?;
    set_home_node(with_start, COUNT.next_multiple_of(HUGE_PAGE / PAGE) * PAGE, second)?;
    go_to(first)?;
    touch(&mut without, 0..COUNT);
    touch(&mut with, 0..COUNT);
    let no_policy = set_home_node(reserve(1)?.1, PAGE, second).map_or_else(|error| error.raw_os_error(), |()| None);
    let (without, with) = (by_node(&nodes(without_start, COUNT)?), by_node(&nodes(with_start, COUNT)?));
    Ok(json!({ "without": without, "with": with, "errno_without_policy": no_policy }))
}

/// Three pages on the second node for each page on the first; the weight is restored.
fn weighted(first: NodeId, second: NodeId) -> Tried {
    let weight = Switch::interleave_weight(second);
    let before = weight.value()?;
    let (mut memory, start) = reserve(COUNT)?;
    let guards = (Switch::interleave_weight(first).set_for_now("1")?, weight.set_for_now("3")?);
    memory.bind(&MemoryPolicy::new(MemoryMode::WeightedInterleave, set(&[first, second])))?;
    touch(&mut memory, 0..COUNT - 1);
    drop(guards);
    let pages = by_node(&nodes(start, COUNT)?);
    Ok(json!({ "pages": pages, "weight_put_back": weight.value()? == before }))
}

/// Small pages become a huge page and small pages again, and keep their contents.
fn huge() -> Tried {
    let (memory, start) = reserve(HUGE_PAGE / PAGE)?;
    let words = memory.fill(|word| word);
    let range = start..start + HUGE_PAGE;
    let own = Process::open(Pid(std::process::id()))?;
    let there = start as u64..(start + HUGE_PAGE) as u64;
    let count = || -> Result<Option<u64>, Box<dyn std::error::Error + Send + Sync>> {
        let found = huge_pages_by_node(&own, &there)?;
        Ok(found.map(|nodes| nodes.iter().map(|(_, pages)| pages).sum()))
    };
    let before = count()?;
    advise(&range, Advice::HugePages)?;
    advise(&range, Advice::Collapse)?;
    let collapsed = count()?;
    // The kernel does not split a page that it is using itself, and reports no error: this is temporary.
    let (mut split, mut after) = (Ok(()), collapsed);
    for _ in 0..SPLIT_TRIES {
        split = split_huge_pages(own.pid(), &there).map_err(|error| error.to_string());
        after = count()?;
        if split.is_err() || after == Some(0) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let kept = words.iter().enumerate().all(|(place, word)| *word == place);
    Ok(json!({ "before": before, "collapsed": collapsed, "split": split.err(), "after": after, "kept": kept }))
}

/// Sets the kernel's own switch, briefly.
fn switch() -> Tried {
    let switch = Switch::numa_balancing();
    let before = switch.value()?;
    let other = if before == "0" { "1" } else { "0" };
    let guard = switch.set_for_now(other)?;
    let meanwhile = switch.value()?;
    drop(guard);
    Ok(json!({ "changed": meanwhile == other, "put_back": switch.value()? == before }))
}

/// Collapses small pages of another process into a huge page.
fn other_process(pid: Pid, start: u64) -> Tried {
    let start = start as usize;
    let (all, page) = (start..start + HUGE_PAGE, start..start + PAGE);
    let bytes = AdvisedProcess::open(pid)?.advise(from_ref(&all), Advice::Collapse)?;
    // `linux` has no advice that changes the contents of memory; the rest may not be allowed on other processes.
    let refused = AdvisedProcess::open(pid)?.advise(from_ref(&page), Advice::PopulateRead);
    let strict = Misplaced { strict: true, moved: None };
    let unmapped = bind_range(PAGE, PAGE, &MemoryPolicy::bind(NodeId(0)), strict);
    Ok(json!({
        "bytes": bytes,
        "populate_errno": refused.err().and_then(|error| error.raw_os_error()),
        "unmapped_errno": unmapped.err().and_then(|error| error.raw_os_error()),
    }))
}
