//! Journals on the running system, with its own threads and with switches in a folder.

use super::*;
use linux::{ChildSetup, set_affinity};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const SWITCH: &str = "/proc/sys/kernel/numa_balancing";

/// Restoring looks at all threads of this process: those that another test has bound would be in the way.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A system with one switch, and a folder for its journals.
struct Fixture {
    root: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join(&SWITCH[1..]), "1\n").unwrap();
        Self { root, _turn: ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("run")
    }

    fn system(&self) -> System {
        System::with_switches_below(self.root.path())
    }

    fn open(&self) -> (Journal, PutBack) {
        Journal::open_on(self.system(), &self.folder(), "agent").unwrap()
    }

    fn switch(&self) -> String {
        fs::read_to_string(self.root.path().join(&SWITCH[1..])).unwrap()
    }

    /// As an agent does it: the switch is named by its path on a running system.
    fn set(&self, journal: &mut Journal, value: &str) {
        let change = Change::Switch { path: SWITCH.into(), before: self.switch().trim().into(), after: value.into() };
        journal.will(&change).unwrap();
        fs::write(self.root.path().join(&SWITCH[1..]), value).unwrap();
    }

    fn names(&self) -> Vec<String> {
        fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Ends the journal as SIGKILL does: the lock is released and the file stays.
fn kill(journal: Journal) {
    let mut journal = journal;
    journal.is_over = true;
}

/// A waiting thread of this process.
struct Waiting {
    tid: Tid,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Waiting {
    fn start() -> Self {
        let (end, wait) = channel::<()>();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_pid()).unwrap();
            let _ = wait.recv();
        });
        Self { tid: Tid(told.recv().unwrap().cast_unsigned()), end, thread }
    }

    fn end(self) {
        drop(self.end);
        self.thread.join().unwrap();
        // The kernel shows it for a moment longer.
        while linux::Process::open(own()).unwrap().thread_start_time(self.tid).is_some() {}
    }
}

fn own() -> Pid {
    Pid(std::process::id())
}

/// All CPUs of this process, and one of them.
fn sets() -> (CpuSet, CpuSet) {
    let all = affinity(Tid(own().0)).unwrap();
    let one = all.first().into_iter().collect();
    (all, one)
}

fn bind(journal: &mut Journal, pid: Pid, tid: Tid, cpus: &CpuSet) {
    assert!(journal.will_bind(pid, tid, None, (&sets().0, cpus)).unwrap());
    set_affinity(tid, cpus).unwrap();
}

#[test]
fn what_a_killed_agent_left_is_put_back_by_the_next_one() {
    let (fixture, thread, (all, one)) = (Fixture::new(), Waiting::start(), sets());
    let (mut journal, nothing) = fixture.open();
    assert!(nothing.is_nothing());
    bind(&mut journal, own(), thread.tid, &one);
    fixture.set(&mut journal, "0");
    kill(journal);
    assert_eq!((affinity(thread.tid).unwrap(), fixture.switch().as_str()), (one.clone(), "0"));
    let (journal, put_back) = fixture.open();
    assert_eq!(affinity(thread.tid).unwrap(), all);
    assert_eq!(fixture.switch(), "1");
    assert_eq!((put_back.threads, put_back.switches.len()), (usize::from(all != one), 1));
    assert!(put_back.to_string().ends_with("/proc/sys/kernel/numa_balancing has its previous value again"));
    assert!(journal.restore().is_nothing());
    assert_eq!(fixture.names(), Vec::<String>::new());
    thread.end();
}

#[test]
fn a_normal_end_puts_everything_back_and_leaves_nothing() {
    let (fixture, thread, (all, one)) = (Fixture::new(), Waiting::start(), sets());
    for dropped in [false, true] {
        let (mut journal, _) = fixture.open();
        bind(&mut journal, own(), thread.tid, &one);
        fixture.set(&mut journal, "0");
        if dropped {
            drop(journal);
        } else {
            assert_eq!(journal.restore().switches, [PathBuf::from(SWITCH)]);
        }
        assert_eq!((affinity(thread.tid).unwrap(), fixture.switch().as_str()), (all.clone(), "1"));
        assert_eq!(fixture.names(), Vec::<String>::new());
    }
    thread.end();
}

#[test]
fn what_another_process_has_changed_since_stays() {
    let (fixture, thread, (all, one)) = (Fixture::new(), Waiting::start(), sets());
    let last: CpuSet = all.iter().last().into_iter().collect();
    let (mut journal, _) = fixture.open();
    bind(&mut journal, own(), thread.tid, &one);
    fixture.set(&mut journal, "0");
    set_affinity(thread.tid, &last).unwrap();
    fs::write(fixture.root.path().join(&SWITCH[1..]), "2").unwrap();
    let put_back = journal.restore();
    assert_eq!((affinity(thread.tid).unwrap(), fixture.switch().as_str()), (last.clone(), "2"));
    assert_eq!(put_back.theirs, 1 + usize::from(last != one));
    thread.end();
}

#[test]
fn threads_that_ended_and_numbers_that_mean_others_are_left_alone() {
    let (fixture, (_, one)) = (Fixture::new(), sets());
    let (gone, other) = (Waiting::start(), Waiting::start());
    let (mut journal, _) = fixture.open();
    bind(&mut journal, own(), gone.tid, &one);
    // As if this TID had belonged to another thread when it was recorded.
    let (thread, _) = ThreadIdentity::from_proc(own(), other.tid).unwrap();
    let thread = ThreadIdentity { started: thread.started - 1, ..thread };
    let nowhere: CpuSet = "1000".parse().unwrap();
    let now = affinity(other.tid).unwrap();
    journal.will(&Change::Affinity { thread, before: nowhere, after: now.clone(), at: linux::ticks() }).unwrap();
    let ended = gone.tid;
    gone.end();
    assert!(!journal.will_bind(own(), ended, None, (&one, &one)).unwrap());
    kill(journal);
    let (_, put_back) = fixture.open();
    assert_eq!((put_back.threads, put_back.failed.len(), affinity(other.tid).unwrap()), (0, 0, now));
    other.end();
}

/// A shell that is bound, and its later children, which are not recorded.
#[test]
fn what_was_started_with_our_cpus_gets_those_of_before() {
    let (fixture, (all, one)) = (Fixture::new(), sets());
    let script = "read line; sleep 60 & echo $!; read line; kill $!";
    let mut shell: Child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut journal, _) = fixture.open();
    bind(&mut journal, Pid(shell.id()), Tid(shell.id()), &one);
    let stdin = shell.stdin.as_mut().unwrap();
    stdin.write_all(b"\n").unwrap();
    let mut told = Vec::new();
    while told.last() != Some(&b'\n') {
        let mut byte = [0];
        shell.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        told.push(byte[0]);
    }
    let child = Tid(String::from_utf8(told).unwrap().trim().parse().unwrap());
    assert_eq!(affinity(child).unwrap(), one);
    // A child that is bound later gets what it would have had, not what it inherited.
    journal.will_bind(Pid(child.0), child, None, (&all, &all)).unwrap();
    let before: Vec<_> = journal.record.of_process(Pid(child.0)).map(|(_, bound)| bound.cpus.before.clone()).collect();
    assert_eq!(before, [requested::all_cpus()]);
    journal.record.threads.retain(|thread, _| thread.pid.0 == shell.id());
    journal.restore();
    assert_eq!([affinity(child).unwrap(), affinity(Tid(shell.id())).unwrap()], [all.clone(), all]);
    shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    shell.wait().unwrap();
}

/// A process whose second thread executes a program is that thread from then on, with the first one's number and start.
#[test]
fn what_a_thread_executes_gets_the_cpus_of_before() {
    const AGAIN: &str = "NEARSIDE_TEST_EXECUTES";
    if std::env::var_os(AGAIN).is_some() {
        let executes = || {
            println!("tid {}", rustix::thread::gettid().as_raw_pid());
            std::io::stdin().read_line(&mut String::new()).unwrap();
            std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("60"))
        };
        panic!("{}", std::thread::spawn(executes).join().unwrap());
    }
    let (fixture, (all, one)) = (Fixture::new(), sets());
    let other: CpuSet = all.iter().filter(|cpu| !one.contains(*cpu)).collect();
    if other.is_empty() {
        return test_tools::skipped("two threads have different CPUs only where there are two");
    }
    let this = "journal::tests::what_a_thread_executes_gets_the_cpus_of_before";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", this, "--nocapture"]).env(AGAIN, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let tid = lines.find_map(|line| line.strip_prefix("tid ")?.parse().ok()).map(Tid).unwrap();
    let (pid, first) = (Pid(child.id()), Tid(child.id()));
    let (mut journal, _) = fixture.open();
    bind(&mut journal, pid, first, &other);
    bind(&mut journal, pid, tid, &one);
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    while fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() != "sleep\n" {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(affinity(first).unwrap(), one);
    // Given others again, it gets back what it had before all of them.
    for again in [false, true] {
        if again {
            set_affinity(first, &one).unwrap();
            bind(&mut journal, pid, first, &other);
        }
        assert_eq!(journal.put_back_process(pid).failed, Vec::<String>::new());
        assert_eq!(affinity(first).unwrap(), all, "{again}");
    }
    child.kill().and_then(|()| child.wait()).unwrap();
}

/// A program started with the agent's CPUs, and an orphan that it leaves behind, whose parent is then another process.
#[test]
fn what_a_program_leaves_behind_gets_the_cpus_that_the_program_would_have_had() {
    // It is recorded when its parent has ended, or when it gets other CPUs.
    leave_behind(|journal, child, pid| journal.will_outlive(child, pid).unwrap());
    leave_behind(|journal, child, pid| {
        let (all, one) = sets();
        assert!(journal.will_bind(child, Tid(child.0), Some(pid), (&all, &one)).unwrap());
    });
}

fn leave_behind(record: impl FnOnce(&mut Journal, Pid, Pid)) {
    let (fixture, (all, one)) = (Fixture::new(), sets());
    let (mut journal, _) = fixture.open();
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 > /dev/null & echo $!; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.place(Some(&one), None).spawn().unwrap();
    let pid = Pid(shell.id());
    journal.was_started(pid, &all, &one).unwrap();
    let mut told = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    let child = Pid(told.trim().parse().unwrap());
    drop(shell.stdin.take());
    shell.wait().unwrap();
    assert_eq!(affinity(Tid(child.0)).unwrap(), one);
    record(&mut journal, child, pid);
    let before: Vec<_> = journal.record.of_process(child).map(|(_, bound)| bound.cpus.before.clone()).collect();
    assert_eq!(before, [requested::all_cpus()]);
    kill(journal);
    let (_, put_back) = fixture.open();
    assert_eq!((affinity(Tid(child.0)).unwrap(), put_back.threads), (all.clone(), usize::from(all != one)));
    let child = rustix::process::Pid::from_raw(child.0.cast_signed()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn one_agent_at_a_time_has_a_name_and_others_are_left_alone() {
    let fixture = Fixture::new();
    let (mut first, _) = fixture.open();
    fixture.set(&mut first, "0");
    let refused = Journal::open_on(fixture.system(), &fixture.folder(), "agent").unwrap_err();
    assert!(matches!(&refused, JournalError::InUse { process: Some(pid), .. } if *pid == own()), "{refused}");
    // A journal of another name does not restore what the first one still uses.
    let (second, nothing) = Journal::open_on(fixture.system(), &fixture.folder(), "place-7").unwrap();
    assert!(nothing.is_nothing() && fixture.switch() == "0");
    kill(first);
    drop(second);
    let (_third, put_back) = Journal::open_on(fixture.system(), &fixture.folder(), "place-8").unwrap();
    assert_eq!((put_back.switches.len(), fixture.switch().as_str()), (1, "1"));
    assert_eq!(fixture.names(), ["place-8.journal"]);
}

#[test]
fn a_torn_line_is_reported_and_not_joined_to_the_next_one() {
    let fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    fixture.set(&mut journal, "0");
    let path = journal.path();
    kill(journal);
    let mut text = fs::read(&path).unwrap();
    text.extend(b"{\"change\":\"swit");
    fs::write(&path, text).unwrap();
    let (journal, put_back) = fixture.open();
    assert_eq!((put_back.torn, put_back.switches.len(), fixture.switch().as_str()), (1, 1, "1"));
    assert_eq!(put_back.heading(), "nearside was killed, and its changes are reverted");
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    drop(journal);
}

#[test]
fn what_cannot_be_restored_stays_in_its_journal_until_it_can() {
    let fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    fixture.set(&mut journal, "0");
    kill(journal);
    let (switch, aside) = (fixture.root.path().join(&SWITCH[1..]), fixture.root.path().join("aside"));
    fs::rename(&switch, &aside).unwrap();
    fs::create_dir(&switch).unwrap();
    // An agent of another name, one of the same name, and that one when it ends.
    let other = || Journal::open_on(fixture.system(), &fixture.folder(), "place-8").unwrap();
    for (journal, put_back) in [other(), fixture.open()] {
        assert_eq!((put_back.failed.len(), put_back.left.len(), put_back.switches.len()), (1, 1, 0), "{put_back}");
        drop(journal);
        assert_eq!(fixture.names(), ["agent.journal"]);
    }
    fs::remove_dir(&switch).unwrap();
    fs::rename(&aside, &switch).unwrap();
    let (journal, put_back) = other();
    assert_eq!(
        (put_back.failed.len(), fixture.switch().as_str(), fixture.names()),
        (0, "1", vec!["place-8.journal".into()])
    );
    drop(journal);
}

#[test]
fn a_journal_of_another_version_is_neither_used_nor_removed() {
    let fixture = Fixture::new();
    let (journal, _) = fixture.open();
    let path = journal.path();
    kill(journal);
    let text = fs::read_to_string(&path).unwrap().replacen(&format!(":{FORMAT},"), ":99,", 1);
    fs::write(&path, &text).unwrap();
    for name in ["agent", "place-8"] {
        let refused = Journal::open_on(fixture.system(), &fixture.folder(), name).unwrap_err();
        assert!(machine::chain(&refused).contains("another version of nearside wrote it"), "{refused}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_damaged_journal_is_none_of_which_anything_is_put_back() {
    let fixture = Fixture::new();
    let (journal, _) = fixture.open();
    let path = journal.path();
    kill(journal);
    for text in ["no journal\n".to_owned(), fs::read_to_string(&path).unwrap() + "no line\n"] {
        fs::write(&path, text).unwrap();
        let (journal, put_back) = fixture.open();
        assert_eq!(put_back.heading(), "nearside left a journal, but there is nothing to restore from it");
        kill(journal);
    }
}

#[test]
fn a_journal_is_no_way_to_have_other_files_written() {
    let fixture = Fixture::new();
    let file = fixture.root.path().join("precious");
    fs::write(&file, "0").unwrap();
    let pattern = "/proc/sys/kernel/core_pattern";
    fs::write(fixture.root.path().join(&pattern[1..]), "0").unwrap();
    for path in ["/precious", "/proc/sys/../../precious", "precious", "/sys/../precious", pattern] {
        let (mut journal, _) = fixture.open();
        journal.will(&Change::Switch { path: path.into(), before: "lost".into(), after: "0".into() }).unwrap();
        kill(journal);
        let (_, put_back) = fixture.open();
        assert_eq!(put_back.failed, [format!("{path} is not a kernel switch that nearside sets")]);
    }
    for (change, why) in [
        (
            Change::Setting { path: "/precious".into(), before: "lost".into(), after: "0".into() },
            "/precious is not a setting that grants change",
        ),
        (Change::Group { path: "/precious".into(), back: "/".into() }, "/precious is not the control group of a grant"),
    ] {
        let (mut journal, _) = fixture.open();
        journal.will(&change).unwrap();
        kill(journal);
        assert_eq!(fixture.open().1.failed, [why]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "0");
    assert_eq!(fs::read_to_string(fixture.root.path().join(&pattern[1..])).unwrap(), "0");
}

/// The journal of a grant whose agent was killed, with its text changed meanwhile. Whether it can be gone on with.
fn is_taken_up(change: impl Fn(String) -> String) -> bool {
    let fixture = Fixture::new();
    let open = || Journal::open_on(fixture.system(), &fixture.folder(), "grant-7").unwrap().0;
    let mut journal = open();
    let group = "/sys/fs/cgroup/nearside-grant-7";
    journal.will(&Change::Group { path: group.into(), back: "/sys/fs/cgroup/batch".into() }).unwrap();
    assert!(Journal::take_up(&fixture.folder(), "grant-7").unwrap().is_none(), "another process has it");
    kill(journal);
    let file = fixture.folder().join("grant-7.journal");
    fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
    let Some(journal) = Journal::take_up(&fixture.folder(), "grant-7").unwrap() else { return false };
    assert_eq!(journal.back(), Some(Path::new("/sys/fs/cgroup/batch")));
    kill(journal);
    true
}

#[test]
fn only_the_whole_journal_of_this_boot_is_gone_on_with() {
    assert!(is_taken_up(|text| text));
    // The agent was killed while it wrote: what the line was to say was not done.
    assert!(is_taken_up(|text| text + "{\"torn"));
    assert!(!is_taken_up(|text| text + "no change\n"));
    assert!(!is_taken_up(|text| text.split_inclusive('\n').take(1).collect()));
    let boot = linux::boot_id().unwrap();
    assert!(!is_taken_up(|text| text.replace(&boot, "00000000-0000-0000-0000-000000000000")));
}

#[test]
fn folders_that_others_may_write_to_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let refused = |folder: &Path| Journal::open(folder, "agent").unwrap_err().to_string();
    let open = place.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused(&open).contains(&format!("may be written to by others: chmod go-w {}", open.display())));
    // One that others may exchange is no better.
    let below = refused(&open.join("below"));
    assert!(below.ends_with(&format!("chmod go-w {}, or choose another folder", open.display())), "{below}");
    let link = place.path().join("link");
    symlink("/tmp", &link).unwrap();
    assert!(refused(&link).starts_with("cannot use the folder "), "{}", refused(&link));
    assert!(refused(&place.path().join("none/below")).starts_with("cannot open the folder "));
    // A journal that is a symbolic link is not followed.
    let folder = place.path().join("good");
    drop(Journal::open(&folder, "agent").unwrap());
    symlink("/etc/passwd", folder.join("agent.journal")).unwrap();
    assert!(refused(&folder).starts_with("cannot open "), "{}", refused(&folder));
}

/// The folder is checked once and then held: exchanging its name leads nowhere.
#[test]
fn a_folder_that_is_exchanged_is_not_followed() {
    let fixture = Fixture::new();
    let (mut journal, _) = fixture.open();
    let moved = fixture.root.path().join("moved");
    fs::rename(fixture.folder(), &moved).unwrap();
    fs::create_dir(fixture.folder()).unwrap();
    fs::write(fixture.folder().join("agent.journal"), "another's").unwrap();
    let (all, one) = sets();
    for tid in 0..=MOST_NEW_LINES as u32 {
        let thread = ThreadIdentity { pid: own(), process_started: 1, tid: Tid(tid), started: 1 };
        journal.will(&Change::Affinity { thread, before: all.clone(), after: one.clone(), at: 1 }).unwrap();
    }
    assert!(moved.join("agent.journal").exists());
    drop(journal);
    assert_eq!(fs::read_dir(moved).unwrap().count(), 0);
    assert_eq!(fixture.names(), ["agent.journal"]);
}

#[test]
fn a_long_journal_is_written_anew_without_threads_that_ended() {
    let (fixture, thread, (all, one)) = (Fixture::new(), Waiting::start(), sets());
    let (mut journal, _) = fixture.open();
    bind(&mut journal, own(), thread.tid, &one);
    fixture.set(&mut journal, "0");
    for tid in 0..MOST_NEW_LINES as u32 {
        let thread = ThreadIdentity { pid: own(), process_started: 1, tid: Tid(tid), started: 1 };
        journal.will(&Change::Affinity { thread, before: all.clone(), after: one.clone(), at: 1 }).unwrap();
    }
    let text = fs::read_to_string(journal.path()).unwrap();
    assert!(text.lines().count() < 10, "{}", text.lines().count());
    assert_eq!(fixture.names(), ["agent.journal"]);
    kill(journal);
    let (_, put_back) = fixture.open();
    assert_eq!((put_back.switches.len(), affinity(thread.tid).unwrap()), (1, all));
    thread.end();
}
