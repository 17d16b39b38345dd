//! Statistics of repeated measurements: means and ratios with their intervals, and correlations.

mod correlation;
mod estimate;

pub use correlation::{fisher_interval, pearson, spearman};
pub use estimate::{Estimate, mean};
