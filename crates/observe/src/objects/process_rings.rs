//! The shared file of one process.

use super::ring_reader::{Context, Losses, RingReader};
use super::{ObjectLosses, Owners, text};
use crate::TickClock;
use linux::{Pid, SharedWords, Tid};
use rings::{MAGIC, PAGE, Settings, VERSION, process, ring_stride};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use trace::{Event, Stacks, What};

/// The shared file of one process.
#[derive(Debug)]
pub struct ProcessRings {
    file: File,
    words: SharedWords,
    pub pid: Pid,
    /// The owner of the file.
    pub user: u32,
    /// The name of the program when the library was loaded.
    pub program: Arc<str>,
    /// The first events of the process, until they are reported.
    beginning: Vec<(u64, What)>,
    ring_bytes: usize,
    rings: Vec<RingReader>,
    /// How far each ring was written at the last look, in words.
    written: Vec<u64>,
    /// Number of rings that fit into the file.
    most: usize,
    /// Number of silent forks already reported.
    silent: usize,
}

impl ProcessRings {
    /// Opens the file. `None` while the process is still writing its header, and for other files. A process that is
    /// `known` has executed another program.
    pub fn open(path: &Path, settings: &Settings, known: impl FnOnce(Pid) -> bool) -> Option<Self> {
        // Another user's lease on the file would hold up the recorder.
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        // A link may be to a file of another recording.
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && metadata.nlink() == 1)?;
        let bytes = usize::try_from(metadata.len()).ok()?;
        let ring_bytes = settings.ring_bytes;
        let most = bytes.checked_sub(PAGE)? / ring_stride(ring_bytes);
        if most == 0 || most > settings.rings {
            return None;
        }
        let words = SharedWords::map_of_others(&file, bytes).ok()?;
        let word = |index: usize| words.get(index).map_or(0, |word| word.load(Acquire));
        if [word(process::MAGIC), word(process::VERSION)] != [MAGIC, VERSION] {
            return None;
        }
        let id = |index| u32::try_from(word(index)).ok().filter(|&id| id != 0).map(Pid);
        let (pid, parent, started) = (id(process::PID)?, id(process::PARENT), word(process::STARTED));
        let name = text([word(process::NAME), word(process::NAME + 1)]);
        let mut beginning = Vec::new();
        if parent.is_some() || !known(pid) {
            beginning.push((started, What::ProcessStarted { parent }));
        }
        beginning.push((started, What::Named { name: name.clone(), exec: parent.is_none() }));
        Some(Self {
            file,
            words,
            pid,
            user: metadata.uid(),
            program: name,
            beginning,
            ring_bytes,
            rings: Vec::new(),
            written: Vec::new(),
            most,
            silent: 0,
        })
    }

    /// Notes how far each ring is written, for [`drain`](Self::drain).
    pub fn look(&mut self) {
        self.written = self.written();
    }

    /// How far each ring is written. Empty if the program has truncated the file.
    fn written(&mut self) -> Vec<u64> {
        let bytes = PAGE + self.most * ring_stride(self.ring_bytes);
        if self.file.metadata().map_or(0, |metadata| metadata.len()) < bytes as u64 {
            self.most = 0;
            self.rings.clear();
        }
        let rings = self.words.get(process::RINGS).filter(|_| self.most != 0).map_or(0, |rings| rings.load(Acquire));
        let rings = usize::try_from(rings).unwrap_or(usize::MAX).min(self.most);
        let more = self.rings.len()..rings;
        self.rings.extend(more.map(|number| RingReader::new(number, self.ring_bytes)));
        self.rings.iter().map(|ring| ring.written(&self.words)).collect()
    }

    /// Reads all rings up to the last look.
    pub fn drain(
        &mut self,
        clock: &TickClock,
        stacks: &mut Stacks,
        owners: &mut Owners,
        losses: &mut ObjectLosses,
        events: &mut Vec<Event>,
    ) {
        let tid = Tid(self.pid.0);
        for (ticks, what) in self.beginning.drain(..) {
            events.push(Event { time_ns: clock.ns(ticks), pid: self.pid, tid, cpu: None, what });
        }
        let mut context = Context { pid: self.pid, clock, stacks, losses, events };
        for (ring, written) in self.rings.iter_mut().zip(self.written.drain(..)) {
            ring.drain(&self.words, written, &mut context);
        }
        self.report_losses(owners, &mut context);
    }

    /// Reports losses outside rings, and silent forks: these inherit their parent's objects, whose state is unknown
    /// from then on.
    fn report_losses(&mut self, owners: &mut Owners, context: &mut Context<'_>) {
        if self.most == 0 {
            return;
        }
        if let Some(losses) = Losses::at(&self.words, process::LOST, process::LOST_SEEN) {
            losses.report(context);
        }
        let word = |number: usize| self.words.get(number).map_or(0, |word| word.load(Acquire));
        let there = usize::try_from(word(process::SILENT)).unwrap_or(usize::MAX);
        while self.silent < there {
            if self.silent < process::MOST_SILENT_FORKS {
                let place = process::SILENT_FORKS + 2 * self.silent;
                let (time, pid) = (word(place + 1), u32::try_from(word(place)).unwrap_or(0));
                if time == 0 {
                    return; // The process is still writing this entry.
                }
                if pid != 0 && !owners.may_tell(self.user, Pid(pid)) {
                    context.losses.unbelieved = context.losses.unbelieved.saturating_add(1);
                } else if pid != 0 {
                    let (time_ns, pid, tid) = (context.clock.ns(time), Pid(pid), Tid(pid));
                    let what = What::Invalidated { start: 0, bytes: u64::MAX };
                    context.events.push(Event { time_ns, pid, tid, cpu: None, what });
                }
            }
            let more = if self.silent < process::MOST_SILENT_FORKS { 1 } else { there - self.silent };
            self.silent += more;
            context.losses.silent = context.losses.silent.saturating_add(more as u64);
        }
    }

    /// Adds the events that the process counted as lost.
    pub fn add_losses(&self, all: &mut ObjectLosses) {
        if self.most == 0 {
            return;
        }
        let own = Losses::at(&self.words, process::LOST, process::LOST_SEEN);
        all.outside = all.outside.saturating_add(own.map_or(0, |losses| losses.count()));
        let rings = self.rings.iter().filter_map(|ring| ring.losses(&self.words));
        all.lost = rings.fold(all.lost, |lost, losses| lost.saturating_add(losses.count()));
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        let pid = i32::try_from(self.pid.0).ok().and_then(rustix::process::Pid::from_raw);
        self.most == 0 || pid.is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    }

    /// Whether all written records are read.
    pub fn is_drained(&mut self) -> bool {
        let written = self.written();
        self.rings.iter().zip(written).all(|(ring, written)| ring.has_read(written))
    }

    /// Tells the process that reading has ended.
    pub fn end(&self) {
        if let Some(over) = self.words.get(process::OVER).filter(|_| self.most != 0) {
            over.store(1, Release);
        }
    }

    /// Reports what is left once all records are read, and tells the process that reading has ended.
    pub fn finish(
        mut self,
        clock: &TickClock,
        stacks: &mut Stacks,
        owners: &mut Owners,
        losses: &mut ObjectLosses,
        events: &mut Vec<Event>,
    ) {
        self.add_losses(losses);
        self.end();
        let mut context = Context { pid: self.pid, clock, stacks, losses, events };
        for ring in &self.rings {
            ring.finish(&self.words, &mut context);
        }
        self.report_losses(owners, &mut context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rings::{Clock, process_file, ring};
    use std::fs;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_that_is_cut_off_while_it_is_read_is_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.0");
        let (clock, ring_bytes) = (Clock::Monotonic, 64 << 10);
        let settings =
            Settings { clock, ring_bytes, rings: 1, patience_ns: 0, small_bytes: 0, frames: 32, namespace: 0 };
        let file = fs::File::create(&path).unwrap();
        file.set_len(process_file(1, ring_bytes) as u64).unwrap();
        let put = |word: usize, value: u64| file.write_all_at(&value.to_le_bytes(), 8 * word as u64).unwrap();
        put(process::MAGIC, MAGIC);
        put(process::VERSION, VERSION);
        put(process::PID, std::process::id().into());
        put(process::RINGS, 1);
        put(PAGE / 8 + ring::WRITTEN, 400);
        let mut rings = ProcessRings::open(&path, &settings, |_| false).unwrap();
        rings.look();
        file.set_len(0).unwrap();
        let (mut stacks, mut losses, mut events) = (Stacks::new(), ObjectLosses::default(), Vec::new());
        rings.drain(&TickClock::new(false), &mut stacks, &mut Owners::default(), &mut losses, &mut events);
        assert_eq!((events.len(), losses.malformed), (2, 100));
        rings.look();
        assert!(rings.has_ended());
    }
}
