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
    /// The settings when all orders are carried out.
    wanted: Settings,
    /// Orders that the loop has not carried out.
    orders: Vec<Order>,
}

/// Shared by the loop and the thread that answers requests.
#[derive(Debug)]
pub struct Orders {
    /// The configuration, if there is one.
    file: Option<PathBuf>,
    /// That of all jobs, one after another.
    pub status: Arc<Mutex<Status>>,
    current: Mutex<Current>,
}

impl Orders {
    pub fn new(file: Option<PathBuf>, settings: Settings, status: Arc<Mutex<Status>>) -> Self {
        let wanted = settings.clone();
        Self { file, status, current: Mutex::new(Current { settings, wanted, orders: Vec::new() }) }
    }

    /// What the service does now. Its users hold this for a moment only.
    pub fn current(&self) -> MutexGuard<'_, Current> {
        // A thread that panicked while holding it left whole values.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service follows these settings now. Without further orders these are the settings that later ones change,
    /// also where others could not be followed.
    pub fn begun(&self, settings: Settings) {
        let mut current = self.current();
        if current.orders.is_empty() {
            current.wanted = settings.clone();
        }
        current.settings = settings;
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
        let mut current = self.current();
        if let Order::Follow(settings) = &order {
            current.wanted = settings.as_ref().clone();
        }
        current.orders.push(order);
        Ok(text)
    }

    fn reload(&self) -> Result<(Order, String), String> {
        let Some(file) = &self.file else {
            return Err("the agent was started without a configuration: start it with --config FILE".to_owned());
        };
        let settings = settings::read(Some(file)).map_err(|error| chain(error.as_ref()))?;
        let now = self.current().settings.clone();
        let kept = kept(&now, &settings);
        let settings = settings.with_start_of(&now).map_err(|error| chain(error.as_ref()))?;
        let later = if kept.is_empty() {
            String::new()
        } else {
            format!("; changes of {} take effect when the agent is restarted", kept.join(", "))
        };
        let text = format!("follows {} with policy {}{later}", file.display(), settings.configuration.policy);
        Ok((Order::Follow(Box::new(settings)), text))
    }

    /// Changes the settings, and checks that the policy can follow them on this machine.
    fn change(&self, change: impl FnOnce(&mut Settings) -> Result<String, String>) -> Result<(Order, String), String> {
        let mut settings = self.current().wanted.clone();
        let text = change(&mut settings)?;
        let policy = settings.configuration.policy.clone();
        Policy::new(policy, &settings.machine, placement::Settings::default()).map_err(|error| chain(&error))?;
        Ok((Order::Follow(Box::new(settings)), text))
    }

    fn place(&self, pid: Pid, node: NodeId) -> Result<(Order, String), String> {
        let current = self.current();
        let nodes = &current.settings.machine.nodes;
        let with_memory: NodeSet = nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.id).collect();
        if !with_memory.contains(node) {
            return Err(format!("node {node} has no memory: nodes {with_memory} have"));
        }
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = status.processes.get(&pid) else {
            return Err(format!("process {pid} is not managed: `nearside agent explain {pid}` says why"));
        };
        let on = nodes.iter().find(|on| on.id == node);
        let respects_owner = current.settings.configuration.respect_owner;
        if let Some(why) = on.and_then(|on| process.limits.forbid(on, respects_owner)) {
            return Err(format!("process {pid} cannot be placed on node {node}: {why}"));
        }
        Ok((Order::Place { pid, node }, format!("places process {pid} on node {node}")))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        Orders::new(None, settings::read(None).unwrap(), Arc::default())
    }

    fn policy(name: &str) -> Request {
        Request::Policy { policy: name.to_owned() }
    }

    #[test]
    fn orders_add_up_while_the_loop_is_busy() {
        let orders = orders();
        assert_eq!(orders.give(&policy("carrefour")).unwrap(), "follows policy carrefour");
        // The loop has taken the order, and has not carried it out.
        assert_eq!(orders.take().len(), 1);
        let threshold = Request::Threshold { name: "samples_min".to_owned(), value: "4".to_owned() };
        orders.give(&threshold).unwrap();
        let Some(Order::Follow(settings)) = orders.take().pop() else { panic!() };
        assert_eq!(settings.configuration.policy.to_string(), "carrefour");
        assert_eq!(settings.configuration.thresholds.samples_min, 4);
    }

    #[test]
    fn what_is_wrong_is_refused_and_changes_nothing() {
        let orders = orders();
        let threshold = |name: &str, value: &str| Request::Threshold { name: name.to_owned(), value: value.to_owned() };
        for (request, why) in [
            (policy("carefour"), "did you mean `carrefour`?"),
            (policy("bind:4000"), "which have none"),
            (threshold("x", "1"), "there is no threshold `x`"),
            (Request::Place { pid: Pid(1), node: NodeId(4000) }, "node 4000 has no memory"),
            (Request::Place { pid: Pid(1), node: NodeId(0) }, "process 1 is not managed"),
            (Request::Reload, "started without a configuration"),
            (Request::Status, "is no order"),
        ] {
            let refused = orders.give(&request).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(orders.take().is_empty());
        let policy = orders.current().wanted.configuration.policy.to_string();
        assert_eq!(policy, "predict");
    }
}
