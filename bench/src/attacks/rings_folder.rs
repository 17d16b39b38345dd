//! D3: files of another user among the rings of a program that root records.

use crate::attacks::{Ground, OTHER, Tally, failed, while_another_user};
use rings::{Head, Kind, MAGIC, NO_CPU, PAGE, Settings, VERSION, process, process_file, ring};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use trace::{Record, Trace, What};

/// The size of the object in files of the attacker's: no program here has one of it.
const BYTES: u64 = 0x1234_5678_9000;
/// The recorded program: it prints the folder's name, as the worst that could be known to another user.
const PROGRAM: &str = "echo $NEARSIDE_RINGS $$; sleep 0.03; read end || exit 0";

/// The folder of a recording that runs, and the processes that files are made for.
struct Target {
    folder: PathBuf,
    pids: Vec<u32>,
    file_bytes: u64,
    /// A time of this recording, in ticks of its clock: earlier events belong to no recording.
    now: u64,
}

pub fn run(ground: &Ground, times: usize) -> io::Result<Tally> {
    let (target, mut tally, mut files) = (Mutex::new(None::<Target>), Tally::default(), 0_u64);
    if !record(ground, &target, |target| (0..5).for_each(|number| forge(target, number)))? {
        return Err(failed("files of root's own are not believed either: the attack would show nothing"));
    }
    let put = || {
        let Ok(target) = target.try_lock() else { return };
        let Some(target) = target.as_ref() else { return std::thread::sleep(Duration::from_micros(100)) };
        files += 1;
        // Root's folder has a limit of its own; a user that only fills it is another attack.
        if files.is_multiple_of(64) {
            std::thread::sleep(Duration::from_millis(1));
        }
        forge(target, files);
    };
    while_another_user(put, || {
        for _ in 0..times {
            tally.tried += 1;
            if record(ground, &target, |_| ())? {
                tally.won.push(format!("user {OTHER} reported on a process of root"));
            }
        }
        Ok(())
    })?;
    tally.worked = tally.tried;
    if files == 0 {
        return Err(failed("the attacker made no file"));
    }
    Ok(tally)
}

/// What a user that knows the folder's name can write there.
fn forge(target: &Target, number: u64) {
    let Some(pid) = target.pids.get(number as usize % target.pids.len()) else { return };
    let Ok(file) = File::create_new(target.folder.join(format!("{pid}.{number}"))) else { return };
    let head = |kind, address, bytes| Head { time: target.now, kind, address, bytes, slot: 0, cpu: NO_CPU }.to_words();
    let records = [head(Kind::Thread, 0, u64::from(*pid)), head(Kind::Allocated, 0x1000_0000, BYTES)].concat();
    let words = [
        (process::MAGIC, MAGIC),
        (process::VERSION, VERSION),
        (process::PID, u64::from(*pid)),
        (process::STARTED, target.now),
        (process::RINGS, 1),
        (PAGE / 8 + ring::WRITTEN, records.len() as u64),
    ];
    let words = records.into_iter().enumerate().map(|(word, value)| (2 * PAGE / 8 + word, value)).chain(words);
    let _ = file.set_len(target.file_bytes);
    for (word, value) in words {
        let _ = file.write_all_at(&value.to_le_bytes(), 8 * word as u64);
    }
}

/// Records a program; `meanwhile` gets its folder. Returns whether the trace has a forged object.
fn record(ground: &Ground, target: &Mutex<Option<Target>>, meanwhile: impl FnOnce(&Target)) -> io::Result<bool> {
    let output = ground.path("trace");
    let _ = fs::remove_dir_all(&output);
    let mut command = Command::new(ground.program("nearside"));
    command.args(["record", "--source", "none", "-o"]).arg(&output).args(["--", "sh", "-c", PROGRAM]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let found = found(&mut child)?;
    meanwhile(&found);
    *lock(target) = Some(found);
    std::thread::sleep(Duration::from_millis(30));
    *lock(target) = None;
    drop(child.stdin.take());
    let ran = child.wait_with_output()?;
    if !ran.status.success() {
        return Err(failed(String::from_utf8_lossy(&ran.stderr)));
    }
    has_forged(&output)
}

fn lock(target: &Mutex<Option<Target>>) -> std::sync::MutexGuard<'_, Option<Target>> {
    target.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the recorded program has printed.
fn found(recorder: &mut Child) -> io::Result<Target> {
    let mut line = String::new();
    let output = recorder.stdout.as_mut().ok_or_else(|| failed("no output"))?;
    BufReader::new(output).read_line(&mut line)?;
    let (folder, pid) = line.trim().split_once(' ').ok_or_else(|| failed("objects are not recorded here"))?;
    let program: u32 = pid.parse().map_err(|_| failed("no process"))?;
    let mut ended = Command::new("true").spawn()?;
    ended.wait()?;
    let settings = settings(Path::new(folder))?;
    let now = started(Path::new(folder), program)?;
    Ok(Target {
        folder: folder.into(),
        // The program, its recorder, one that has ended, the attacker's own, and the first of the system.
        pids: vec![program, recorder.id(), ended.id(), std::process::id(), 1],
        file_bytes: process_file(1, settings.ring_bytes) as u64,
        now,
    })
}

/// When the program's own file says that it started.
fn started(folder: &Path, program: u32) -> io::Result<u64> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{program}.")) {
            let mut word = [0; 8];
            File::open(entry.path())?.read_exact_at(&mut word, 8 * process::STARTED as u64)?;
            return Ok(u64::from_le_bytes(word));
        }
    }
    Err(failed("the program has no file"))
}

fn settings(folder: &Path) -> io::Result<Settings> {
    let bytes = fs::read(folder.join(rings::SETTINGS_FILE))?;
    let mut words = [0; Settings::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    Settings::from_words(words).map_err(|_| failed("the settings of the rings cannot be read"))
}

fn has_forged(output: &Path) -> io::Result<bool> {
    let trace = Trace::open_without_machine(output).map_err(io::Error::other)?;
    for record in trace.records().map_err(io::Error::other)? {
        if let Record::Event(event) = record.map_err(io::Error::other)?
            && matches!(event.what, What::Allocated { bytes: BYTES, .. })
        {
            return Ok(true);
        }
    }
    Ok(false)
}
