//! Writes a scene as SVG: attributes only, so that it looks the same in browsers, in READMEs and in converters that
//! ignore style sheets.

use super::links::Points;
use super::scene::{Rect, Scene, Shape, Style};

/// From near to far; colour-blind safe because it also darkens.
const HEAT: [[f64; 3]; 4] = [[233.0, 241.0, 236.0], [247.0, 217.0, 160.0], [219.0, 133.0, 84.0], [150.0, 58.0, 52.0]];
const UNKNOWN: &str = "#e4e4e4";
/// Categorical colours: colour-blind safe (Okabe and Ito).
const KINDS: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#5b5b5b"];

/// The kind for a mix of kinds, with a separate colour.
pub(super) const MIXED: usize = usize::MAX;
const MIXED_COLOUR: &str = "#c3bdb0";

pub(super) fn write(scene: &Scene) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n\
         <title>{}</title>\n<desc>{}</desc>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fdfdfb\"/>\n",
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
            let fill = if heat.is_some_and(|heat| heat > 0.62) { "#ffffff" } else { "#2b2f36" };
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
    let at = heat.clamp(0.0, 1.0) * (HEAT.len() - 1) as f64;
    let low = (at as usize).min(HEAT.len() - 2);
    let mix = |channel: usize| {
        (HEAT[low][channel] + (HEAT[low + 1][channel] - HEAT[low][channel]) * (at - low as f64)).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
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
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}
