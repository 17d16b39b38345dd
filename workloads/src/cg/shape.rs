//! How large a matrix is, and how far elements are apart.

use crate::error::{self, Error};
use crate::options::CgOptions;
use clap::ValueEnum;

/// Bytes of an entry: its column and its value.
const ENTRY_BYTES: usize = size_of::<u32>() + size_of::<f64>();
/// Entries of a row of class C.
const CLASS_C_ENTRIES: usize = 240;
/// Bytes of the matrix for each thread in class C with 64 threads, and in the class `lab` with any number.
const LAB_BYTES: usize = 27 << 18;
/// Size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, and columns.
    pub rows: usize,
    /// In each row.
    pub entries: usize,
    /// Of the elements of all arrays.
    pub spacing: Spacing,
}

/// Bytes from one element of an array to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Spacing {
    #[default]
    #[value(name = "8")]
    None,
    #[value(name = "64")]
    Line,
    #[value(name = "96")]
    OneAndAHalf,
    #[value(name = "128")]
    Two,
    #[value(name = "256")]
    Four,
}

impl Spacing {
    /// In elements.
    fn elements(self) -> usize {
        match self {
            Self::None => 1,
            Self::Line => 8,
            Self::OneAndAHalf => 12,
            Self::Two => 16,
            Self::Four => 32,
        }
    }
}

/// A class of NAS's CG, about as large as there; or class C's share of a thread for each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub enum Class {
    S,
    W,
    A,
    B,
    C,
    #[value(name = "lab")]
    Lab,
}

impl Shape {
    /// Of a class or this number of rows, or else of this number of bytes.
    pub fn new(options: &CgOptions, threads: usize, size: usize) -> Result<Self, Error> {
        let CgOptions { class, rows, spacing, .. } = *options;
        match (class, rows) {
            (Some(class), _) => Ok(Self::of_class(class, spacing, threads)),
            (None, Some(rows)) => Ok(Self { rows: rows as usize, entries: CLASS_C_ENTRIES, spacing }),
            (None, None) => Self::of_size(size, spacing),
        }
    }

    /// A power of two of rows with 16 entries each, in this number of bytes.
    fn of_size(size: usize, spacing: Spacing) -> Result<Self, Error> {
        let entries = 16;
        let row_bytes = entries * ENTRY_BYTES * spacing.elements();
        error::check_count(size, row_bytes)?;
        Ok(Self { rows: 1 << (size / row_bytes).max(2).ilog2(), entries, spacing })
    }

    /// The rows of a class, and the entries that its rows have on average. NAS's classes take more memory the further
    /// elements are apart, and `lab` has fewer rows.
    fn of_class(class: Class, spacing: Spacing, threads: usize) -> Self {
        let (rows, entries) = match class {
            Class::S => (1400, 64),
            Class::W => (7000, 81),
            Class::A => (14_000, 144),
            Class::B => (75_000, 196),
            Class::C => (150_000, CLASS_C_ENTRIES),
            Class::Lab => (threads * LAB_BYTES / (CLASS_C_ENTRIES * ENTRY_BYTES * spacing.elements()), CLASS_C_ENTRIES),
        };
        Self { rows, entries, spacing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_nas_proportions() {
        let megabytes = |class, threads| {
            let Shape { rows, entries, .. } = Shape::of_class(class, Spacing::None, threads);
            (rows * entries * ENTRY_BYTES) as f64 / f64::from(1 << 20)
        };
        assert!((megabytes(Class::C, 64) / 64.0 - 6.44).abs() < 0.1 && (megabytes(Class::Lab, 8) - 54.0).abs() < 0.1);
        let sized = |spacing| Shape::of_size(32 << 20, spacing).unwrap();
        assert_eq!(sized(Spacing::None), Shape { rows: 1 << 17, entries: 16, spacing: Spacing::None });
        assert_eq!(sized(Spacing::Line).rows, 1 << 14, "as much memory");
        assert_eq!(Shape::of_class(Class::Lab, Spacing::Four, 8).rows, 614);
    }
}
