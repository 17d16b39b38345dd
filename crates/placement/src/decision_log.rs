//! A decision log: everything that a policy was told and what it answered, line by line, so that it can be decided
//! again, by the same policy or another.

use crate::action::Decision;
use crate::name::PolicyName;
use crate::observation::{Observation, Process, Thread};
use crate::outcome::Outcome;
use crate::policy::{Policy, PolicyError, State};
use crate::settings::Settings;
use crate::start::Start;
use machine::{Machine, Pid};
use serde::{Deserialize, Serialize};

/// A line of a decision log, in the order in which it happened: JSON, one object a line. The first is
/// [`LogLine::Begin`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum LogLine {
    /// A policy was set to work.
    Begin {
        /// The machine.
        machine: Box<Machine>,
        /// The policy.
        policy: PolicyName,
        /// What users chose.
        settings: Settings,
        /// What it kept from earlier rounds, if the log begins in the middle.
        #[serde(default)]
        state: Box<State>,
        /// Whether decisions were only tried out: then none has anything to do with those before it.
        #[serde(default)]
        dry_run: bool,
    },
    /// A process or thread began: [`Policy::admit`].
    Admitted {
        /// The process.
        process: Process,
        /// Its thread.
        thread: Thread,
        /// What it began with.
        start: Start,
    },
    /// A process ended: [`Policy::forget`].
    Ended {
        /// The process.
        pid: Pid,
    },
    /// A round: [`Policy::decide`].
    Round {
        /// What it saw.
        observation: Box<Observation>,
        /// What was decided.
        decision: Decision,
    },
    /// What became of a decision: [`Policy::learn`].
    Learned {
        /// It.
        outcome: Outcome,
    },
}

/// What is decided again, where a log has a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Again {
    /// A beginning.
    Start(Start),
    /// A round.
    Decision(Decision),
}

/// Decides again what a log has.
#[derive(Clone, Debug)]
pub struct Replay {
    policy: Policy,
    dry_run: bool,
}

impl Replay {
    /// From the first line of a log, with the logged policy or another, and the logged settings or others. None of a
    /// line that is not [`LogLine::Begin`]. Another policy has no logged state to begin with.
    pub fn of(
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

    /// Takes the next line; what is decided now, where the line has a decision. With another policy outcomes are those
    /// of what was done then, and later observations show what came of that.
    pub fn take(&mut self, line: &LogLine) -> Option<Again> {
        match line {
            LogLine::Begin { .. } => None,
            LogLine::Admitted { process, thread, .. } => Some(Again::Start(self.policy.admit(process, thread))),
            LogLine::Ended { pid } => {
                self.policy.forget(*pid);
                None
            }
            LogLine::Round { observation, .. } => Some(Again::Decision(if self.dry_run {
                self.policy.clone().decide(observation)
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
