//! All tables of a trace.

use crate::rows::Frame;
use crate::symbol_rows::{CodeRow, ImageRow, RangeRow, SegmentRow};
use crate::table::Row;
use crate::{Count, Event, Sample};

/// Names of all tables of a trace, each a folder of files.
pub const TABLES: [&str; 8] = [
    Sample::TABLE,
    Event::TABLE,
    Count::TABLE,
    Frame::TABLE,
    CodeRow::TABLE,
    ImageRow::TABLE,
    RangeRow::TABLE,
    SegmentRow::TABLE,
];
