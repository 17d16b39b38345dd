//! Sleeps until the next round, or until a signal or an order arrives, without polling.

use linux::is_ignored;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// What SIGHUP does, unless it is ignored, as under `nohup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// It ends the service.
    Ends,
    /// It asks the service to read its configuration again.
    Reloads,
}

/// Woken by SIGTERM, SIGINT and SIGHUP, and by its wakers.
#[derive(Debug)]
pub struct Sleeper {
    woken: UnixStream,
    writer: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// Ends a sleep from another thread.
#[derive(Debug)]
pub struct Waker(UnixStream);

impl Waker {
    pub fn wake(&self) {
        // A full stream wakes as well.
        let _ = (&self.0).write(&[0]);
    }
}

impl Sleeper {
    /// From here on these signals only end the sleep, no matter how many arrive: there is state to restore, and a
    /// closed terminal or `timeout` sends two.
    pub fn by_signals(hang_up: HangUp) -> io::Result<Self> {
        let sleeper = Self::new()?;
        for signal in [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|&signal| signal != SIGHUP || !is_ignored(signal)) {
            let reloads = signal == SIGHUP && hang_up == HangUp::Reloads;
            flag::register(signal, if reloads { sleeper.reload.clone() } else { sleeper.stop.clone() })?;
            pipe::register(signal, sleeper.writer.try_clone()?)?;
        }
        Ok(sleeper)
    }

    fn new() -> io::Result<Self> {
        let (woken, writer) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { woken, writer, stop: Arc::default(), reload: Arc::default() })
    }

    /// Set by the first signal that ends the service.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    pub fn waker(&self) -> io::Result<Waker> {
        Ok(Waker(self.writer.try_clone()?))
    }

    /// Whether SIGHUP has asked for the configuration to be read again since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Relaxed)
    }

    /// Sleeps for this long at most, or without limit, and until the file can be read. Returns whether the service should
    /// continue.
    pub fn sleep(&self, news: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> bool {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let files = news.into_iter().chain([self.woken.as_fd()]);
        let mut polled: Vec<PollFd<'_>> = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let polled = poll(&mut polled, timeout.as_ref());
        let mut read = [0; 64];
        while (&self.woken).read(&mut read).is_ok_and(|bytes| bytes == read.len()) {}
        // The flag decides: where the handler could not write to the stream, it alone says that a signal has come.
        let goes_on = !self.stop.load(Relaxed);
        goes_on && polled.map_or_else(|error| error == rustix::io::Errno::INTR, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_whose_handler_could_not_write_ends_the_sleep_all_the_same() {
        let sleeper = Sleeper::new().unwrap();
        assert!(sleeper.sleep(None, Some(Duration::from_millis(1))));
        sleeper.stop.store(true, Relaxed);
        assert!(!sleeper.sleep(None, Some(Duration::from_millis(1))));
    }

    #[test]
    fn a_waker_ends_one_sleep_and_the_service_goes_on() {
        let sleeper = Sleeper::new().unwrap();
        let waker = sleeper.waker().unwrap();
        (0..1000).for_each(|_| waker.wake());
        // Without a limit: it would never return otherwise.
        assert!(sleeper.sleep(None, None));
        let began = std::time::Instant::now();
        assert!(sleeper.sleep(None, Some(Duration::from_millis(20))));
        assert!(began.elapsed() >= Duration::from_millis(20), "all of it was read");
    }
}
