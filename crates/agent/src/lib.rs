//! The loop that puts pages and threads of running programs where a policy has them: it observes, has
//! [`placement`] decide, and acts, round by round.
//!
//! - [`Journal`] has what was changed, so that everything is put back, also after SIGKILL.
//! - [`control`] is the socket by which others ask and pause it.
//! - [`Configuration`] is what the service is to do; [`Scope`] whose processes it manages.
//! - [`Status`] is what it is doing at this moment, for whoever asks.

mod chosen;
mod configuration;
pub mod control;
pub mod journal;
mod status;

pub use chosen::{Candidate, Chosen, NoSuchUser, Scope};
pub use configuration::{
    Configuration, ConfigurationError, KernelBalancing, LogSettings, MetricsSettings, SocketSettings,
};
pub use journal::{Journal, JournalError, PutBack};
pub use status::{ManagedProcess, Status};
