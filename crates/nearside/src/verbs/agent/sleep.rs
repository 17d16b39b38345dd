//! Sleeps until the next round, or until a signal ends the service, without polling.

use linux::is_ignored;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Woken by SIGTERM and SIGINT, and by SIGHUP unless that is ignored, as under `nohup`.
#[derive(Debug)]
pub struct Sleeper {
    signalled: UnixStream,
    stop: Arc<AtomicBool>,
}

impl Sleeper {
    /// From here on these signals only end the sleep, no matter how many arrive: there is state to restore, and a
    /// closed terminal or `timeout` sends two.
    pub fn by_signals() -> io::Result<Self> {
        let (signalled, writer) = UnixStream::pair()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|&signal| signal != SIGHUP || !is_ignored(signal)) {
            flag::register(signal, stop.clone())?;
            pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self { signalled, stop })
    }

    /// Set by the first signal.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Sleeps for this long, or without limit. Returns whether the service should continue.
    pub fn sleep(&self, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut fds = [PollFd::new(&self.signalled, PollFlags::IN)];
        let polled = poll(&mut fds, timeout.as_ref());
        // The flag too: where the handler could not write to the stream, only the flag says that a signal has come.
        let goes_on = !self.stop.load(std::sync::atomic::Ordering::Relaxed);
        match polled {
            Ok(ready) => ready == 0 && goes_on,
            Err(error) => error == rustix::io::Errno::INTR && goes_on,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_signal_whose_handler_could_not_write_ends_the_sleep_all_the_same() {
        let (signalled, _writer) = UnixStream::pair().unwrap();
        let sleeper = Sleeper { signalled, stop: Arc::new(AtomicBool::new(false)) };
        assert!(sleeper.sleep(Some(Duration::from_millis(1))));
        sleeper.stop.store(true, Relaxed);
        assert!(!sleeper.sleep(Some(Duration::from_millis(1))));
    }
}
