//! JSON output. Every document and every line has the version of the schemas.

use report::escape_json;
use serde::Serialize;

/// Version of the schemas in docs/json.md. It changes where a field is removed, renamed or means something else.
/// Further fields do not change it.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    report: &'a T,
}

/// A report, which is an object, as a document for people and programs.
pub fn document(report: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(escape_json(serde_json::to_string_pretty(&Versioned { schema: SCHEMA, report })? + "\n"))
}

/// A report as one line, for outputs that have several.
pub fn line(report: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(escape_json(serde_json::to_string(&Versioned { schema: SCHEMA, report })? + "\n"))
}
