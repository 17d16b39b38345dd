//! The broker: carries grants out for users of this machine, and undoes them when their last holder is gone.
//!
//! Clients connect to a socket that keeps the bounds of messages (`SOCK_SEQPACKET`), which every user may do: the
//! kernel says who connected, and [`Quotas`] say what this user may have. A [`Call`] is one message of JSON, with open
//! files: a pidfd for a process that joins a grant, a handle as the right to a grant. The handle of a new grant comes
//! with the [`Answer`]: one end of a pair of sockets. It cannot be forged, because only the broker makes them; copying
//! it is delegation; and when its last copy is closed, also by SIGKILL, the other end has hung up and the grant ends.

mod book;
mod caller;
mod client;
mod closing;
mod held;
mod left;
mod live;
mod service;
mod serving;
mod shared_settings;
#[cfg(test)]
mod tests;
mod transaction;
mod usage;
mod zone_group;

pub use caller::Quotas;
pub use client::{CallError, Connection};
pub use left::Left;
pub use reserve::protocol::{Answer, Call, MOST_CALL_BYTES, Message, SOCKET, read_call, read_message};

use crate::grants::{CarryOutError, Hardware, MemoryMonitor, RecordsError};
use crate::journal::JournalError;
use book::Book;
use linux::{CgroupError, CgroupGroupError, PrivateFolder, PrivateFolderError, Trust};
use machine::{CpuSet, NodeId};
use reserve::{Admitted, Facts, Grant, Ledger, ReadWrite, Refusal, ServiceLevel};
use serving::Serving;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long each grant may take to end while the agent ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Every user may connect: calls of users without a quota are refused.
const MODE: u32 = 0o666;

/// Words and values of a decision.
pub type Report = Box<dyn Fn(&Facts, &Result<Admitted, Refusal>) -> (String, serde_json::Value) + Send>;

/// How grants are made.
pub struct Settings {
    /// The folder of journals and of the socket.
    pub folder: PathBuf,
    /// The folder of records, in which other processes see the grants.
    pub records: PathBuf,
    /// The machine and its rules, without grants.
    pub ledger: Ledger,
    /// Whether only programs with grants run on the zone's CPUs.
    pub isolate_zone: bool,
    /// Control groups of the rest of the machine, whose CPU time is limited for guarded controllers.
    pub limited: Vec<String>,
    /// What users may have.
    pub quotas: Quotas,
    /// Formats decisions.
    pub report: Report,
    /// Notes for the administrator.
    pub note: Box<dyn Fn(&str) + Send>,
    /// The machine's control hardware, if grants use it.
    pub hardware: Option<Hardware>,
    /// Where others see the grants.
    pub live: LiveGrants,
    /// What counts memory traffic, and how often that is read. Without it, forecasts are made by promises alone.
    pub monitor: Option<(MemoryMonitor, Duration)>,
}

impl Settings {
    /// The CPUs of the zone, if it is to be isolated. Those that are kept back are other programs'.
    fn isolated_zone(&self) -> Option<CpuSet> {
        let zone = &self.ledger.rules.zone;
        zone.cpus.as_ref().filter(|_| self.isolate_zone).map(|cpus| cpus.difference(&zone.keep_back))
    }
}

/// A grant that is carried out now.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveGrant {
    /// The grant.
    pub grant: Grant,
    /// By how much others slow it by forecast, as a part of its time; none where nothing is known of the machine's memory.
    pub forecast_slowdown: Option<f64>,
    /// Whether its CPUs are others' at present, too: the kernel has ended its partition. Nothing is forecast then.
    pub is_lost: bool,
    /// How its program does by its holder's figure, and what follows.
    pub service: Option<ServiceLevel>,
    /// The most that the rest of the machine may draw from its guarded controllers, bytes/s.
    pub rest_limit: BTreeMap<NodeId, f64>,
    /// What it has drawn from memory in the last period, bytes/s. None where that is not counted.
    pub drawn: Option<ReadWrite>,
    /// How often its forecast slow-down has risen above its bound.
    pub times_above_bound: u64,
}

/// The grants that an agent carries out now.
pub type LiveGrants = Arc<Mutex<Vec<LiveGrant>>>;

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("folder", &self.folder).field("limited", &self.limited).finish_non_exhaustive()
    }
}

/// Why the broker cannot do something. What was begun is undone.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// A call that breaks a rule or names what does not exist.
    #[error("{0}")]
    Wrong(String),
    /// There is no such grant, it is another user's, or it may not have this.
    #[error("{0}")]
    NoGrant(String),
    /// A file that is no handle of a living grant, or of another than named.
    #[error("the descriptor is no handle of this grant: it was released, is of another grant, or never was a handle")]
    NoHandle,
    /// A process that cannot join.
    #[error("{0}")]
    Process(String),
    /// No handle can be made.
    #[error("cannot make a handle (socketpair)")]
    Handle(#[source] io::Error),
    /// A partition cannot be watched.
    #[error("cannot watch the partition of a grant")]
    Watch(#[source] io::Error),
    /// A setting was refused.
    #[error("{0}")]
    Setting(String),
    /// The groups cannot be made.
    #[error(transparent)]
    CarryOut(#[from] CarryOutError),
    /// A group was refused.
    #[error(transparent)]
    Group(#[from] CgroupGroupError),
    /// There are no control groups.
    #[error(transparent)]
    Cgroups(#[from] CgroupError),
    /// The journal cannot be written, so nothing is changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The records cannot be written.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The socket cannot be made.
    #[error(transparent)]
    Socket(#[from] PrivateFolderError),
    /// The thread cannot be started.
    #[error("cannot serve grants")]
    Start(#[source] io::Error),
}

impl BrokerError {
    fn answer(&self) -> Answer {
        match self {
            Self::Wrong(text) => Answer::Wrong(text.clone()),
            other => Answer::Refused(machine::chain(other)),
        }
    }
}

/// A running broker. Ends all grants when it is stopped or dropped.
#[derive(Debug)]
pub struct Broker {
    /// Closing it wakes the thread.
    stop: Option<UnixStream>,
    /// Its other end is gone when the thread has ended.
    ended: Receiver<()>,
    live: LiveGrants,
}

/// Says that the thread has ended, also by a panic.
struct Ending<F: FnOnce()> {
    ended: Option<Sender<()>>,
    wake: Option<F>,
}

impl<F: FnOnce()> Drop for Ending<F> {
    fn drop(&mut self) {
        // First, so that what is woken sees it.
        self.ended = None;
        self.wake.take().into_iter().for_each(|wake| wake());
    }
}

impl Broker {
    /// Goes on with what a killed broker left, puts the rest of it back, and serves in a thread of its own, which calls
    /// `wake` when it ends. Needs root.
    pub fn start(settings: Settings, left: Left, wake: impl FnOnce() + Send + 'static) -> Result<Self, BrokerError> {
        let (folder, records, live) = (settings.folder.clone(), settings.records.clone(), settings.live.clone());
        // Its journal is locked: no other broker has the socket.
        let book = Book::open(settings, left)?;
        PrivateFolder::create(&records, 0o755)?;
        let folder = PrivateFolder::open(&folder, Trust::Owners)?;
        let _ = folder.remove(SOCKET);
        let root = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let listener = folder.listen_for_messages(SOCKET, MODE, root)?;
        let (stop, stopped) = UnixStream::pair().map_err(BrokerError::Start)?;
        let serving = Serving::new(listener, stopped, book);
        let (sender, ended) = channel();
        let ending = Ending { ended: Some(sender), wake: Some(wake) };
        let serve = move || {
            let _ending = ending;
            serving.until_stopped();
            let _ = folder.remove(SOCKET);
        };
        std::thread::Builder::new().name("reserve".into()).spawn(serve).map_err(BrokerError::Start)?;
        Ok(Self { stop: Some(stop), ended, live })
    }

    /// Whether it has ended although it was not stopped: its thread has panicked, and has reported that.
    pub fn has_ended(&self) -> bool {
        self.ended.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Ends all grants. Returns what is left once none of them has ended for 10 s.
    pub fn stop(mut self) -> Option<String> {
        self.stop_within(PATIENCE)
    }

    fn stop_within(&mut self, patience: Duration) -> Option<String> {
        self.stop = None;
        let mut left = self.left();
        while self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let now = self.left();
            if now.len() >= left.len() {
                let what = if now.is_empty() { "settings of grants".to_owned() } else { now.join(", ") };
                return Some(format!("goes without undoing {what}, which takes too long: the next agent does"));
            }
            left = now;
        }
        None
    }

    /// The grants that have not ended.
    fn left(&self) -> Vec<String> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|live| live.grant.title()).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.stop_within(PATIENCE);
        }
    }
}
