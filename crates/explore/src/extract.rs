//! Numbers in what a program printed.

use serde_json::Value;

/// The numbers at this JSON pointer (`/kernels/4/mean_mb_per_s`): of the one JSON text that was printed, or of every
/// line that is JSON.
pub fn numbers(printed: &str, pointer: &str) -> Vec<f64> {
    let number = |json: Value| json.pointer(pointer)?.as_f64();
    match serde_json::from_str(printed) {
        Ok(json) => number(json).into_iter().collect(),
        Err(_) => printed.lines().filter_map(|line| serde_json::from_str(line).ok()).filter_map(number).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
