//! Where numbers come from.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source of the numbers of one table: one key of [`Machine::sources`](crate::Machine::sources) for all of them, or one per field, with `*`
/// for all other fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a text, or a table of texts by field")]
pub enum Source {
    /// One source for every number of the table.
    All(String),
    /// Field name to source.
    ByField(BTreeMap<String, String>),
}
