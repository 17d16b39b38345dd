//! Renders a machine for people: text for terminals, SVG for pages.
//!
//! `facts` gathers what both need, `text` writes the terminal's form. For the picture, `block`, `map`, `links` and
//! `heat` compute the layout (numbers only), `scene` combines them on one page and `svg` writes it. `strip` is a
//! separate page: the node of memory, address by address.

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
pub(crate) use heat::MEMORY;
use machine::Machine;
pub use strip::{Place, Strip};
pub(crate) use svg::DARK;
pub use text::MachineText;

/// Heat maps as one self-contained SVG image. Maps without a value are left out.
pub fn heat_maps_to_svg(title: &str, summary: &str, maps: Vec<HeatMap>) -> String {
    svg::write(&scene::of_heat_maps(title, summary, maps), true)
}

/// Address ranges as one self-contained SVG image: the node of each piece.
pub fn strips_to_svg(title: &str, summary: &str, strips: &[Strip]) -> String {
    svg::write(&strip::of_strips(title, summary, strips), true)
}

/// A machine as one self-contained SVG image: nodes with their caches and cores, packages, links, and a heat map of
/// latencies or firmware distances. No scripts, no external fonts. Above 32 nodes only the heat map and a summary are
/// drawn.
pub fn machine_to_svg(machine: &Machine) -> String {
    svg::write(&scene::of(machine), true)
}

/// The same as a part of a page.
pub(crate) fn machine_in_page(machine: &Machine) -> String {
    svg::write(&scene::of(machine), false)
}

/// Heat maps as a part of a page.
pub(crate) fn heat_maps_in_page(maps: Vec<HeatMap>) -> String {
    svg::write(&scene::of_heat_maps("", "", maps), false)
}
