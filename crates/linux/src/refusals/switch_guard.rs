//! Kernel settings that are changed temporarily.

use crate::refusals::switch::{Switch, SwitchError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of the process that started it, and restores a file's value (`$1`) if it is still the one that was
/// set (`$2`; of a choice, in brackets). Ignores signals meant for the parent.
const WATCH: &str = r#"
trap '' HUP INT TERM
read -r _
read -r value < "$0"
case $value in "$2" | *"[$2]"*) printf %s "$1" > "$0" ;; esac"#;

/// Restores a setting when dropped, unless another process has changed it meanwhile.
#[derive(Debug)]
pub struct SwitchGuard {
    switch: Switch,
    before: String,
    value: String,
    /// Restores the setting if this process is killed. `None` without a shell.
    watch: Option<Watch>,
    /// Locked, if no other such guard may change the setting meanwhile.
    lock: Option<File>,
}

impl Switch {
    /// Sets it until the guard is dropped, which restores the previous value, even if this process is killed.
    pub fn set_for_now(&self, value: &str) -> Result<SwitchGuard, SwitchError> {
        let before = self.value()?;
        let watch = Watch::start(self.path(), &before, value, None);
        self.set(value)?;
        Ok(SwitchGuard { switch: self.clone(), before, value: value.to_owned(), watch, lock: None })
    }

    /// The same, and no other process does so meanwhile: two that measure programs would each take the other's value for that
    /// of the system. Where it has that value already, as `is_right` says, it is only kept from being changed. A program that
    /// is measured may change it by [`set_for_now`](Self::set_for_now).
    pub fn set_alone(&self, value: &str, is_right: impl Fn(&str) -> bool) -> Result<SwitchGuard, SwitchError> {
        let file = self.lock_file().map_err(|source| self.error("lock", source))?;
        let lock = |how| {
            flock(&file, how).map_err(|error| match error {
                Errno::WOULDBLOCK => {
                    let why = "another nearside has changed it, or relies on it, until its program has ended";
                    self.error("change", io::Error::new(io::ErrorKind::ResourceBusy, why))
                }
                error => self.error("lock", error.into()),
            })
        };
        lock(FlockOperation::NonBlockingLockShared)?;
        let before = self.value()?;
        if is_right(&before) {
            return Ok(SwitchGuard {
                switch: self.clone(),
                value: before.clone(),
                before,
                watch: None,
                lock: Some(file),
            });
        }
        lock(FlockOperation::NonBlockingLockExclusive)?;
        let before = self.value()?;
        // It keeps the lock until it has put the value back, where this process is killed.
        let watch = Watch::start(self.path(), &before, value, Some(&file));
        self.set(value)?;
        Ok(SwitchGuard { switch: self.clone(), before, value: value.to_owned(), watch, lock: Some(file) })
    }

    /// The file that is locked. A user can lock each file that it can read, so for root it is one that others cannot.
    fn lock_file(&self) -> io::Result<File> {
        let is_kernels = ["/proc", "/sys"].iter().any(|folder| self.path().starts_with(folder));
        if is_kernels && rustix::process::geteuid().is_root() {
            let name = self.path().to_string_lossy().trim_start_matches('/').replace('/', "-");
            let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = File::options();
            options.create(true).append(true).mode(0o600).custom_flags(no_link);
            if let Ok(file) = options.open(format!("/run/nearside-{name}.lock")) {
                return Ok(file);
            }
        }
        File::open(self.path())
    }
}

impl SwitchGuard {
    /// The value to be restored.
    pub fn before(&self) -> &str {
        &self.before
    }
}

impl Drop for SwitchGuard {
    fn drop(&mut self) {
        if self.before != self.value && self.switch.value().is_ok_and(|value| value == self.value) {
            // An error in `drop` cannot be reported.
            let _ = self.switch.set(&self.before);
        }
        drop(self.watch.take());
        drop(self.lock.take());
    }
}

/// A process that detects the end of this one: the pipe between them is closed then, whatever ends it.
#[derive(Debug)]
struct Watch(Child);

impl Watch {
    /// With `lock` as its standard output, to which it writes nothing.
    fn start(file: &Path, before: &str, value: &str, lock: Option<&File>) -> Option<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WATCH]).arg(file).args([before, value]).current_dir("/");
        let output = lock.and_then(|lock| lock.try_clone().ok()).map_or_else(Stdio::null, Stdio::from);
        shell.stdin(Stdio::piped()).stdout(output).stderr(Stdio::null());
        // Its own process group, so that killing the whole job does not kill it.
        shell.process_group(0).spawn().ok().map(Self)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_puts_back_what_it_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let switch = Switch::at(file.path());
        switch.set("1\n").unwrap();
        let alone = |value: &'static str| switch.set_alone(value, |found| found == value);
        let guard = alone("0").unwrap();
        let error = alone("1").unwrap_err();
        assert!(error.is_busy() && alone("0").unwrap_err().is_busy(), "{error}");
        drop(switch.set_for_now("1").unwrap());
        assert_eq!((guard.before(), switch.value().unwrap().as_str()), ("1", "0"));
        drop(guard);
        assert_eq!(switch.value().unwrap(), "1");
        // Several may rely on what it is.
        let (one, other) = (alone("1").unwrap(), alone("1").unwrap());
        assert!(alone("0").unwrap_err().is_busy());
        drop((one, other));
        let guard = switch.set_for_now("0").unwrap();
        switch.set("2").unwrap();
        drop(guard);
        assert_eq!(switch.value().unwrap(), "2");
    }

    #[test]
    fn what_a_killed_process_has_changed_is_put_back() {
        for (text, before, value, after) in [
            ("0", "1", "0", "1"),
            ("always madvise [never]\n", "madvise", "never", "madvise"),
            ("2\n", "1", "0", "2\n"),
            ("[always] madvise never\n", "madvise", "never", "[always] madvise never\n"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let mut watch = Watch::start(file.path(), before, value, None).unwrap();
            // As if the process had ended.
            drop(watch.0.stdin.take());
            assert!(watch.0.wait().unwrap().success());
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), after);
        }
    }

    #[test]
    fn nothing_watches_a_restored_setting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1").unwrap();
        let guard = Switch::at(file.path()).set_for_now("0").unwrap();
        let watch = guard.watch.as_ref().unwrap().0.id();
        assert!(Path::new(&format!("/proc/{watch}")).exists());
        drop(guard);
        assert!(!Path::new(&format!("/proc/{watch}")).exists());
    }
}
