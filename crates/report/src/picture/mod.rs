//! A machine for people's eyes: text for terminals, SVG for pages.
//!
//! `facts` gathers what both need, `text` writes the terminal's form. For the picture, `block`, `map`, `links` and
//! `heat` decide where everything goes (numbers only), `scene` puts them on one page and `svg` writes it. `strip` is a page of
//! its own: where memory lies, address by address.

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! append {
    ($text:expr, $($argument:tt)*) => {{
        use std::fmt::Write as _;
        let _ = $text.write_fmt(format_args!($($argument)*));
    }};
}

mod block;
mod facts;
mod heat;
mod links;
mod map;
mod scene;
mod strip;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod units;

pub use heat::HeatMap;
use machine::Machine;
pub use strip::{Place, Strip};

/// Heat maps as one self-contained SVG image. Maps without a value are left out.
pub fn heat_maps_to_svg(title: &str, summary: &str, maps: Vec<HeatMap>) -> String {
    svg::write(&scene::of_heat_maps(title, summary, maps))
}

/// Address ranges as one self-contained SVG image: which node each piece of them lies on.
pub fn strips_to_svg(title: &str, summary: &str, strips: &[Strip]) -> String {
    svg::write(&strip::of_strips(title, summary, strips))
}

/// A machine for a terminal: nodes, caches, distances, latencies and links as aligned ASCII tables. Machines with more
/// than 32 nodes or links are summed up by what they have in common, so that the text stays a page long at any size.
pub fn machine_to_text(machine: &Machine) -> String {
    text::machine(machine)
}

/// Where a machine's numbers come from: each source with its citation and the tables that cite it. Empty when nothing
/// has a source.
pub fn sources_to_text(machine: &Machine) -> String {
    text::sources(machine)
}

/// A machine as one self-contained SVG image: nodes with their caches and cores, packages, links, and a heat map of
/// latencies or firmware distances. No scripts, no external fonts. Above 32 nodes the heat map and a summary are drawn
/// alone.
pub fn machine_to_svg(machine: &Machine) -> String {
    svg::write(&scene::of(machine))
}
