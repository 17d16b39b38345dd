//! Writes a scene as SVG: attributes only, so that it looks the same in browsers, in READMEs and in converters that
//! ignore style sheets.

use super::links::Points;
use super::scene::{Rect, Scene, Shape, Style};
use crate::escape::is_odd;

/// From near to far; colour-blind safe because it also darkens.
const HEAT: [[f64; 3]; 4] = [[233.0, 241.0, 236.0], [247.0, 217.0, 160.0], [219.0, 133.0, 84.0], [150.0, 58.0, 52.0]];
const UNKNOWN: &str = "#e4e4e4";
const UNKNOWN_RGB: [f64; 3] = [228.0, 228.0, 228.0];
/// Turns the light picture into a dark one, with the same hues.
pub const DARK: &str =
    "<style>@media (prefers-color-scheme: dark) { :root { filter: invert(0.9) hue-rotate(180deg); } }</style>\n";
/// Categorical colours: colour-blind safe (Okabe and Ito).
const KINDS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#5b5b5b"];

/// The kind for a mix of kinds, with a separate colour.
pub(super) const MIXED: usize = usize::MAX;
const MIXED_COLOUR: &str = "#c3bdb0";

/// On its own, a picture follows the reader's choice of light or dark; in a page, the page's style does that.
pub(super) fn write(scene: &Scene, alone: bool) -> String {
    let style = if alone { DARK } else { "" };
    let (width, height) = (number(scene.width), number(scene.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n\
         <title>{}</title>\n<desc>{}</desc>\n{style}<rect width=\"{width}\" height=\"{height}\" fill=\"#fdfdfb\"/>\n",
        escape(&scene.title),
        escape(&scene.summary)
    );
    scene.shapes.iter().for_each(|shape| draw(&mut svg, shape));
    svg + "</svg>\n"
}

fn draw(svg: &mut String, shape: &Shape) {
    match shape {
        Shape::Box { area, style } => {
            let (fill, stroke, radius) = box_look(*style);
            append!(svg, "<rect {} rx=\"{radius}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n", place(*area));
        }
        Shape::Text { x, y, size, anchor, style, text } => {
            let (fill, weight) = text_look(*style);
            let anchor = if *anchor > 0.9 {
                " text-anchor=\"end\""
            } else if *anchor > 0.1 {
                " text-anchor=\"middle\""
            } else {
                ""
            };
            let (x, y, text) = (number(*x), number(*y), escape(text));
            append!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{fill}\"{weight}{anchor}>{text}</text>\n"
            );
        }
        Shape::Curve { points, width, style, arrow } => {
            let stroke = if *style == Style::OneWay { "#c0673a" } else { "#7d93b2" };
            // The line ends inside the arrow head; otherwise the tip would be blunt.
            let head = arrow.then(|| arrow_head(points));
            let drawn = head.as_ref().map_or(*points, |(_, line)| *line);
            let [from, a, b, to] = drawn.map(|(x, y)| format!("{} {}", number(x), number(y)));
            let width = number(*width);
            append!(
                svg,
                "<path d=\"M{from}C{a} {b} {to}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>\n"
            );
            if let Some((head, _)) = head {
                append!(svg, "<path d=\"{head}\" fill=\"{stroke}\"/>\n");
            }
        }
        Shape::Heat { area, heat, hint } => {
            let hint = if hint.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hint)) };
            let crisp = if hint.is_empty() { " shape-rendering=\"crispEdges\"" } else { "" };
            append!(
                svg,
                "<rect {}{crisp} fill=\"{}\">{hint}</rect>\n",
                place(*area),
                heat.map_or_else(|| UNKNOWN.to_owned(), heat_colour)
            );
        }
        Shape::Cell { area, colour, hint } => {
            let (colour, hint) = (kind_colour(*colour), escape(hint));
            append!(
                svg,
                "<rect {} shape-rendering=\"crispEdges\" fill=\"{colour}\"><title>{hint}</title></rect>\n",
                place(*area)
            );
        }
        Shape::HeatText { x, y, size, heat, text } => {
            let fill = text_colour(heat.map_or(UNKNOWN_RGB, heat_rgb));
            let (x, y, text) = (number(*x), number(*y), escape(text));
            append!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{fill}\" text-anchor=\"middle\">{text}</text>"
            );
        }
    }
}

/// Fill, outline, corner radius.
fn box_look(style: Style) -> (&'static str, &'static str, u32) {
    match style {
        Style::Package => ("#f4f3ee\n", "#d9d6cb", 10),
        Style::Node => ("#ffffff", "#8f99a8", 8),
        Style::Memory => ("#dce8f5", "#a9c3e0", 3),
        Style::Absent => ("#f3f3f3", "#d5d5d5", 3),
        Style::Shared => ("#eef3ea", "#bccdb0", 5),
        Style::Private => ("#f8efd9", "#e2cf9f", 2),
        Style::Core => ("#ffffff", "#c9ced6", 3),
        _ => ("#fdfdfb", "none", 4),
    }
}

fn text_look(style: Style) -> (&'static str, &'static str) {
    match style {
        Style::Heading | Style::NodeTitle => ("#22262d", " font-weight=\"600\""),
        Style::Note => ("#666c76", ""),
        _ => ("#2b2f36", ""),
    }
}

fn heat_colour(heat: f64) -> String {
    let [red, green, blue] = heat_rgb(heat).map(|channel| channel.round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Black or white, whichever has the greater contrast: at least 4.5 on any colour.
fn text_colour(behind: [f64; 3]) -> &'static str {
    // (light + 0.05) / (dark + 0.05), with the luminance 0 of black and 1 of white (WCAG 2.2).
    let luminance = luminance(behind);
    if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) { "#000000" } else { "#ffffff" }
}

/// The relative luminance of a colour, 0 to 1 (WCAG 2.2).
fn luminance(rgb: [f64; 3]) -> f64 {
    let linear = |channel: f64| {
        let part = channel / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    let [red, green, blue] = rgb.map(linear);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn heat_rgb(heat: f64) -> [f64; 3] {
    let at = heat.clamp(0.0, 1.0) * (HEAT.len() - 1) as f64;
    let low = (at as usize).min(HEAT.len() - 2);
    let mix = |channel: usize| HEAT[low][channel] + (HEAT[low + 1][channel] - HEAT[low][channel]) * (at - low as f64);
    [mix(0), mix(1), mix(2)]
}

/// After the first few, hues that differ most from their neighbours.
fn kind_colour(index: usize) -> String {
    if index == MIXED {
        return MIXED_COLOUR.to_owned();
    }
    KINDS.get(index).map_or_else(
        || format!("hsl({}, 55%, {}%)", (index as f64 * 137.508).round() as u64 % 360, 40 + index % 3 * 15),
        |colour| (*colour).to_owned(),
    )
}

/// A triangle whose tip is the curve's end, and the curve that ends in its middle.
fn arrow_head(points: &Points) -> (String, Points) {
    let [from, a, b, tip] = *points;
    let (dx, dy) = (tip.0 - b.0, tip.1 - b.1);
    let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
    let (x, y) = (dx / length, dy / length);
    let back = |by: f64, aside: f64| (tip.0 - by * x - aside * y, tip.1 - by * y + aside * x);
    let corner = |(x, y): (f64, f64)| format!("{} {}", number(x), number(y));
    let head = format!("M{}L{}L{}Z", corner(tip), corner(back(14.0, 6.5)), corner(back(14.0, -6.5)));
    (head, [from, a, b, back(9.0, 0.0)])
}

fn place(area: Rect) -> String {
    let [x, y, width, height] = [area.x, area.y, area.width, area.height].map(number);
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

/// To a tenth of a pixel.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Escapes markup for XML, and replaces characters that XML cannot represent.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if is_odd(c) => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_heat_can_be_read() {
        for step in 0..=200 {
            let behind = heat_rgb(f64::from(step) / 200.0);
            let text = if text_colour(behind) == "#ffffff" { 1.0 } else { 0.0 };
            let (light, dark) = (luminance(behind).max(text), luminance(behind).min(text));
            assert!((light + 0.05) / (dark + 0.05) >= 4.5, "{behind:?}");
        }
        assert!((luminance([255.0; 3]) - 1.0).abs() < 1e-9 && luminance([0.0; 3]) == 0.0);
    }
}
