//! Waiting until a request can be granted.

use super::REFUSED;
use super::run::{records_folder, to_carry_out_alone, with_grants};
use agent::grants::{Hardware, Records, Ticket};
use clap::Args;
use reserve::{Admitted, Asker, Ledger, Refusal, Request};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two tries.
const RETRY: Duration = Duration::from_millis(100);
/// Without a limit, in seconds: ten years.
const WITHOUT_LIMIT: &str = "315360000";

/// How long to wait.
#[derive(Debug, Args)]
pub struct WaitOption {
    /// Wait until the request can be granted, in the order of all that wait, for this time at most [default: without limit]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = WITHOUT_LIMIT, hide_default_value = true)]
    wait: Option<u64>,
}

impl WaitOption {
    /// The longest wait; none if it is not asked for.
    pub fn most_s(&self) -> Option<u64> {
        self.wait
    }
}

/// A decision by this process, as the grants of the machine are then, and the records, which stay locked.
pub struct Decision {
    pub records: Records,
    pub ledger: Ledger,
    pub answer: Result<Admitted, Refusal>,
}

/// Decides once it is granted, or the time is over; at once where waiting is not asked for, or no end of a grant would help.
/// `empty` is the machine without grants.
pub fn decide(
    empty: &Ledger,
    hardware: Option<Hardware>,
    request: &Request,
    asker: &Asker,
    wait_s: Option<u64>,
    is_asked_to_end: &AtomicBool,
) -> Result<Result<Decision, ExitCode>, Box<dyn Error>> {
    let folder = records_folder();
    let requests = [request.clone()];
    let wait_s = wait_s.filter(|_| to_carry_out_alone(empty.clone(), hardware).admit(&requests, asker).is_ok());
    let ticket = wait_s.map(|_| Ticket::draw(&folder)).transpose()?;
    let began = Instant::now();
    loop {
        let records = Records::lock(&folder)?;
        let ledger = to_carry_out_alone(with_grants(empty.clone()), hardware);
        // The grant begins now: so does its lease.
        let asker = Asker { now_s: super::asker().now_s, ..asker.clone() };
        let answer = ledger.admit(&requests, &asker);
        let is_over = wait_s.is_none_or(|most| began.elapsed() >= Duration::from_secs(most));
        let is_its_turn = match &ticket {
            Some(ticket) => ticket.is_first(&records)?,
            None => true,
        };
        if is_its_turn && answer.is_ok() || is_over && answer.is_err() {
            return Ok(Ok(Decision { records, ledger, answer }));
        }
        drop(records);
        if is_over {
            crate::options::policy::note("refused: requests that have waited for longer are in the way");
            return Ok(Err(ExitCode::from(REFUSED)));
        }
        if is_asked_to_end.load(Ordering::Relaxed) {
            return Err("a signal ended the wait for a grant".into());
        }
        sleep(RETRY);
    }
}
