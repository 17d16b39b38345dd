//! Requests that change what the service does: checked when they arrive, carried out by its loop.

use super::settings::{self, Settings};
use agent::Status;
use agent::control::Request;
use linux::Pid;
use machine::{NodeId, NodeSet, chain};
use placement::{Policy, PolicyName};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the loop is to do.
#[derive(Debug)]
pub enum Order {
    /// Follow these settings.
    Follow(Box<Settings>),
    /// Place a process on a node.
    Place { pid: Pid, node: NodeId },
}

/// What the service does now.
#[derive(Debug)]
pub struct Current {
    pub settings: Settings,
    pub status: Arc<Mutex<Status>>,
    /// Orders that the loop has not carried out.
    orders: Vec<Order>,
}

/// Shared by the loop and the thread that answers requests.
#[derive(Debug)]
pub struct Orders {
    /// The configuration, if there is one.
    file: Option<PathBuf>,
    current: Mutex<Current>,
}

impl Orders {
    pub fn new(file: Option<PathBuf>, settings: Settings, status: Arc<Mutex<Status>>) -> Self {
        Self { file, current: Mutex::new(Current { settings, status, orders: Vec::new() }) }
    }

    /// What the service does now. Its users hold this for a moment only.
    pub fn current(&self) -> MutexGuard<'_, Current> {
        // A thread that panicked while holding it left whole values.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service follows these settings now.
    pub fn begun(&self, settings: Settings, status: Arc<Mutex<Status>>) {
        let mut current = self.current();
        (current.settings, current.status) = (settings, status);
    }

    /// The orders since the last call.
    pub fn take(&self) -> Vec<Order> {
        std::mem::take(&mut self.current().orders)
    }

    /// Checks a request and passes it on. Returns what the service does then, or why it does not.
    pub fn give(&self, request: &Request) -> Result<String, String> {
        let (order, text) = match request {
            Request::Reload => self.reload()?,
            Request::Policy { policy } => self.change(|settings| {
                settings.configuration.policy =
                    policy.parse::<PolicyName>().map_err(|error| format!("policy {policy}: {}", chain(&error)))?;
                Ok(format!("follows policy {}", settings.configuration.policy))
            })?,
            Request::Threshold { name, value } => self.change(|settings| {
                settings.configuration.thresholds.set(name, value).map_err(|error| error.to_string())?;
                Ok(format!("uses {value} for threshold {name}"))
            })?,
            Request::Place { pid, node } => self.place(*pid, *node)?,
            other => return Err(format!("{other:?} is no order")),
        };
        self.current().orders.push(order);
        Ok(text)
    }

    fn reload(&self) -> Result<(Order, String), String> {
        let Some(file) = &self.file else {
            return Err("the agent was started without a configuration: start it with --config FILE".to_owned());
        };
        let settings = settings::read(Some(file)).map_err(|error| chain(error.as_ref()))?;
        let mut text = format!("follows {} with policy {}", file.display(), settings.configuration.policy);
        let kept = kept(&self.current().settings, &settings);
        if !kept.is_empty() {
            text.push_str(&format!("; changes of {} take effect when the agent is restarted", kept.join(", ")));
        }
        Ok((Order::Follow(Box::new(settings)), text))
    }

    /// Changes the settings, and checks that the policy can follow them on this machine.
    fn change(&self, change: impl FnOnce(&mut Settings) -> Result<String, String>) -> Result<(Order, String), String> {
        let mut settings = self.latest();
        let text = change(&mut settings)?;
        let policy = settings.configuration.policy.clone();
        Policy::new(policy, &settings.machine, placement::Settings::default()).map_err(|error| chain(&error))?;
        Ok((Order::Follow(Box::new(settings)), text))
    }

    /// The settings that hold when all orders are carried out.
    fn latest(&self) -> Settings {
        let current = self.current();
        let ordered = current.orders.iter().rev().find_map(|order| match order {
            Order::Follow(settings) => Some(settings.as_ref()),
            Order::Place { .. } => None,
        });
        ordered.unwrap_or(&current.settings).clone()
    }

    fn place(&self, pid: Pid, node: NodeId) -> Result<(Order, String), String> {
        let current = self.current();
        let nodes = &current.settings.machine.nodes;
        let with_memory: NodeSet = nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect();
        if !with_memory.contains(node) {
            return Err(format!("node {node} has no memory: nodes {with_memory} have"));
        }
        let is_managed = status_of(&current).processes.contains_key(&pid);
        if !is_managed {
            return Err(format!("process {pid} is not managed: `nearside agent explain {pid}` says why"));
        }
        Ok((Order::Place { pid, node }, format!("places process {pid} on node {node}")))
    }
}

fn status_of(current: &Current) -> MutexGuard<'_, Status> {
    current.status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parts of a configuration that are used at the start only, and differ.
fn kept(now: &Settings, new: &Settings) -> Vec<&'static str> {
    let (from, to) = (&now.configuration, &new.configuration);
    let parts = [
        ("folder", from.folder == to.folder),
        ("[socket]", from.socket == to.socket && now.access == new.access),
        ("[reserve]", from.reserve == to.reserve),
    ];
    parts.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}
