//! `nearside agent`: the service that places what runs on a machine, and those who ask it.

mod asked;
mod name;
mod service;
mod settings;
mod wake;

use asked::Form;
use clap::{Args, Subcommand};
use linux::Pid;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// The control socket's name, in the folder of journals.
const SOCKET: &str = "agent.sock";

/// Place the pages and threads of what runs on this machine, as a service; ask it, pause it
///
/// Without a verb it runs in the foreground, as services do, until SIGTERM, SIGHUP or Ctrl-C, and then puts everything back:
/// affinities of threads and switches of the kernel. Pages stay where they are. When it was killed (SIGKILL), the next
/// one puts back what it left: all that is changed is written down first, in a journal below /run/nearside. What
/// somebody else has changed meanwhile stays theirs.
///
/// It does what `nearside place --system` does, by a configuration file (TOML), in which everything may be left out:
/// policy, length of a round, budget, who is managed and who is not, socket, metrics, decision log. `make install`
/// puts an example with all of it into /usr/local/etc/nearside.toml, and a systemd unit beside it. On a machine with
/// one node there is nothing to place: it says so, and sleeps.
///
/// Verbs ask the agent that runs, through a Unix socket that its owner (root) and a group that the configuration names
/// may use.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Privileges: CAP_SYS_NICE to move threads and pages of others, CAP_SYS_PTRACE to look at them, CAP_PERFMON to sample their accesses, \
CAP_SYS_ADMIN to switch the kernel's NUMA balancing off meanwhile, CAP_CHOWN to give the socket to others. Root has them all. For \
other users it manages their own processes, with its journal and socket in $XDG_RUNTIME_DIR/nearside.

Examples:
  sudo nearside agent --config /usr/local/etc/nearside.toml
  sudo systemctl enable --now nearside
  nearside agent status
  nearside agent explain 4711
  nearside agent pause; ./benchmark; nearside agent resume
  nearside agent metrics --prometheus | curl --data-binary @- http://pushgateway.example:9091/metrics/job/nearside

Exit codes:
  0  the agent was ended by a signal, and everything is put back; or it has answered
  1  it cannot begin or go on, or nobody answers; the message says why and what to do
  2  the command line or the configuration is wrong")]
pub struct Arguments {
    /// The configuration, TOML. Without it the whole system is managed by the policy carrefour, in rounds of a second
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Divide rounds by this [default: in the lab what its --time-scale is, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    time_scale: Option<u32>,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tell what the agent is doing: its policy, who is managed, what it has moved and what that costs
    Status(Asking),
    /// Have it decide and move nothing until it is resumed; what it observes costs nothing meanwhile
    Pause(Asking),
    /// Have it go on
    Resume(Asking),
    /// Tell what was decided of a process in the last rounds, and why; or why it is not managed
    Explain {
        /// The process
        #[arg(value_name = "PID")]
        pid: u32,
        #[command(flatten)]
        asking: Asking,
    },
    /// Tell what the agent is doing as `OpenMetrics`, for Prometheus and others
    Metrics {
        /// As Prometheus's own text instead (0.0.4): for its Pushgateway, and `node_exporter`
        #[arg(long)]
        prometheus: bool,
        /// The agent's socket
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

/// How to ask.
#[derive(Debug, Args)]
struct Asking {
    /// The agent's socket. Without it that of an agent of this user, or else /run/nearside/agent.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    use ::agent::control::Request;
    let ask = |asking: &Asking, request| {
        asked::print(asking.socket.as_deref(), request, if asking.json { Form::Json } else { Form::Text })
    };
    match &arguments.verb {
        None => service::run(arguments.config.as_deref(), arguments.time_scale),
        Some(Verb::Status(asking)) => ask(asking, Request::Status),
        Some(Verb::Pause(asking)) => ask(asking, Request::Pause),
        Some(Verb::Resume(asking)) => ask(asking, Request::Resume),
        Some(Verb::Explain { pid, asking }) => ask(asking, Request::Explain { pid: Pid(*pid) }),
        Some(Verb::Metrics { prometheus, socket }) => {
            let form = if *prometheus { Form::Prometheus } else { Form::Text };
            asked::print(socket.as_deref(), Request::Metrics, form)
        }
    }
}
