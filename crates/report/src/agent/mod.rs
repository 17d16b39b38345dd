//! What the agent does and did, as text and as metrics.

mod metrics;
mod run;
mod status;

pub use metrics::{StatusMetrics, prometheus};
pub use run::PlaceText;
pub use status::{ExplanationText, StatusText};
