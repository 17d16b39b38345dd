//! A decision log: all inputs and outputs of a policy, line by line, so that its decisions can be replayed by the same
//! policy or another.

use crate::action::Decision;
use crate::name::PolicyName;
use crate::observation::{Observation, Process, Thread};
use crate::outcome::Outcome;
use crate::policy::{Policy, PolicyError, State};
use crate::settings::Settings;
use crate::start::Start;
use machine::{Machine, Pid};
use serde::{Deserialize, Serialize};

/// A line of a decision log, in chronological order: JSON, one object per line. The first is [`LogLine::Begin`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum LogLine {
    /// A policy was created.
    Begin {
        /// The machine.
        machine: Box<Machine>,
        /// The policy.
        policy: PolicyName,
        /// The user's settings.
        settings: Settings,
        /// State from earlier rounds, if the log begins in the middle of a run.
        #[serde(default)]
        state: Box<State>,
        /// Whether it was a dry run: then no decision affects later ones.
        #[serde(default)]
        dry_run: bool,
    },
    /// A process or thread began: [`Policy::admit`].
    Admitted {
        /// The process.
        process: Process,
        /// Its thread.
        thread: Thread,
        /// Its initial placement.
        start: Start,
    },
    /// A process ended: [`Policy::forget`].
    Ended {
        /// The process.
        pid: Pid,
    },
    /// A process executed another program, or hinted that a phase begins: [`Policy::executed`].
    Executed {
        /// The process.
        pid: Pid,
    },
    /// A round: [`Policy::decide`].
    Round {
        /// The input.
        observation: Box<Observation>,
        /// What was decided.
        decision: Decision,
    },
    /// The outcome of a decision: [`Policy::learn`].
    Learned {
        /// The outcome.
        outcome: Outcome,
    },
}

/// The replayed result, for log lines with a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Again {
    /// The placement of a new process or thread.
    Start(Start),
    /// The decision of a round.
    Decision(Decision),
}

/// Replays a log.
#[derive(Clone, Debug)]
pub struct Replay {
    policy: Policy,
    dry_run: bool,
}

impl Replay {
    /// Starts from the first line of a log, with the logged policy or another, and the logged settings or others. None if the
    /// line is not [`LogLine::Begin`]. Another policy starts without the logged state.
    pub fn from_first_line(
        first: &LogLine,
        policy: Option<PolicyName>,
        settings: Option<Settings>,
    ) -> Option<Result<Self, PolicyError>> {
        let LogLine::Begin { machine, policy: logged, settings: logged_settings, state, dry_run } = first else {
            return None;
        };
        let name = policy.unwrap_or_else(|| logged.clone());
        let state = if name == *logged { (**state).clone() } else { State::default() };
        let made = Policy::new(name, machine, settings.unwrap_or_else(|| logged_settings.clone()));
        Some(made.map(|policy| Self { policy: policy.with_state(state), dry_run: *dry_run }))
    }

    /// Replays the next line; returns the new result if the line has a decision. With another policy, outcomes are
    /// still those of the logged actions, and later observations reflect those.
    pub fn take(&mut self, line: &LogLine) -> Option<Again> {
        match line {
            LogLine::Begin { .. } => None,
            LogLine::Admitted { process, thread, .. } => Some(Again::Start(self.policy.admit(process, thread))),
            LogLine::Ended { pid } => {
                self.policy.forget(*pid);
                None
            }
            LogLine::Executed { pid } => {
                self.policy.executed(*pid);
                None
            }
            LogLine::Round { observation, .. } => Some(Again::Decision(if self.dry_run {
                self.policy.try_out(observation)
            } else {
                self.policy.decide(observation)
            })),
            LogLine::Learned { outcome } => {
                self.policy.learn(outcome);
                None
            }
        }
    }
}
