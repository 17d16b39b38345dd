//! Extracts numbers from a program's output.

use serde_json::Value;

/// The numbers at this JSON pointer (`/kernels/4/mean_mb_per_s`), in the output as one JSON text, or in each of its
/// lines that is JSON.
pub fn numbers(printed: &str, pointer: &str) -> Vec<f64> {
    values(printed).iter().filter_map(|json| json.pointer(pointer)?.as_f64()).collect()
}

/// The output as one JSON text, or each of its lines that is JSON.
pub fn values(printed: &str) -> Vec<Value> {
    match serde_json::from_str(printed) {
        Ok(json) => vec![json],
        Err(_) => printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
    }
}

/// A curve in a program's JSON output, and a position on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// JSON pointer to its points, an array.
    pub points: String,
    /// JSON pointer, within a point, to its x.
    pub x: String,
    /// JSON pointer, within a point, to its y.
    pub y: String,
    /// The x at which the value is read.
    pub at: f64,
}

impl Curve {
    /// The value at that position, interpolated linearly between two points; `None` beyond the ends of the curve.
    pub fn value(&self, printed: &str) -> Option<f64> {
        let json: Value = serde_json::from_str(printed).ok()?;
        let coordinates = |point: &Value| Some((point.pointer(&self.x)?.as_f64()?, point.pointer(&self.y)?.as_f64()?));
        let mut points: Vec<(f64, f64)> =
            json.pointer(&self.points)?.as_array()?.iter().filter_map(coordinates).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let around = points.windows(2).find_map(|pair| match pair {
            [low, high] if (low.0..=high.0).contains(&self.at) => Some((*low, *high)),
            _ => None,
        });
        let (low, high) = around?;
        let part = if high.0 > low.0 { (self.at - low.0) / (high.0 - low.0) } else { 0.0 };
        Some(low.1 + (high.1 - low.1) * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_curve_has_values_between_its_ends() {
        let printed = r#"{"curve": [{"x": 4, "y": {"v": 10}}, {"x": 2, "y": {"v": 5}}, {"x": 3, "y": null}, {"x": 8, "y": {"v": 10}}]}"#;
        let value = |at| {
            let [points, x, y] = ["/curve", "/x", "/y/v"].map(str::to_owned);
            Curve { points, x, y, at }.value(printed).map(|value| value.to_string())
        };
        assert_eq!([2.0, 3.0, 4.0, 6.0, 8.0].map(value), ["5", "7.5", "10", "10", "10"].map(|v| Some(v.to_owned())));
        assert_eq!([1.9, 8.1, f64::NAN].map(value), [None, None, None]);
    }

    #[test]
    fn numbers_are_found_among_what_a_program_prints() {
        let printed = "hello\n{\"a\": {\"b\": [1, 2.5]}}\n{\"a\": 1}\n{\"a\": {\"b\": [1, 3]}}\n";
        assert_eq!(numbers(printed, "/a/b/1"), [2.5, 3.0]);
        assert_eq!(numbers("{\n  \"a\": [4,\n 5]}\n", "/a/1"), [5.0]);
        assert!(numbers("{\"a\": \"4\"}", "/a").is_empty());
    }

    proptest! {
        #[test]
        fn nothing_printed_makes_it_panic(printed in ".*", pointer in ".*") {
            numbers(&printed, &pointer);
        }
    }
}
