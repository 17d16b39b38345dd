//! The decision log: a file of JSON lines, written as decisions are made.

use linux::{PrivateFolder, PrivateFolderError, Trust};
use placement::LogLine;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The log has addresses of all managed processes: its owner writes it, and its group may read it.
const MODE: u32 = 0o640;
/// How long a service goes on without its log before it tries again.
const PAUSE: Duration = Duration::from_secs(60);

/// A file of [`LogLine`]s.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
}

/// The decision log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refused.
    #[error("cannot write the decision log {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Its folder or file cannot be used, for example because other users could exchange it.
    #[error("cannot keep the decision log")]
    Folder(#[source] PrivateFolderError),
}

impl DecisionLog {
    /// Creates the file, for a service; an existing one is renamed to FILE.1, replacing the previous one.
    fn begin_after(path: &Path) -> Result<Self, LogError> {
        let failed = |source| LogError::System { path: path.to_owned(), source };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = PrivateFolder::open(parent, Trust::Groups).map_err(LogError::Folder)?;
        let mut file = folder.file(name, MODE).map_err(LogError::Folder)?;
        if file.metadata().map_err(failed)?.len() > 0 {
            folder.rename(name, &format!("{name}.1")).map_err(failed)?;
            file = folder.file(name, MODE).map_err(LogError::Folder)?;
        }
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), bytes: 0 })
    }

    /// Creates the file, for a user who has named it; an existing one is overwritten.
    pub fn begin(path: &Path) -> Result<Self, LogError> {
        let created = File::options().write(true).create(true).truncate(true).mode(MODE).open(path);
        let file = created.map_err(|source| LogError::System { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file), bytes: 0 })
    }

    fn add(&mut self, line: &LogLine) -> Result<(), LogError> {
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.bytes += text.len() as u64;
            self.file.write_all(&text)
        });
        written.map_err(|source| LogError::System { path: self.path.clone(), source })
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.file.flush().map_err(|source| LogError::System { path: self.path.clone(), source })
    }

    /// Drops what could not be written: no further attempt is made when the buffer is dropped.
    fn give_up(self) -> File {
        self.file.into_parts().0
    }
}

/// Where decisions are logged.
#[derive(Debug)]
pub(crate) enum Log {
    /// Nowhere.
    None,
    /// By request of a user: a failure ends the run.
    Needed(DecisionLog),
    /// By a service, which goes on without.
    Optional(OptionalLog),
}

impl Log {
    /// Adds a line.
    pub fn add(&mut self, line: impl FnOnce() -> LogLine) -> Result<(), LogError> {
        match self {
            Self::None => Ok(()),
            Self::Needed(log) => log.add(&line()),
            Self::Optional(log) => {
                log.add(line);
                Ok(())
            }
        }
    }

    /// Starts the next log with this line where that is due.
    pub fn rotate(&mut self, begin: impl FnOnce() -> LogLine) {
        if let Self::Optional(log) = self {
            log.rotate(Instant::now(), begin);
        }
    }

    /// What happened to an optional log since the last call.
    pub fn take_news(&mut self) -> Option<String> {
        match self {
            Self::Optional(log) => log.news.take(),
            Self::None | Self::Needed(_) => None,
        }
    }

    /// Finishes the log.
    pub fn finish(self) -> Result<(), LogError> {
        match self {
            Self::None => Ok(()),
            Self::Needed(mut log) => log.flush(),
            Self::Optional(OptionalLog { log, .. }) => {
                // The service ends: there is no later attempt to report.
                let _ = log.map(|mut log| log.flush());
                Ok(())
            }
        }
    }
}

/// A log of limited size that a service writes while it can: a full disk does not end the service.
#[derive(Debug)]
pub(crate) struct OptionalLog {
    path: PathBuf,
    most_bytes: u64,
    log: Option<DecisionLog>,
    /// While there is none: when to try again.
    next_try: Instant,
    has_failed: bool,
    news: Option<String>,
}

impl OptionalLog {
    /// Begins a log; an existing one is kept as FILE.1.
    pub fn begin(path: &Path, most_bytes: u64) -> Self {
        let now = Instant::now();
        let path = path.to_owned();
        let mut this = Self { path, most_bytes, log: None, next_try: now, has_failed: false, news: None };
        match DecisionLog::begin_after(&this.path) {
            Ok(log) => this.log = Some(log),
            Err(error) => this.failed(&error, now),
        }
        this
    }

    fn add(&mut self, line: impl FnOnce() -> LogLine) {
        let Some(log) = &mut self.log else { return };
        if let Err(error) = log.add(&line()) {
            self.failed(&error, Instant::now());
        }
    }

    /// Starts the next log when this one has reached its limit, or when it is time to try again.
    fn rotate(&mut self, now: Instant, begin: impl FnOnce() -> LogLine) {
        let is_due = match &self.log {
            Some(log) => log.bytes > self.most_bytes,
            None => now >= self.next_try,
        };
        if !is_due {
            return;
        }
        let before = self.log.take().map_or(Ok(()), |mut log| log.flush().inspect_err(|_| drop(log.give_up())));
        match before.and_then(|()| DecisionLog::begin_after(&self.path)) {
            Ok(log) => self.start(log, &begin(), now),
            Err(error) => self.failed(&error, now),
        }
    }

    /// Goes on with this log if it takes its first line.
    fn start(&mut self, mut log: DecisionLog, first: &LogLine, now: Instant) {
        match log.add(first).and_then(|()| log.flush()) {
            Ok(()) => {
                self.log = Some(log);
                if std::mem::take(&mut self.has_failed) {
                    self.news = Some(format!("the decision log {} is written again", self.path.display()));
                }
            }
            Err(error) => {
                // A log without its first line must not replace the kept one at the next attempt.
                let _ = log.give_up().set_len(0);
                self.failed(&error, now);
            }
        }
    }

    fn failed(&mut self, error: &LogError, now: Instant) {
        self.log.take().map(DecisionLog::give_up);
        self.next_try = now + PAUSE;
        if !std::mem::replace(&mut self.has_failed, true) {
            let (error, every_s) = (machine::chain(error), PAUSE.as_secs());
            self.news = Some(format!("{error}; the agent goes on without it, and tries again every {every_s} s"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::Pid;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn line() -> LogLine {
        LogLine::Ended { pid: Pid(7) }
    }

    #[test]
    fn what_is_there_is_kept_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let (path, kept) = (folder.path().join("log"), folder.path().join("log.1"));
        drop(DecisionLog::begin_after(&path).unwrap());
        assert!(!kept.exists());
        fs::write(&path, "of before\n").unwrap();
        drop(DecisionLog::begin_after(&path).unwrap());
        assert_eq!((fs::read_to_string(&kept).unwrap().as_str(), fs::read(&path).unwrap().len()), ("of before\n", 0));
        fs::write(&path, "of now\n").unwrap();
        drop(DecisionLog::begin(&path).unwrap());
        assert_eq!((fs::read_to_string(&kept).unwrap().as_str(), fs::read(&path).unwrap().len()), ("of before\n", 0));
    }

    #[test]
    fn a_log_is_for_its_owner_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        drop(DecisionLog::begin_after(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        drop(DecisionLog::begin(&folder.path().join("by a user")).unwrap());
        let mode = fs::metadata(folder.path().join("by a user")).unwrap().permissions().mode();
        assert_eq!(mode & 0o027, 0, "{mode:o}");
    }

    /// A pipe that no process reads does not hang the agent, and a link leads nowhere.
    #[test]
    fn a_log_is_a_regular_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::write(path("precious"), "kept").unwrap();
        symlink(path("precious"), path("link")).unwrap();
        for (name, says) in
            [("pipe", "is not a regular file"), ("link", "symbolic links"), ("none/log", "no such file")]
        {
            let mut log = Log::Optional(OptionalLog::begin(&path(name), 1000));
            let news = log.take_news().unwrap();
            assert!(news.contains(says) && news.ends_with("goes on without it, and tries again every 60 s"), "{news}");
            log.add(line).unwrap();
            log.finish().unwrap();
        }
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "kept");
    }

    /// A disk that is full from the second round on, and has room again later.
    #[test]
    fn a_full_disk_is_reported_once_and_tried_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "of before\n").unwrap();
        let full = || DecisionLog {
            path: path.clone(),
            file: BufWriter::with_capacity(0, File::options().write(true).open("/dev/full").unwrap()),
            bytes: 0,
        };
        let mut optional = OptionalLog::begin(&path, 1000);
        optional.add(line);
        assert_eq!(optional.news.take(), None);
        optional.log = Some(full());
        let now = Instant::now();
        optional.add(line);
        let news = optional.news.take().unwrap();
        assert!(news.starts_with("cannot write the decision log /") && news.contains("the disk is full"), "{news}");
        optional.add(line);
        optional.rotate(now, line);
        // The next attempt fails as well, which is no news.
        optional.start(full(), &line(), now);
        assert_eq!((optional.news.take(), optional.log.is_none()), (None, true));
        optional.rotate(now + 2 * PAUSE, line);
        assert!(optional.news.take().unwrap().ends_with("is written again"));
        optional.add(line);
        Log::Optional(optional).finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
        // By request of a user it is an error.
        let mut needed = Log::Needed(full());
        assert!(needed.add(line).is_err());
    }
}
