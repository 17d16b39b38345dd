//! Sizes in bytes: a number, or a text with a unit (`12 GiB`, `512K`).

use crate::number::significant;
use serde::{Deserialize, Deserializer, de};

const UNITS: [(&str, u32); 5] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("", 0)];

/// Parses `4096`, `512K`, `512KiB`, `512 KB`: units are powers of 1,024 however they are spelled, as in numactl and
/// QEMU.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift);
    let Some(shift) = shift.filter(|_| !number.is_empty()) else {
        return Err(format!(
            "`{text}` is not a size: write bytes, or a number with K, M, G or T, such as 12G or 12 GiB"
        ));
    };
    let value = number.parse::<u64>().ok().and_then(|value| value.checked_mul(1 << shift));
    value.ok_or_else(|| format!("`{text}` is too large: sizes are below 16 million TiB"))
}

/// Writes a size with the largest unit that divides it.
pub fn format(bytes: u64) -> String {
    let unit = UNITS[..4].iter().rev().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| format!("{bytes} B"), |(name, shift)| format!("{} {name}iB", bytes >> shift))
}

/// A size to three digits in the largest binary unit that it reaches, such as `15.6 GiB`: memory has powers of two, as
/// pages, caches and nodes do, in all text of nearside.
pub fn rounded(bytes: u64) -> String {
    // What would be rounded to 1024 of a unit is one of the next.
    let reaches = |shift: u32| bytes >= (1 << shift) - (1_u64 << shift >> 11);
    let unit = UNITS[..4].iter().rev().find(|(_, shift)| reaches(*shift));
    unit.map_or_else(
        || format!("{bytes} B"),
        |(name, shift)| format!("{} {name}iB", significant(bytes as f64 / (1_u64 << shift) as f64)),
    )
}

/// For serde: a number of bytes, or a text such as `12 GiB`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size: bytes, or a text such as \"12 GiB\"")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => parse(&text).map_err(de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [("4096", 4096), ("512K", 512 << 10), ("12 GiB", 12 << 30), ("1tb", 1 << 40), ("0", 0)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "12 Gib/s", "99999999999T", "1K1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("99999999999T").unwrap_err().ends_with("sizes are below 16 million TiB"));
    }

    #[test]
    fn rounded_sizes_have_three_digits_and_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 10, "1 KiB"),
            (12_345, "12.1 KiB"),
            (512 << 10, "512 KiB"),
            ((1 << 20) - 513, "1023 KiB"),
            ((1 << 20) - 512, "1 MiB"),
            (175_957_120, "168 MiB"),
            (8 << 30, "8 GiB"),
            (16_710_066_176, "15.6 GiB"),
            (100 << 30, "100 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(rounded(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in any::<u64>()) {
            prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
        }
    }
}
