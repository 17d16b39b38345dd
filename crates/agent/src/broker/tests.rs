//! A broker with well-behaved and hostile clients, none of which gets as far as a control group.

use super::*;
use linux::{Message, receive, send};
use machine::presets;
use reserve::{Control, Rules};
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, sendmsg, socket_with,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tempfile::TempDir;

struct Fixture {
    folder: TempDir,
    broker: Broker,
}

impl Fixture {
    fn start() -> Self {
        let report: Report = Box::new(|_, decided| {
            (decided.as_ref().err().map_or_else(String::new, Refusal::to_string), serde_json::Value::Null)
        });
        Self::start_with(report, || ())
    }

    fn start_with(report: Report, wake: impl FnOnce() + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let facts = Facts::new(presets::find("small-4x2").unwrap(), Control::default());
        let settings = Settings {
            folder: folder.path().to_owned(),
            records: folder.path().join("grants"),
            ledger: Ledger::new(Arc::new(facts), Rules::default()),
            limited: Vec::new(),
            quotas: Quotas::default(),
            report,
            note: Box::new(|_| {}),
            hardware: None,
            live: LiveGrants::default(),
            monitor: None,
            isolate_zone: false,
        };
        let broker = Broker::start(settings, Left::default(), wake);
        Self { folder, broker: broker.unwrap() }
    }

    fn connect(&self) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(self.folder.path().join(SOCKET)).unwrap()).unwrap();
        socket
    }

    fn answer(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> String {
        let socket = self.connect();
        match send(&socket, bytes, files) {
            // Refused before the call was sent: the reason can be read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            sent => sent.unwrap(),
        }
        heard(&socket)
    }
}

fn heard(socket: &OwnedFd) -> String {
    // A connection that is refused before its call is read is reset, and then has the reason.
    let Message { bytes, files, .. } = receive(socket, 1 << 16).or_else(|_| receive(socket, 1 << 16)).unwrap();
    assert!(files.is_empty());
    String::from_utf8(bytes).unwrap()
}

#[test]
fn malformed_calls_are_refused_in_a_sentence() {
    let fixture = Fixture::start();
    let mut long = br#"{"call":"release","grant":""#.to_vec();
    long.resize(5000, b'x');
    for (bytes, said) in [
        (&b"{"[..], "invalid call: EOF while parsing"),
        (b"\xff\xfe", "invalid call: "),
        (b"null", "invalid call: "),
        (br#"{"call":"mint"}"#, "unknown variant `mint`"),
        (br#"{"call":"release","grant":"a","force":true}"#, "unknown field `force`"),
        (br#"{"call":"create","request":{"cores":{"any":"2"}}}"#, "invalid type: string"),
        (&long, "a call has at most 4096 bytes"),
        (br#"{"call":"create","request":{"cores":{"any":0}}}"#, "a grant has 1 to 8192 cores, not 0"),
        (br#"{"call":"create","request":{"name":"a/b"}}"#, "a name begins with a letter"),
        (br#"{"call":"create","request":{"most_slowdown":10.0}}"#, "a slow-down is from 0.1 to 100 %"),
        (br#"{"call":"create","request":{"lease_s":0}}"#, "a lease is from 1 s to 10 years"),
        (br#"{"call":"create","request":{"bandwidth":{"read":-1.0,"write":0.0}}}"#, "bandwidth is a positive number"),
        (br#"{"call":"create","request":{"cores":{"these":"99"}}}"#, "no CPU 99: this machine has CPUs 0-7"),
        (br#"{"call":"create","request":{"memory":{"node":9}}}"#, "no node 9"),
        (br#"{"call":"create","request":{},"stays":true}"#, "a grant that stays needs a name"),
        (br#"{"call":"create","request":{"cores":{"of":1}}}"#, "gets more memory by `upgrade`"),
        (br#"{"call":"enter"}"#, "enter takes a pidfd"),
        (br#"{"call":"release"}"#, "neither the name of a grant nor a handle"),
        (br#"{"call":"report","latency_ms":1,"target_ms":1}"#, "neither the name of a grant nor a handle"),
    ] {
        let told = fixture.answer(bytes, &[]);
        assert!(told.starts_with(r#"{"wrong":"#) && told.contains(said), "{told}");
    }
    // The next client is answered.
    assert!(fixture.answer(br#"{"call":"release","grant":"7"}"#, &[]).contains(r#"there is no grant \"7\""#));
}

#[test]
fn descriptors_that_are_no_handles_give_no_right() {
    let fixture = Fixture::start();
    let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let (file, (pair, _other)) = (File::open("/dev/null").unwrap(), linux::message_pair().unwrap());
    let connection = fixture.connect();
    for other in [file.as_fd(), pair.as_fd(), connection.as_fd(), this.as_fd()] {
        let told = fixture.answer(br#"{"call":"release"}"#, &[other]);
        assert!(told.contains("the descriptor is no handle of this grant"), "{told}");
        let told = fixture.answer(br#"{"call":"enter"}"#, &[this.as_fd(), other]);
        assert!(told.contains("the descriptor is no handle of this grant"), "{told}");
    }
    let two = [pair.as_fd(); 2];
    assert!(fixture.answer(br#"{"call":"release"}"#, &two).contains("a call has one handle at most"));
    let nine = [pair.as_fd(); 9];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(9))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&nine)));
    sendmsg(&connection, &[IoSlice::new(br#"{"call":"release"}"#)], &mut control, SendFlags::empty()).unwrap();
    assert!(heard(&connection).contains("a call has at most 8 descriptors"));
}

#[test]
fn calls_of_the_study_give_no_more_rights_than_others() {
    let fixture = Fixture::start();
    let (pair, _other) = linux::message_pair().unwrap();
    for (line, files, said) in [
        (&br#"{"call":"rcm_core_memd_release","core":7}"#[..], 0, "there is no grant 7"),
        (br#"{"call":"rcm_core_memd_release","core":7}"#, 1, "the descriptor is no handle of this grant"),
        (br#"{"call":"rcm_coreoncache_memd_request","memory_controller_isolated":false,"core_with_cache":7,"memory_performance":"NO_PREFERENCE"}"#, 0, "there is no grant 7"),
        (br#"{"call":"rcm_cored_numa_request","exclusive_cache":false,"core_memory_isolated":false,"memory_controller_isolated":false,"memory_performance":"NO_PREFERENCE","numa":9}"#, 0, "no node 9"),
        (br#"[{"call":"rcm_core_memd_release","core":"7"}]"#, 0, "invalid type: string"),
        (b"[", 0, "EOF while parsing"),
    ] {
        let told = fixture.answer(line, &vec![pair.as_fd(); files]);
        assert!((told.starts_with(r#"{"wrong":"#) || told.starts_with(r#"{"refused":"#)) && told.contains(said), "{told}");
    }
}

#[test]
fn a_client_that_is_silent_is_not_waited_for() {
    let fixture = Fixture::start();
    let silent = fixture.connect();
    let began = std::time::Instant::now();
    // The end of the connection.
    assert!(receive(&silent, 100).unwrap().bytes.is_empty());
    assert!(began.elapsed() >= std::time::Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn what_could_never_be_granted_does_not_wait() {
    let fixture = Fixture::start();
    for (request, said) in [
        (r#"{"cores":{"any":3}}"#, "3 wanted"),
        (r#"{"memory":{"node":9}}"#, "no node 9"),
        (r#"{"isolate":{"cache":{"ways":2}}}"#, "no masks of ways"),
    ] {
        let call = format!(r#"{{"call":"create","request":{request},"wait_s":1000}}"#);
        let told = fixture.answer(call.as_bytes(), &[]);
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_flood_of_connections_and_calls_keeps_no_other_user_out_and_kills_nothing() {
    let fixture = Fixture::start();
    let idle: Vec<OwnedFd> = (0..40).map(|_| fixture.connect()).collect();
    let refused = idle.iter().rev().take(20).map(heard).filter(|told| told.contains("connected already")).count();
    assert_eq!(refused, 20);
    drop(idle);
    // Calls without reading the answers: the connection is closed when its answers no longer fit.
    let flood = fixture.connect();
    let call = br#"{"call":"release","grant":"nowhere"}"#;
    let sent = (0..100_000).take_while(|_| send(&flood, call, &[]).is_ok()).count();
    assert!(sent < 100_000, "the flood was never stopped");
    // A client that is gone before its answer.
    for _ in 0..100 {
        // Where those before are not noticed as gone yet, it is refused.
        let _ = send(fixture.connect(), call, &[]);
    }
    // Until the connections of before are closed, it is refused, too.
    let began = std::time::Instant::now();
    while !fixture.answer(call, &[]).contains("there is no grant") {
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        std::thread::yield_now();
    }
}

/// A call whose decision is reported.
const CREATE: &[u8] = br#"{"call":"create","request":{"cores":{"any":3}}}"#;

#[test]
fn a_broker_whose_thread_has_panicked_wakes_its_agent() {
    let (wake, woken) = channel();
    let fixture = Fixture::start_with(Box::new(|_, _| panic!("as a defect does")), move || wake.send(()).unwrap());
    assert!(!fixture.broker.has_ended());
    let client = fixture.connect();
    send(&client, CREATE, &[]).unwrap();
    woken.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(fixture.broker.has_ended());
    assert_eq!(fixture.broker.stop(), None);
}

#[test]
fn the_end_does_not_wait_for_a_broker_that_hangs() {
    let (hang, hangs) = channel();
    let (go_on, goes_on) = channel::<()>();
    let report: Report = Box::new(move |_, _| {
        hang.send(()).unwrap();
        let _ = goes_on.recv();
        (String::new(), serde_json::Value::Null)
    });
    let (wake, woken) = channel();
    let mut fixture = Fixture::start_with(report, move || wake.send(()).unwrap());
    let client = fixture.connect();
    send(&client, CREATE, &[]).unwrap();
    hangs.recv().unwrap();
    let said = fixture.broker.stop_within(Duration::from_millis(1)).unwrap();
    assert!(said.starts_with("goes without undoing settings of grants, which takes too long"), "{said}");
    drop(go_on);
    woken.recv().unwrap();
    assert_eq!(fixture.broker.stop_within(Duration::from_secs(20)), None);
}
