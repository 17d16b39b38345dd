//! D3: files of another user among the rings of a program that root records. The program has a descendant that runs as
//! this user: what it reports is believed, about itself alone.

use crate::attacks::{Ground, OTHER, Tally, failed, while_another_user};
use rings::{Head, Kind, MAGIC, NO_CPU, PAGE, Settings, VERSION, process, process_file, ring};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trace::{Record, Trace, What};

/// The size of the object in files of the attacker's: no program here has one of it.
const BYTES: u64 = 0x1234_5678_9000;
/// The recorded program: it prints the folder's name, as the worst that could be known to another user, its own number
/// and that of its descendant.
const PROGRAM: &str = "setpriv --reuid $0 --regid $0 --clear-groups sleep 60 </dev/null >/dev/null 2>&1 &
    echo $NEARSIDE_RINGS $$ $!; sleep 0.03; read end; kill $!";
/// How long the program runs: in most recordings the descendant has ended before its files are looked at, in every eighth
/// it has not.
const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_millis(400);

/// The folder of a recording that runs, and the processes that files are made for.
struct Target {
    folder: PathBuf,
    /// The attacker's descendant of the recorded program.
    descendant: u32,
    /// All processes that files are made for.
    pids: Vec<u32>,
    file_bytes: u64,
    /// A time of this recording, in ticks of its clock: earlier events belong to no recording.
    now: u64,
}

pub fn run(ground: &Ground, times: usize) -> io::Result<Tally> {
    let (target, mut tally, mut files) = (Mutex::new(None::<Arc<Target>>), Tally::default(), 0_u64);
    if !record(ground, &target, SHORT, |target| (0..64).for_each(|number| forge(target, number)))?.of_others {
        return Err(failed("files of root's own are not believed either: the attack would show nothing"));
    }
    let put = || {
        // Forged without the lock, which the attacker would take again before the other thread wakes.
        let Some(target) = lock(&target).clone() else { return std::thread::sleep(Duration::from_micros(100)) };
        files += 1;
        // Root's folder has a limit of its own; a user that only fills it is another attack.
        if files.is_multiple_of(64) {
            std::thread::sleep(Duration::from_millis(1));
        }
        forge(&target, files);
    };
    while_another_user(put, || {
        for number in 0..times {
            tally.tried += 1;
            let hold = if number.is_multiple_of(8) { LONG } else { SHORT };
            let believed = record(ground, &target, hold, |_| ())?;
            if believed.of_others {
                tally.won.push(format!("user {OTHER} reported on a process that is not its descendant of the program"));
            }
            tally.worked += usize::from(believed.of_descendant);
        }
        Ok(())
    })?;
    if files == 0 || tally.worked == 0 {
        return Err(failed("no file of the attacker's descendant was believed: the attack would show nothing"));
    }
    Ok(tally)
}

/// What a user that knows the folder's name can write there: a file that is named after one process, and reports on
/// the same or another one.
fn forge(target: &Target, number: u64) {
    let count = target.pids.len();
    let Some(named) = target.pids.get(number as usize % count) else { return };
    let Some(pid) = target.pids.get(number as usize / count % count) else { return };
    let Ok(file) = File::create_new(target.folder.join(format!("{named}.{number}"))) else { return };
    let head = |kind, address, bytes| Head { time: target.now, kind, address, bytes, slot: 0, cpu: NO_CPU }.to_words();
    let records = [head(Kind::Thread, 0, (*pid).into()), head(Kind::Allocated, 0x1000_0000, BYTES)].concat();
    let words = [
        (process::MAGIC, MAGIC),
        (process::VERSION, VERSION),
        (process::PID, (*pid).into()),
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

/// Whose forged objects a trace has.
#[derive(Default)]
struct Believed {
    of_descendant: bool,
    of_others: bool,
}

/// Records a program; `meanwhile` gets its folder.
fn record(
    ground: &Ground,
    target: &Mutex<Option<Arc<Target>>>,
    hold: Duration,
    meanwhile: impl FnOnce(&Target),
) -> io::Result<Believed> {
    let output = ground.path("trace");
    let _ = fs::remove_dir_all(&output);
    let mut command = Command::new(ground.program("nearside"));
    command.args(["record", "--source", "none", "-o"]).arg(&output).args([
        "--",
        "sh",
        "-c",
        PROGRAM,
        &OTHER.to_string(),
    ]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let found = found(&mut child)?;
    let descendant = found.descendant;
    meanwhile(&found);
    *lock(target) = Some(Arc::new(found));
    std::thread::sleep(hold);
    *lock(target) = None;
    drop(child.stdin.take());
    let ran = child.wait_with_output()?;
    if !ran.status.success() {
        return Err(failed(String::from_utf8_lossy(&ran.stderr)));
    }
    forged(&output, descendant)
}

fn lock(target: &Mutex<Option<Arc<Target>>>) -> MutexGuard<'_, Option<Arc<Target>>> {
    target.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the recorded program has printed.
fn found(recorder: &mut Child) -> io::Result<Target> {
    let mut line = String::new();
    let output = recorder.stdout.as_mut().ok_or_else(|| failed("no output"))?;
    BufReader::new(output).read_line(&mut line)?;
    let words: Vec<&str> = line.trim().split(' ').collect();
    let [folder, program, descendant] = words[..] else { return Err(failed("objects are not recorded here")) };
    let number = |pid: &str| pid.parse::<u32>().map_err(|_| failed("no process"));
    let (program, descendant) = (number(program)?, number(descendant)?);
    let mut ended = Command::new("true").spawn()?;
    ended.wait()?;
    let settings = settings(Path::new(folder))?;
    let now = started(Path::new(folder), program)?;
    Ok(Target {
        folder: folder.into(),
        descendant,
        // The program, its recorder, one that has ended, the attacker's own, and the first of the system.
        pids: vec![descendant, program, recorder.id(), ended.id(), std::process::id(), 1],
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

fn forged(output: &Path, descendant: u32) -> io::Result<Believed> {
    let (trace, mut believed) = (Trace::open_without_machine(output).map_err(io::Error::other)?, Believed::default());
    for record in trace.records().map_err(io::Error::other)? {
        if let Record::Event(event) = record.map_err(io::Error::other)?
            && matches!(event.what, What::Allocated { bytes: BYTES, .. })
        {
            let own = event.pid.0 == descendant;
            believed.of_descendant |= own;
            believed.of_others |= !own;
        }
    }
    Ok(believed)
}
