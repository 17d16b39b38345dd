//! `nearside agent`: the service that places the programs of a machine, and the verbs that query it.

mod client_commands;
mod grants;
mod heartbeat;
mod name;
mod orders;
mod service;
mod settings;
mod sleep;

use crate::options::thresholds::ThresholdSetting;
use clap::{Args, Subcommand};
use client_commands::Form;
use linux::Pid;
use machine::NodeId;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Name of the control socket, in the folder of journals.
const SOCKET: &str = "agent.sock";

/// Place the pages and threads of programs on this machine, as a service; query, pause or resume it
///
/// Without a verb it runs in the foreground, as services do, until SIGTERM or Ctrl-C, and then restores thread
/// affinities and kernel switches. Pages stay where they are. SIGHUP makes it read its configuration again; it ends an
/// agent without one, or on a terminal. Every change is written to a journal below /run/nearside
/// first, so that after a SIGKILL the next agent restores what the killed one had changed. What another process or user
/// has changed in the meantime is left alone.
///
/// It does what `nearside place --system` does, as set in a configuration file (TOML). All settings are optional:
/// policy, length of a round, budget, which processes are managed, socket, metrics, decision log. `make install`
/// installs an example of all settings as /usr/local/etc/nearside.toml, and a systemd unit. On a machine with one node
/// there is nothing to place: the agent says so and sleeps.
///
/// Verbs query and direct the running agent through a Unix socket, which only its owner (root) and the group named in the
/// configuration may use.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Privileges: CAP_SYS_NICE to move threads and pages of other users, CAP_SYS_PTRACE to inspect them, CAP_PERFMON to sample their accesses, \
CAP_SYS_ADMIN to switch off the kernel's NUMA balancing while it runs, CAP_CHOWN to set the socket's owner. Root has them all. For \
other users it manages their own processes, with its journal and socket in $XDG_RUNTIME_DIR/nearside.

Examples:
  sudo nearside agent --config /usr/local/etc/nearside.toml
  sudo systemctl enable --now nearside
  nearside agent status
  nearside agent explain 4711
  nearside agent pause; ./benchmark; nearside agent resume
  nearside agent policy predict
  nearside agent threshold imbalance_min=0.2
  nearside agent place 4711 --node 1
  nearside agent reload
  nearside agent metrics --prometheus | curl --data-binary @- http://pushgateway.example:9091/metrics/job/nearside

Exit codes:
  0  a signal ended the agent, and everything is restored; or the agent has answered
  1  the agent cannot start or continue, or no agent answers; the message says why and what to do
  2  the command line or the configuration is wrong")]
pub struct Arguments {
    /// The configuration, TOML. Without it, the policy predict manages the whole system in rounds of a second
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Divide the length of rounds by this [default: in the lab its --time-scale, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: Option<u32>,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what the agent is doing: its policy, which processes it manages, what it has moved and at what cost
    Status(Asking),
    /// Make it observe, decide and move nothing until it is resumed
    Pause(Asking),
    /// Resume it after a pause
    Resume(Asking),
    /// Show what was decided about a process in the last rounds, and why; or why it is not managed
    Explain {
        /// The process
        #[arg(value_name = "PID")]
        pid: u32,
        #[command(flatten)]
        asking: Asking,
    },
    /// Read the configuration again, as SIGHUP does; a wrong one is refused, and changes nothing
    ///
    /// The agent puts back what it has changed, and begins anew. Its folder, socket and grants stay as they are until it
    /// is restarted.
    Reload(Asking),
    /// Follow another policy until the configuration is read again
    Policy {
        /// The policy, as for `nearside place --policy`
        #[arg(value_name = "POLICY")]
        policy: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Give a threshold of the policy another value until the configuration is read again
    Threshold {
        /// The threshold (docs/place.md lists them) and its value
        #[arg(value_name = "NAME=VALUE")]
        setting: ThresholdSetting,
        #[command(flatten)]
        asking: Asking,
    },
    /// Place a managed process on a node: its threads run there, and its memory is moved there
    ///
    /// The policy leaves it alone from then on, as it does with programs that their owners have placed, unless
    /// `respect_owner` is false. What owners have set is kept as well. When the agent ends, or begins anew, the threads get
    /// their CPUs back.
    Place {
        /// The process
        #[arg(value_name = "PID")]
        pid: u32,
        /// The node
        #[arg(long, value_name = "NODE")]
        node: u32,
        #[command(flatten)]
        asking: Asking,
    },
    // Attributes, where a doc comment would need backticks around the names.
    #[command(about = "Show what the agent is doing as OpenMetrics, for Prometheus and others")]
    Metrics {
        #[arg(long, help = "In Prometheus's text format (0.0.4) instead: for its Pushgateway, and node_exporter")]
        prometheus: bool,
        /// The agent's socket
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

/// How to reach the agent.
#[derive(Debug, Args)]
struct Asking {
    /// The agent's socket [default: that of this user's agent if there is one, or else /run/nearside/agent.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    use agent::control::Request;
    let ask = |asking: &Asking, request| {
        client_commands::print(asking.socket.as_deref(), &request, if asking.json { Form::Json } else { Form::Text })
    };
    match &arguments.verb {
        None => service::run(arguments.config.as_deref(), arguments.time_scale),
        Some(Verb::Status(asking)) => ask(asking, Request::Status),
        Some(Verb::Pause(asking)) => ask(asking, Request::Pause),
        Some(Verb::Resume(asking)) => ask(asking, Request::Resume),
        Some(Verb::Explain { pid, asking }) => ask(asking, Request::Explain { pid: Pid(*pid) }),
        Some(Verb::Reload(asking)) => ask(asking, Request::Reload),
        Some(Verb::Policy { policy, asking }) => ask(asking, Request::Policy { policy: policy.clone() }),
        Some(Verb::Threshold { setting, asking }) => {
            let ThresholdSetting { name, value } = setting.clone();
            ask(asking, Request::Threshold { name, value })
        }
        Some(Verb::Place { pid, node, asking }) => ask(asking, Request::Place { pid: Pid(*pid), node: NodeId(*node) }),
        Some(Verb::Metrics { prometheus, socket }) => {
            let form = if *prometheus { Form::Prometheus } else { Form::Text };
            client_commands::print(socket.as_deref(), &Request::Metrics, form)
        }
    }
}
