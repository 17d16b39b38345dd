//! Latencies of memory under load: the controllers and links of a machine as a closed queueing network. Pure: a
//! [`machine::Machine`] and classes of threads in, rates and latencies out.
//!
//! [`Distances`] has what is known without load: idle latencies and routes, and how latency grows with utilisation.
//! [`solve`] lets classes of threads run together, so that the predicted effect of another placement includes the load
//! that it moves; [`solve_beside`] does so beside traffic that is given. [`scale`] fits the classes to an observed
//! latency first.
//!
//! ```
//! use machine::NodeId;
//! use queueing::{Class, Distances, LINE_BYTES, NodeShare, solve};
//!
//! let machine = machine::presets::find("opteron-6164x2")?;
//! let distances = Distances::new(&machine);
//! let threads_of = |node| {
//!     let to = vec![NodeShare { to: NodeId(0), part: 1.0, bytes: LINE_BYTES }];
//!     Class { from: NodeId(node), lines: 12.0, work_ns: 0.0, to, most_rate: f64::INFINITY }
//! };
//! let alone = solve(&[threads_of(0)], &distances).ok_or("the machine has latencies")?;
//! let together = solve(&[threads_of(0), threads_of(1)], &distances).ok_or("the machine has latencies")?;
//! assert!(together[0].latency_ns > 1.5 * alone[0].latency_ns);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod distances;
mod fit;
mod network;

pub use distances::{Distances, NEARLY_FULL};
pub use fit::{fit, scale, scaled};
pub use network::{Background, Class, LINE_BYTES, NodeShare, Resource, Served, solve, solve_beside};
