//! Which cores, caches, memory and bandwidth a program gets for itself, and what that costs the others. Pure and
//! deterministic: nothing here reads files or clocks, or changes a system.
//!
//! - [`Facts`] is what is known of a machine. A [`Request`] is what a program asks for, a [`Grant`] what it gets, and the
//!   [`Ledger`] has all grants of a machine.
//! - [`Ledger::admit`] decides a list of requests as one transaction. The candidates of a request are ordered by its
//!   preference, and each must pass all tests. One of them is the [`Forecast`]: no guarded grant, the new one included,
//!   is slowed by more than its bound.
//! - A [`ServiceLevel`] follows what a grant's holder says of itself, and tightens what the rest of the machine may draw.
//! - A [`Refusal`] names what is in the way and the nearest request that would be granted.
//! - [`Call`]s are the twelve requests of the study that this follows (Razavi, "Performance isolation on multicore
//!   hardware", ETH Zurich, 2011). [`prolog`](prolog()) prints the facts in its schema.
//!
//! ```
//! use reserve::{Asker, Control, Facts, Isolation, Ledger, Request, Rules};
//! use std::sync::Arc;
//!
//! let machine = machine::presets::find("magny-cours-4p")?;
//! let ledger = Ledger::new(Arc::new(Facts::new(machine, Control::default())), Rules::default());
//! let guarded = Request {
//!     isolate: Isolation { core: true, controller: true, ..Isolation::default() },
//!     ..Request::default()
//! };
//! let admitted = ledger.admit(&[guarded], &Asker::default())?;
//! let grant = &admitted.grants[0];
//! assert!(admitted.forecast.slowdown[&grant.id] <= 0.05);
//! // 13.9 GB/s less what the program may draw and what queues would cost.
//! let limit = admitted.forecast.rest_limit[&grant.node];
//! assert!((4.0e9..4.3e9).contains(&limit), "{limit}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admission;
mod alternatives;
mod calls;
mod candidates;
mod facts;
mod forecast;
mod grant;
mod hops;
mod ledger;
mod occupancy;
mod plan;
mod prolog;
pub mod protocol;
mod quota;
mod refusal;
mod request;
mod service_level;
mod zone;

pub use calls::{Call, CallError, Performance, read_calls};
pub use facts::{Control, Core, Facts, Table, Throttle, Ways};
pub use forecast::Forecast;
pub use grant::{Grant, GrantId};
pub use hops::hop_ends;
pub use ledger::{Action, Admitted, Asker, Flow, Ledger, Moved, Rule, Rules, Share};
pub use plan::{Plan, Tenant};
pub use prolog::prolog;
pub use queueing::Resource;
pub use quota::Quota;
pub use refusal::{Alternative, Holder, Obstacle, Refusal, ThrottleName};
pub use request::{
    CacheIsolation, Cores, Isolation, Memory, Part, Preference, ReadWrite, Request, USUAL_SLOWDOWN, WrittenRequest,
    parse_bandwidth,
};
pub use service_level::{Course, NoService, Service, ServiceLevel};
pub use zone::Zone;
