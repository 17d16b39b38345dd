//! Requests and answers, each a line of JSON.

use crate::status::{ManagedProcess, Status};
use machine::{NodeId, Pid};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest request, bytes.
pub(super) const MOST_REQUEST_BYTES: usize = 4096;
/// The longest answer, bytes; a million processes need a tenth of it.
pub(super) const MOST_ANSWER_BYTES: u64 = 1 << 30;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The agent's status.
    Status,
    /// Stop deciding and acting.
    Pause,
    /// Continue after a pause.
    Resume,
    /// Decisions about a process, with reasons.
    Explain {
        /// The process.
        pid: Pid,
    },
    /// The agent's status as `OpenMetrics`.
    Metrics,
    /// Read the configuration again.
    Reload,
    /// Follow another policy, until the configuration is read again.
    Policy {
        /// Its name.
        policy: String,
    },
    /// Give a threshold of the policy another value, until the configuration is read again.
    Threshold {
        /// Its name.
        name: String,
        /// Its value, as text.
        value: String,
    },
    /// Place a managed process on a node: its threads and its memory, now and later.
    Place {
        /// The process.
        pid: Pid,
        /// The node.
        node: NodeId,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The status, without the decisions about each process.
    Status(Box<Status>),
    /// Whether the agent is paused now.
    Paused(bool),
    /// Decisions about a process.
    Explained(Box<Explanation>),
    /// The status in the text form of `OpenMetrics`.
    Metrics(String),
    /// What the agent does from now on.
    Ordered(String),
    /// The request was refused, with the reason.
    Refused(String),
}

/// Decisions about a process, with reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The process.
    pub pid: Pid,
    /// Its status and decisions; none if it is not managed.
    pub managed: Option<ManagedProcess>,
    /// Why it is not managed.
    pub not_managed: Option<String>,
    /// The policy's name.
    pub policy: String,
    /// Rounds so far.
    pub rounds: u64,
}

/// Answers a request. `metrics` formats a status; `not_managed` says why a process is not managed; `order` checks a
/// request that changes what the agent does and passes it on: it returns what the agent does then, or why it refuses.
pub fn answer(
    request: &Request,
    status: &Mutex<Status>,
    metrics: impl FnOnce(&Status) -> String,
    not_managed: impl FnOnce(Pid) -> String,
    order: impl FnOnce(&Request) -> Result<String, String>,
) -> Answer {
    match request {
        Request::Reload | Request::Policy { .. } | Request::Threshold { .. } | Request::Place { .. } => {
            order(request).map_or_else(Answer::Refused, Answer::Ordered)
        }
        Request::Status => {
            let mut status = locked(status).clone();
            status.processes.values_mut().for_each(|process| process.decisions.clear());
            Answer::Status(Box::new(status))
        }
        Request::Pause | Request::Resume => {
            let paused = *request == Request::Pause;
            locked(status).paused = paused;
            Answer::Paused(paused)
        }
        &Request::Explain { pid } => {
            let status = locked(status);
            let (managed, policy, rounds) = (status.processes.get(&pid).cloned(), status.policy.clone(), status.rounds);
            // Looking the process up may take a while, and the loop must not wait for the lock.
            drop(status);
            let not_managed = managed.is_none().then(|| not_managed(pid));
            Answer::Explained(Box::new(Explanation { pid, managed, not_managed, policy, rounds }))
        }
        Request::Metrics => {
            let status = locked(status).clone();
            Answer::Metrics(metrics(&status))
        }
    }
}

/// A thread that panicked while it held the lock has at most left single numbers half updated.
fn locked(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a line; a malformed one gives the refusal.
pub(super) fn request(line: &[u8]) -> Result<Request, Answer> {
    serde_json::from_slice(line).map_err(|error| {
        let requests = "{\"request\":\"status\"}, or pause, resume, metrics, reload, explain with a \"pid\", policy with \
                        a \"policy\", threshold with a \"name\" and a \"value\", or place with a \"pid\" and a \"node\"";
        Answer::Refused(format!("invalid request: {error}; requests are {requests}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status() -> Mutex<Status> {
        let mut process = ManagedProcess { name: "a".into(), ..ManagedProcess::default() };
        process.decided(3, "move 1 page".into());
        let mut status = Status { policy: "carrefour".into(), rounds: 4, ..Status::default() };
        status.processes.insert(Pid(7), process);
        Mutex::new(status)
    }

    fn ask(status: &Mutex<Status>, request: &Request) -> Answer {
        let order = |request: &Request| match request {
            Request::Place { pid, .. } => Err(format!("process {pid} is not managed")),
            other => Ok(format!("{other:?}")),
        };
        answer(request, status, |status| status.policy.clone(), |pid| format!("{pid} is not managed"), order)
    }

    #[test]
    fn a_status_leaves_decisions_out_and_an_explanation_has_them() {
        let status = status();
        let Answer::Status(told) = ask(&status, &Request::Status) else { panic!() };
        assert_eq!((told.rounds, told.processes[&Pid(7)].decisions.len()), (4, 0));
        let Answer::Explained(explanation) = ask(&status, &Request::Explain { pid: Pid(7) }) else { panic!() };
        assert_eq!(explanation.managed.unwrap().decisions, [(3, "move 1 page".to_owned())]);
        let Answer::Explained(explanation) = ask(&status, &Request::Explain { pid: Pid(8) }) else { panic!() };
        assert_eq!((explanation.managed, explanation.not_managed.as_deref()), (None, Some("8 is not managed")));
        let written = serde_json::to_string(&ask(&status, &Request::Status)).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&written).unwrap(), ask(&status, &Request::Status));
        assert_eq!(ask(&status, &Request::Metrics), Answer::Metrics("carrefour".into()));
    }

    #[test]
    fn a_pause_reaches_the_loop() {
        let status = status();
        assert_eq!(ask(&status, &Request::Pause), Answer::Paused(true));
        assert!(status.lock().unwrap().paused);
        assert_eq!(ask(&status, &Request::Resume), Answer::Paused(false));
        assert!(!status.lock().unwrap().paused);
    }

    #[test]
    fn orders_are_passed_on_and_refused_with_the_reason() {
        let status = status();
        assert_eq!(ask(&status, &Request::Reload), Answer::Ordered("Reload".to_owned()));
        let place = Request::Place { pid: Pid(9), node: NodeId(1) };
        assert_eq!(ask(&status, &place), Answer::Refused("process 9 is not managed".to_owned()));
    }

    #[test]
    fn requests_are_lines_of_json() {
        assert_eq!(request(b"{\"request\":\"explain\",\"pid\":7}\n"), Ok(Request::Explain { pid: Pid(7) }));
        let place = request(b"{\"request\":\"place\",\"pid\":7,\"node\":1}");
        assert_eq!(place, Ok(Request::Place { pid: Pid(7), node: NodeId(1) }));
        for wrong in ["", "{}", "{\"request\":\"stop\"}", "{\"request\":\"explain\"}"] {
            let Err(Answer::Refused(why)) = request(wrong.as_bytes()) else { panic!("{wrong}") };
            assert!(why.starts_with("invalid request: "), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = request(&bytes);
        }
    }
}
