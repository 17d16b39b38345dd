//! All tables of a trace.

use crate::error::ReadError;
use crate::rows::Frame;
use crate::symbol_rows::{CodeRow, ImageRow, RangeRow, SegmentRow};
use crate::table::Row;
use crate::table_folder::unknown_columns;
use crate::{Count, Event, Sample};
use std::collections::BTreeSet;
use std::path::Path;

macro_rules! tables {
    ($($row:ident),*) => {
        /// Names of all tables of a trace, each a folder of files.
        pub const TABLES: [&str; 8] = [$($row::TABLE),*];

        /// The columns that this version does not know, by table.
        pub(crate) fn unknown_in_all_tables(trace: &Path) -> Result<[BTreeSet<String>; 8], ReadError> {
            Ok([$(unknown_columns::<$row>(trace)?),*])
        }
    };
}

tables!(Sample, Event, Count, Frame, CodeRow, ImageRow, RangeRow, SegmentRow);
