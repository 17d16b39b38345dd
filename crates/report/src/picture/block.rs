//! The contents of a node's box: nested blocks of memory, shared caches, cores and their own caches, with their sizes.

use super::facts::Facts;
use super::scene::{Rect, Shape, Style, text_width};
use super::text::letter;
use machine::number::{bandwidth, counted};
use machine::{Cache, CacheKind, CpuId, CpuSet, size};
use std::collections::HashMap;

/// Up to this many cores per node are drawn individually, and …
const MOST_CORES_A_NODE: usize = 16;
/// … up to this many in the picture; above, only their caches are drawn, with a count.
const MOST_CORES: usize = 128;
/// With links, more nodes than this are already so far apart that their cores are only counted.
const MOST_LINKED_NODES: usize = 8;
/// Up to this many shared caches per node are drawn individually.
const MOST_CACHES_A_NODE: usize = 16;
const PAD: f64 = 8.0;
const GAP: f64 = 5.0;
const STRIP_HEIGHT: f64 = 16.0;
const STRIP_FONT: f64 = 10.0;

/// A box: a title line, strips of text, and boxes inside.
pub(super) struct Block {
    pub style: Style,
    pub title: String,
    /// Text to the right of the title.
    pub note: String,
    pub strips: Vec<(Style, String)>,
    pub children: Vec<Block>,
}

impl Block {
    fn title_height(&self) -> f64 {
        match self.style {
            _ if self.title.is_empty() => 0.0,
            Style::Node => 25.0,
            _ => 20.0,
        }
    }

    fn title_size(&self) -> f64 {
        if self.style == Style::Node { 13.0 } else { STRIP_FONT }
    }

    fn pad(&self) -> f64 {
        if self.children.is_empty() && self.title.is_empty() { 3.0 } else { PAD }
    }

    /// Width and height needed by its contents.
    pub fn size(&self) -> (f64, f64) {
        let (grid_width, grid_height, ..) = self.grid();
        let title = text_width(&self.title, self.title_size()) + text_width(&self.note, STRIP_FONT) + 12.0;
        let strips = self.strips.iter().map(|(_, text)| text_width(text, STRIP_FONT) + 8.0).fold(0.0, f64::max);
        let between = if self.strips.is_empty() || self.children.is_empty() { 0.0 } else { GAP };
        let width = title.max(strips).max(grid_width).max(36.0) + 2.0 * self.pad();
        let strips = self.strips.len() as f64 * (STRIP_HEIGHT + 2.0);
        let bottom = self.pad() - if self.children.is_empty() && !self.strips.is_empty() { 2.0 } else { 0.0 };
        (width, self.title_height().max(self.pad()) + strips + between + grid_height + bottom)
    }

    fn leaves(&self) -> usize {
        if self.children.is_empty() { 1 } else { self.children.iter().map(Self::leaves).sum() }
    }

    /// Width and height of the children's grid, of one cell, and the number of columns.
    fn grid(&self) -> (f64, f64, f64, f64, usize) {
        let sizes: Vec<_> = self.children.iter().map(Block::size).collect();
        let (width, height) = sizes.iter().fold((0.0, 0.0), |(w, h): (f64, f64), size| (w.max(size.0), h.max(size.1)));
        if sizes.is_empty() {
            return (0.0, 0.0, 0.0, 0.0, 0);
        }
        let columns = columns(sizes.len(), width + GAP, height + GAP, 2.4);
        let rows = sizes.len().div_ceil(columns);
        (columns as f64 * (width + GAP) - GAP, rows as f64 * (height + GAP) - GAP, width, height, columns)
    }

    /// Adds its shapes, stretched to the width of `area`.
    pub fn place(&self, area: Rect, shapes: &mut Vec<Shape>) {
        shapes.push(Shape::Box { area, style: self.style });
        let pad = self.pad();
        let mut y = area.y + self.title_height().max(pad);
        if !self.title.is_empty() {
            let style = if self.style == Style::Node { Style::NodeTitle } else { Style::Label };
            let baseline = area.y + self.title_height() - 7.0;
            shapes.push(Shape::text(area.x + pad, baseline, self.title_size(), style, &self.title));
            shapes.push(Shape::text(area.right() - pad, baseline, STRIP_FONT, Style::Note, &self.note).anchored(1.0));
        }
        for (style, text) in &self.strips {
            let strip = Rect { x: area.x + pad, y, width: area.width - 2.0 * pad, height: STRIP_HEIGHT };
            if *style != Style::Label {
                shapes.push(Shape::Box { area: strip, style: *style });
            }
            shapes.push(Shape::text(strip.centre().0, y + 11.5, STRIP_FONT, Style::Label, text).anchored(0.5));
            y += STRIP_HEIGHT + 2.0;
        }
        y += if self.strips.is_empty() { 0.0 } else { GAP };
        let (_, _, width, height, columns) = self.grid();
        // Children share the space of a box that is wider than needed.
        let inner = area.width - 2.0 * pad + GAP;
        let width = if columns == 0 { width } else { inner / columns as f64 - GAP };
        for (i, child) in self.children.iter().enumerate() {
            let (column, row) = (i % columns.max(1), i / columns.max(1));
            let x = area.x + pad + column as f64 * (width + GAP);
            child.place(Rect { x, y: y + row as f64 * (height + GAP), width, height }, shapes);
        }
    }
}

/// The number of columns for the best-looking grid of equal cells: its shape near `aspect` (width over height), its
/// last row full.
pub(super) fn columns(cells: usize, width: f64, height: f64, aspect: f64) -> usize {
    let ugliness = |columns: usize| {
        let rows = cells.div_ceil(columns);
        let shape = (columns as f64 * width) / (rows as f64 * height);
        (shape / aspect).ln().abs() + if cells.is_multiple_of(columns) { 0.0 } else { 0.5 }
    };
    (1..=cells).min_by(|&a, &b| ugliness(a).total_cmp(&ugliness(b))).unwrap_or(1)
}

/// One drawn cache entry: the instance that each CPU is behind.
struct Level<'a> {
    cache: &'a Cache,
    instances: Vec<CpuSet>,
    instance_of: HashMap<CpuId, usize>,
}

/// The blocks of every node, in the order of the machine's nodes.
pub(super) fn of_nodes(facts: &Facts) -> Vec<Block> {
    let machine = facts.machine;
    let mut levels: Vec<Level> =
        machine.caches.iter().filter(|cache| cache.kind != CacheKind::Instruction).map(level(facts)).collect();
    levels.sort_by_key(|level| std::cmp::Reverse(level.cache.level));
    let levels: Vec<&Level> = levels.iter().collect();
    let total: usize = facts.cores.iter().map(Vec::len).sum();
    let most = facts.cores.iter().map(Vec::len).max().unwrap_or(0);
    let spread = !machine.links.is_empty() && machine.nodes.len() > MOST_LINKED_NODES;
    let each_core = most <= MOST_CORES_A_NODE && total <= MOST_CORES && !spread;
    let name_packages = facts.nodes_name_packages();
    let block = |((node, cores), packages): ((&machine::Node, &Vec<CpuSet>), &machine::IdSet<machine::PackageId>)| {
        let mut note = if node.cpus.is_empty() { "no CPUs".to_owned() } else { short_set("CPU", &node.cpus) };
        if !packages.is_empty() && (name_packages || packages.len() > 1) {
            let plural = if packages.len() == 1 { "" } else { "s" };
            note = format!("package{plural} {packages}, {note}");
        }
        let bandwidth =
            node.bandwidth_bytes_per_s.map(|bytes_per_s| format!(", {}", bandwidth(bytes_per_s))).unwrap_or_default();
        let memory = match node.memory_bytes {
            0 => (Style::Absent, "no memory".to_owned()),
            bytes => (Style::Memory, format!("{} memory{bandwidth}", size::rounded(bytes))),
        };
        let cores: Vec<&CpuSet> = cores.iter().filter(|core| core.is_subset(&node.cpus)).collect();
        let mut children = nest(&cores, &levels, &node.cpus, each_core);
        if !each_core && children.iter().map(Block::leaves).sum::<usize>() > MOST_CACHES_A_NODE {
            children = vec![many(&children, &cores, &levels)];
        }
        Block { style: Style::Node, title: format!("node {}", node.id), note, strips: vec![memory], children }
    };
    machine.nodes.iter().zip(&facts.cores).zip(&facts.packages).map(block).collect()
}

fn level<'a>(facts: &Facts) -> impl Fn(&'a Cache) -> Level<'a> {
    move |cache| {
        let instances = facts.machine.cache_instances(cache);
        let of = |(i, cpus): (usize, &CpuSet)| cpus.iter().map(move |cpu| (cpu, i)).collect::<Vec<_>>();
        let instance_of = instances.iter().enumerate().flat_map(of).collect();
        Level { cache, instances, instance_of }
    }
}

/// Groups cores by the largest cache that several of them share, recursively, down to single cores or a count of them.
fn nest(cores: &[&CpuSet], levels: &[&Level], node: &CpuSet, each_core: bool) -> Vec<Block> {
    let shared =
        |level: &&&Level| groups(level, cores, node).iter().any(|(cache, cores)| cache.is_some() && cores.len() > 1);
    let Some(level) = levels.iter().find(shared) else { return leaves(cores, levels, each_core) };
    // Each level groups once: the contents of a group are grouped by the other levels.
    let inside = |cores: &[&CpuSet]| {
        let others: Vec<&Level> = levels.iter().filter(|other| !std::ptr::eq(**other, *level)).copied().collect();
        nest(cores, &others, node, each_core)
    };
    let block = |(cache, cores): (Option<usize>, Vec<&CpuSet>)| {
        if cache.is_none() || cores.len() == 1 {
            return nest(&cores, levels, node, each_core);
        }
        let title = format!("L{} {}", level.cache.level, size::rounded(level.cache.size_bytes));
        vec![Block { style: Style::Shared, title, note: String::new(), strips: Vec::new(), children: inside(&cores) }]
    };
    groups(level, cores, node).into_iter().flat_map(block).collect()
}

/// The cores by their cache of this level, in order of their first core. A cache that reaches beyond the node is not
/// part of it: the picture's summary shows it.
fn groups<'a>(level: &Level, cores: &[&'a CpuSet], node: &CpuSet) -> Vec<(Option<usize>, Vec<&'a CpuSet>)> {
    let mut groups: Vec<(Option<usize>, Vec<&CpuSet>)> = Vec::new();
    let mut indexes: HashMap<Option<usize>, usize> = HashMap::new();
    for &core in cores {
        let cache = core.first().and_then(|cpu| level.instance_of.get(&cpu).copied());
        let cache = cache.filter(|&cache| level.instances.get(cache).is_some_and(|cpus| cpus.is_subset(node)));
        let index = *indexes.entry(cache).or_insert(groups.len());
        if index == groups.len() {
            groups.push((cache, Vec::new()));
        }
        groups.get_mut(index).into_iter().for_each(|(_, cores)| cores.push(core));
    }
    groups
}

/// Cores with their own caches: one block per core, or one block for all of them.
fn leaves(cores: &[&CpuSet], levels: &[&Level], each_core: bool) -> Vec<Block> {
    let leaf =
        |strips| Block { style: Style::Core, title: String::new(), note: String::new(), strips, children: Vec::new() };
    if each_core {
        let one =
            |core: &&CpuSet| [own_caches(core, levels, ""), vec![(Style::Label, short_set("CPU", core))]].concat();
        return cores.iter().map(|core| leaf(one(core))).collect();
    }
    let Some(first) = cores.first() else { return Vec::new() };
    let cpus: CpuSet = cores.iter().flat_map(|core| core.iter()).collect();
    let mut strips = vec![(Style::Label, counted(cores.len(), "core"))];
    strips.extend(own_caches(first, levels, " each"));
    strips.push((Style::Label, short_set("CPU", &cpus)));
    vec![leaf(strips)]
}

/// A strip for each cache that serves this core only.
fn own_caches(core: &CpuSet, levels: &[&Level], each: &str) -> Vec<(Style, String)> {
    let own = |level: &&&Level| {
        let cache = core.first().and_then(|cpu| level.instance_of.get(&cpu));
        cache.and_then(|&cache| level.instances.get(cache)).is_some_and(|cpus| cpus.is_subset(core))
    };
    let strips = levels.iter().filter(own).map(|level| {
        let name = format!("L{}{}", level.cache.level, letter(level.cache.kind));
        (Style::Private, format!("{name} {}{each}", size::rounded(level.cache.size_bytes)))
    });
    strips.collect()
}

/// One block for a node with too many caches to draw.
fn many(children: &[Block], cores: &[&CpuSet], levels: &[&Level]) -> Block {
    let mut strips = vec![(Style::Label, counted(cores.len(), "core"))];
    let mut titles = Vec::new();
    count_titles(children, &mut titles);
    strips.extend(titles.into_iter().map(|(title, count)| (Style::Private, format!("{count} x {title}"))));
    strips.extend(cores.first().into_iter().flat_map(|core| own_caches(core, levels, " each")));
    Block { style: Style::Core, title: String::new(), note: String::new(), strips, children: Vec::new() }
}

fn count_titles<'a>(blocks: &'a [Block], titles: &mut Vec<(&'a str, usize)>) {
    for block in blocks.iter().filter(|block| !block.title.is_empty()) {
        match titles.iter_mut().find(|(title, _)| *title == block.title) {
            Some((_, count)) => *count += 1,
            None => titles.push((&block.title, 1)),
        }
        count_titles(&block.children, titles);
    }
}

/// A set with its noun, or its size if it is too long: `CPUs 0-3`, `64 CPUs`.
fn short_set(noun: &str, set: &CpuSet) -> String {
    let text = set.to_string();
    match set.len() {
        1 => format!("{noun} {text}"),
        _ if text.len() <= 15 => format!("{noun}s {text}"),
        count => counted(count, noun),
    }
}
