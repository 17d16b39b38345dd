//! The service: restores what a killed agent has left, serves its socket, and runs rounds until a signal ends it.

use super::SOCKET;
use super::grants;
use super::heartbeat::{self, Heartbeat};
use super::orders::{Order, Orders};
use super::settings::{self, Settings};
use super::sleep::{HangUp, Sleeper, Waker};
use crate::verbs::place::time_scale as time_scale_of;
use agent::broker::{Broker, Left, LiveGrants};
use agent::control::{Listener, Request, Server, answer};
use agent::journal::default_folder;
use agent::{
    Agent, Configuration, HugePageMode, HugePageOptions, HugePageSettings, Journal, KernelBalancing, ONE_NODE, Options,
    ProcessAttributes, RegionOrders, RegionSettings, Scope, Status, VerdictsFor,
};
use linux::{Pid, PrivateFolder, PrivateFolderError, Process, Trust, process_cpu_time};
use machine::chain;
use observe::{RegionRules, Regions, Target};
use report::{StatusMetrics, escape_message, prometheus};
use sd_notify::NotifyState;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub fn run(file: Option<&Path>, time_scale: Option<u32>) -> Result<ExitCode, Box<dyn Error>> {
    let settings = settings::read(file)?;
    // Before anything is changed: from here on, a signal restores everything. A closed terminal ends the agent.
    let hang_up = if file.is_some() && !std::io::stdin().is_terminal() { HangUp::Reloads } else { HangUp::Ends };
    let no_signals = |error| format!("cannot wait for signals (sigaction: {error})");
    let sleeper = Sleeper::by_signals(hang_up).map_err(no_signals)?;
    let waker = sleeper.waker().map_err(no_signals)?;
    let time_scale = time_scale_of(time_scale)?;
    let folder = settings.configuration.folder.clone().unwrap_or_else(default_folder);
    let live = LiveGrants::default();
    let making = grants::settings(&settings.configuration.reserve, &settings.machine, &live)?;
    // Opening a journal ends what killed agents have left, but not this.
    let left = making.as_ref().map(Left::take).unwrap_or_default();
    let journal = open_journal(&folder)?;
    let socket = settings.configuration.socket.path.clone().unwrap_or_else(|| folder.join(SOCKET));
    let listener = Listener::bind(&socket, settings.access)?;
    let broker_waker = sleeper.waker().map_err(no_signals)?;
    let broker = making.map(|making| grants::begin(making, left, broker_waker)).transpose()?;
    let status = Arc::default();
    let mut job = Job::begin(&settings, journal, &sleeper, time_scale, &status)?;
    let heartbeat = Heartbeat::begin(Duration::from_secs_f64(settings.configuration.round_s));
    let metrics = MetricsFile::new(&settings.configuration);
    let policy = settings.configuration.policy.clone();
    let orders = Arc::new(Orders::new(file.map(Path::to_owned), settings, status));
    let server = serve(listener, orders.clone(), waker, live.clone())
        .map_err(|error| format!("cannot serve {}: {error}", socket.display()))?;
    note(&format!("policy {policy}, control socket {}", socket.display()));
    job.take_news().iter().for_each(|text| note(text));
    // Without a service manager there is no socket to notify.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let mut service = Service { orders, sleeper, folder, time_scale, metrics, heartbeat, live, broker };
    let done = service.until_signalled(job);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    drop(server);
    service.broker.and_then(Broker::stop).iter().for_each(|left| note(left));
    done?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the agent's journal, and puts back what a killed agent left.
fn open_journal(folder: &Path) -> Result<Journal, Box<dyn Error>> {
    let (journal, put_back) = Journal::open(folder, "agent")?;
    if !put_back.is_nothing() {
        note(&format!("{}:\n{put_back}", put_back.heading()));
    }
    Ok(journal)
}

/// Answers requests in a thread of its own.
fn serve(listener: Listener, orders: Arc<Orders>, waker: Waker, live: LiveGrants) -> io::Result<Server> {
    let began = Instant::now();
    Server::start(listener, move |request| {
        let status = &orders.status;
        let scope = orders.current().settings.scope.clone();
        let sleeps = {
            // While the agent sleeps, no round updates these.
            let mut status = locked(status);
            if status.sleeps {
                status.time_s = began.elapsed().as_secs_f64();
                status.cpu_time_s = own_cpu_time_s();
            }
            status.sleeps
        };
        let not_managed = |pid| if sleeps { ONE_NODE.to_owned() } else { why_not(pid, &scope) };
        let order = |request: &Request| {
            let ordered = orders.give(request);
            waker.wake();
            ordered
        };
        answer(&request, status, |status| metrics_of(status, &live), not_managed, order)
    })
}

/// What the service does: everything or nothing.
enum Job {
    Place(Box<Agent>),
    /// One node: nothing to place.
    Sleep(Box<Journal>),
}

impl Job {
    fn begin(
        settings: &Settings,
        journal: Journal,
        sleeper: &Sleeper,
        time_scale: u32,
        status: &Arc<Mutex<Status>>,
    ) -> Result<Self, Box<dyn Error>> {
        let Settings { configuration, machine, scope, .. } = settings;
        let with_memory = machine.nodes.iter().filter(|node| node.memory_bytes > 0).count();
        if with_memory < 2 {
            locked(status).begin(Status {
                policy: configuration.policy.to_string(),
                notes: vec![why_it_sleeps()],
                sleeps: true,
                ..Status::default()
            });
            return Ok(Self::Sleep(Box::new(journal)));
        }
        let mut options = Options::new(configuration.policy.clone());
        options.settings = placement::Settings {
            respect_owner: configuration.respect_owner,
            shared: configuration.shared,
            thresholds: configuration.thresholds.clone(),
            ..placement::Settings::default()
        };
        options.target = Target::System;
        options.scope = scope.clone();
        options.round = Duration::from_secs_f64(configuration.round_s) / time_scale;
        options.budget_bytes_per_s = configuration.budget_bytes_per_s;
        options.cpu_limit = configuration.cpu_limit_percent / 100.0;
        options.keep_kernel_balancing = configuration.kernel_balancing == KernelBalancing::Keep;
        options.log.clone_from(&configuration.log.file);
        options.log_most_bytes = Some(configuration.log.most_bytes);
        options.huge_pages = huge_pages(&configuration.hugepages, time_scale);
        options.regions = regions(&configuration.regions)?;
        options.advice_folder = Some(configuration.folder.clone().unwrap_or_else(default_folder));
        options.stop = sleeper.stop();
        options.status = status.clone();
        options.progress = heartbeat::beat;
        Ok(Self::Place(Box::new(Agent::open(machine, journal, options)?)))
    }

    /// What is to be known since the last call.
    fn take_news(&mut self) -> Vec<String> {
        match self {
            Self::Place(agent) => agent.take_news(),
            Self::Sleep(_) => vec![why_it_sleeps()],
        }
    }

    /// Restores everything.
    fn end(self) -> Result<(), Box<dyn Error>> {
        let put_back = match self {
            Self::Place(agent) => agent.finish(None)?.1,
            Self::Sleep(journal) => journal.restore(),
        };
        if !put_back.is_nothing() {
            note(&put_back.to_string());
        }
        Ok(())
    }
}

fn why_it_sleeps() -> String {
    format!("{ONE_NODE}: the agent sleeps")
}

fn regions(settings: &RegionSettings) -> Result<RegionOrders, Box<dyn Error>> {
    let rules = settings.file.as_deref().map(RegionRules::load).transpose()?;
    let mut orders = RegionOrders::new(Regions::new(rules.unwrap_or_default()));
    for (name, place) in &settings.places {
        orders.add(name, place.clone());
    }
    Ok(orders)
}

fn huge_pages(settings: &HugePageSettings, time_scale: u32) -> Option<HugePageOptions> {
    let &HugePageSettings { mode, every_s, budget_bytes_per_s, keep_small, rearm, join } = settings;
    let every = Duration::from_secs_f64(every_s) / time_scale;
    let verdicts = match mode {
        HugePageMode::Off => return None,
        HugePageMode::Find => VerdictsFor::Status,
        HugePageMode::Cure => VerdictsFor::Cure,
    };
    Some(HugePageOptions { verdicts, every, budget_bytes_per_s, keep_small, rearm, join })
}

/// Why a service ends whose broker has ended.
const NO_BROKER: &str = "the thread that makes grants has ended, and what it said before has the reason";

/// The loop, with all that outlives a job.
struct Service {
    orders: Arc<Orders>,
    sleeper: Sleeper,
    folder: PathBuf,
    time_scale: u32,
    metrics: Option<MetricsFile>,
    heartbeat: Heartbeat,
    live: LiveGrants,
    broker: Option<Broker>,
}

impl Service {
    /// Runs until a signal arrives or a round fails, and restores everything in either case.
    fn until_signalled(&mut self, mut job: Job) -> Result<(), Box<dyn Error>> {
        loop {
            job = self.carry_out_orders(job)?;
            let mut failed: Option<Box<dyn Error>> = None;
            if let Job::Place(agent) = &mut job {
                failed = agent.poll().err().map(Into::into);
                agent.take_news().iter().for_each(|news| note(news));
            }
            if self.broker.as_ref().is_some_and(Broker::has_ended) {
                failed.get_or_insert(NO_BROKER.into());
            }
            if let Some(error) = failed {
                job.end()?;
                return Err(error);
            }
            let status = &self.orders.status;
            self.heartbeat.follow(&locked(status));
            if let Some(metrics) = &mut self.metrics {
                metrics.write_in_time(status, &self.live);
            }
            let next = match &job {
                Job::Place(agent) => Some(agent.until_next()),
                Job::Sleep(..) => {
                    let metrics = self.metrics.as_ref().map(MetricsFile::until_next);
                    metrics.into_iter().chain(self.heartbeat.until_next()).min()
                }
            };
            let news = if let Job::Place(agent) = &job { agent.news() } else { None };
            if !self.sleeper.sleep(news, next) {
                return job.end();
            }
        }
    }

    fn carry_out_orders(&mut self, mut job: Job) -> Result<Job, Box<dyn Error>> {
        if self.sleeper.take_reload() {
            match self.orders.give(&Request::Reload) {
                Ok(text) => note(&text),
                Err(why) => note(&format!("cannot read the configuration again, and goes on as before: {why}")),
            }
        }
        for order in self.orders.take() {
            match (order, &mut job) {
                (Order::Follow(settings), _) => job = self.follow(job, *settings)?,
                (Order::Place { pid, node }, Job::Place(agent)) => agent.place(pid, node)?,
                (Order::Place { .. }, Job::Sleep(..)) => {}
            }
        }
        Ok(job)
    }

    /// Ends the job, which restores everything, and begins one with these settings, or with the previous ones if that
    /// fails.
    fn follow(&mut self, job: Job, settings: Settings) -> Result<Job, Box<dyn Error>> {
        job.end()?;
        let (mut settings, status) = (settings, &self.orders.status);
        let begun = Job::begin(&settings, open_journal(&self.folder)?, &self.sleeper, self.time_scale, status);
        let job = match begun {
            Ok(job) => job,
            Err(error) => {
                note(&format!("goes on as before, because: {}", chain(error.as_ref())));
                settings = self.orders.current().settings.clone();
                Job::begin(&settings, open_journal(&self.folder)?, &self.sleeper, self.time_scale, status)?
            }
        };
        self.heartbeat = Heartbeat::begin(Duration::from_secs_f64(settings.configuration.round_s));
        self.metrics = MetricsFile::new(&settings.configuration);
        note(&format!("policy {}", settings.configuration.policy));
        self.orders.begun(settings);
        Ok(job)
    }
}

/// Metrics for `node_exporter`, which must never read a partial file.
struct MetricsFile {
    path: PathBuf,
    every: Duration,
    next: Instant,
    has_failed: bool,
}

impl MetricsFile {
    fn new(configuration: &Configuration) -> Option<Self> {
        let path = configuration.metrics.file.clone()?;
        let every = Duration::from_secs_f64(configuration.metrics.every_s);
        Some(Self { path, every, next: Instant::now(), has_failed: false })
    }

    fn until_next(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn write_in_time(&mut self, status: &Mutex<Status>, live: &LiveGrants) {
        if !self.until_next().is_zero() {
            return;
        }
        self.next = Instant::now() + self.every;
        let text = prometheus(&metrics_of(&locked(status), live));
        let written = self.write(&text);
        // Reported once: a full disk stays full for a while.
        if let (Err(error), false) = (&written, self.has_failed) {
            note(&format!("cannot write metrics to {}: {}", self.path.display(), chain(error)));
        }
        self.has_failed = written.is_err();
    }

    fn write(&self, text: &str) -> Result<(), PrivateFolderError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // node_exporter is another user, whatever the umask.
        PrivateFolder::open(folder, Trust::Groups)?.replace(&name, 0o644, text.as_bytes())
    }
}

/// Why a process is not managed.
fn why_not(pid: Pid, scope: &Scope) -> String {
    let Ok(process) = Process::open(pid) else { return "there is no such process".to_owned() };
    if process.status().is_ok_and(|status| status.is_kernel_thread) {
        return "it is a kernel thread".to_owned();
    }
    let Some(attributes) = ProcessAttributes::from_proc(pid) else { return "it has ended".to_owned() };
    scope.why_not(&attributes).unwrap_or_else(|| "it has not been busy since the agent started".to_owned())
}

fn metrics_of(status: &Status, live: &LiveGrants) -> String {
    let grants = live.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    StatusMetrics { status, grants: &grants, now_s }.to_string()
}

fn own_cpu_time_s() -> f64 {
    // A process can always read its own /proc entry.
    process_cpu_time(Pid(std::process::id())).unwrap_or_default().as_secs_f64()
}

/// Writes to the service's standard error, usually systemd's journal.
pub fn note(text: &str) {
    for line in escape_message(text).lines() {
        // With standard error closed there is nowhere to report this.
        let _ = writeln!(std::io::stderr(), "nearside agent: {line}");
    }
}

/// A thread that panicked while holding the status has changed single numbers at most.
fn locked(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}
