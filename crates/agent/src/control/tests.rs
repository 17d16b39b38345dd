//! A server with well-behaved and hostile clients.

use super::*;
use crate::Status;
use linux::{Peer, Pid};
use rustix::process::{getegid, geteuid};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn ours() -> Access {
    Access { owner: geteuid().as_raw(), group: getegid().as_raw() }
}

struct Fixture {
    folder: TempDir,
    status: Arc<Mutex<Status>>,
    server: Option<Server>,
}

impl Fixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let status = Arc::new(Mutex::new(Status { policy: "carrefour".into(), ..Status::default() }));
        let mut fixture = Self { folder, status, server: None };
        let listener = Listener::bind(&fixture.path(), ours()).unwrap();
        let status = fixture.status.clone();
        let order = |_: &Request| Ok("done".to_owned());
        let reply = move |request: Request| {
            answer(&request, &status, |_| "x".repeat(1 << 20), |pid| format!("no {pid}"), order)
        };
        fixture.server = Some(Server::start(listener, reply).unwrap());
        fixture
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

/// Everything that is received until the connection closes.
fn rest(mut stream: UnixStream) -> String {
    let mut text = Vec::new();
    // A server that closes with unread input resets the connection after its answer.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn an_agent_is_asked_paused_and_resumed() {
    let fixture = Fixture::start();
    let there = std::fs::symlink_metadata(fixture.path()).unwrap();
    assert!(there.file_type().is_socket());
    assert_eq!((there.mode() & 0o777, there.uid(), there.gid()), (0o660, ours().owner, ours().group));
    assert_eq!(ask(&fixture.path(), &Request::Pause).unwrap(), Answer::Paused(true));
    let Answer::Status(status) = ask(&fixture.path(), &Request::Status).unwrap() else { panic!() };
    assert!(status.paused && status.policy == "carrefour");
    let Answer::Metrics(text) = ask(&fixture.path(), &Request::Metrics).unwrap() else { panic!() };
    assert_eq!(text.len(), 1 << 20);
    ask(&fixture.path(), &Request::Resume).unwrap();
    assert!(!fixture.status.lock().unwrap().paused);
    let path = fixture.path();
    drop(fixture.server);
    assert!(!path.exists());
    let error = ask(&path, &Request::Status).unwrap_err().to_string();
    assert!(error.starts_with("no agent is running: there is no socket /"), "{error}");
}

/// A client that is refused before it sends its request, which is never read, still gets the reason.
#[test]
fn a_refusal_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&path, &Request::Status));
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"{\"refused\":\"too many\"}\n").unwrap();
        drop(stream);
        asking.join().unwrap()
    });
    assert_eq!(asked.unwrap_err().to_string(), "the agent refused: too many");
}

#[test]
fn one_connection_carries_many_requests_in_any_pieces() {
    let fixture = Fixture::start();
    let stream = fixture.connect();
    let three = "{\"request\":\"pause\"}\n{\"request\":\"explain\",\"pid\":1}\n{\"request\":\"resume\"}\n";
    for piece in three.as_bytes().chunks(7) {
        (&stream).write_all(piece).unwrap();
    }
    let mut reader = BufReader::new(&stream);
    let mut told = [String::new(), String::new(), String::new()];
    for line in &mut told {
        reader.read_line(line).unwrap();
    }
    assert!(told[0].contains("true") && told[1].contains("no 1") && told[2].contains("false"), "{told:?}");
}

#[test]
fn hostile_clients_are_refused_and_closed_and_do_not_block_others() {
    let fixture = Fixture::start();
    let refused = |bytes: &[u8], says: &str| {
        let stream = fixture.connect();
        // It may be closed before all is written.
        let _ = (&stream).write_all(bytes);
        let told = rest(stream);
        assert!(told.contains("\"refused\"") && told.contains(says), "{told}");
        assert_eq!(ask(&fixture.path(), &Request::Resume).unwrap(), Answer::Paused(false));
    };
    refused(b"GET / HTTP/1.1\r\n\r\n", "invalid request");
    refused(&[0xff, b'\n'], "invalid request");
    refused(&vec![b'x'; 1 << 20], "a request has at most 4096 bytes");
    refused(format!("{}\n", "[".repeat(4000)).as_bytes(), "invalid request");
    // Three clients: one that sends requests and never reads, one that disconnects mid-request, and one that sends
    // nothing.
    let deaf = fixture.connect();
    (&deaf).write_all("{\"request\":\"metrics\"}\n".repeat(50).as_bytes()).unwrap();
    drop(deaf.try_clone().unwrap());
    (&fixture.connect()).write_all(b"{\"request\":\"met").unwrap();
    let silent = fixture.connect();
    let asked = Instant::now();
    assert_eq!(ask(&fixture.path(), &Request::Resume).unwrap(), Answer::Paused(false));
    assert!(asked.elapsed() < Duration::from_secs(5));
    // It is closed at its deadline, and the others with it.
    assert_eq!(rest(silent), "");
    assert_eq!(ask(&fixture.path(), &Request::Resume).unwrap(), Answer::Paused(false));
}

#[test]
fn too_many_clients_are_turned_away_until_some_go() {
    let fixture = Fixture::start();
    let clients: Vec<UnixStream> = (0..8).map(|_| fixture.connect()).collect();
    let told = rest(fixture.connect());
    let uid = ours().owner;
    assert!(told.contains(&format!("8 clients of user {uid} are connected already")), "{told}");
    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(20);
    while ask(&fixture.path(), &Request::Status).is_err() {
        assert!(Instant::now() < deadline);
    }
}

/// A server to which clients seem to be of these users, in the order of their connections, and then of root.
fn serve_users(users: Vec<u32>) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&folder.path().join("agent.sock"), ours()).unwrap();
    let next = Mutex::new(users.into_iter());
    let peer = move |_: &UnixStream| {
        let uid = next.lock().unwrap().next().unwrap_or(0);
        Ok(Peer { pid: Pid(1), uid, gid: ours().group, groups: Vec::new() })
    };
    let status = Mutex::new(Status::default());
    let reply = move |request: Request| {
        answer(&request, &status, |_| "x".repeat(1 << 16), |_| String::new(), |_| Ok(String::new()))
    };
    (folder, Server::start_with(listener, peer, reply).unwrap())
}

#[test]
fn root_is_answered_whatever_others_do() {
    let users: Vec<u32> = [7001, 7002, 7003].into_iter().flat_map(|uid| [uid; 9]).collect();
    let (folder, _server) = serve_users(users.clone());
    let path = folder.path().join("agent.sock");
    let silent: Vec<UnixStream> = users.iter().map(|_| UnixStream::connect(&path).unwrap()).collect();
    // These have a slot and send requests all the time.
    for stream in &silent[..4] {
        stream.set_nonblocking(true).unwrap();
        let _ = (&*stream).write(&"{\"request\":\"status\"}\n".repeat(1000).into_bytes());
    }
    let began = Instant::now();
    for (request, paused) in [(Request::Pause, true), (Request::Resume, false)] {
        assert_eq!(ask(&path, &request).unwrap(), Answer::Paused(paused));
    }
    assert!(matches!(ask(&path, &Request::Status).unwrap(), Answer::Status(_)));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // The ninth client of a user, and the users after the sixteenth client.
    let told: Vec<String> = [8, 17, 18, 26].map(|index| rest(silent[index].try_clone().unwrap())).into();
    assert!(told[0].contains("8 clients of user 7001 are connected already"), "{told:?}");
    assert!(told[1].contains("8 clients of user 7002"), "{told:?}");
    assert!(told[2..].iter().all(|told| told.contains("16 clients are connected already")), "{told:?}");
}

#[test]
fn only_root_the_owner_and_the_group_are_let_in() {
    let access = Access { owner: 1000, group: 50 };
    let peer = |uid, gid, groups: &[u32]| Peer { pid: Pid(1), uid, gid, groups: groups.to_vec() };
    let allowed = [peer(0, 0, &[]), peer(1000, 7, &[]), peer(7, 50, &[]), peer(7, 7, &[3, 50])];
    assert!(allowed.iter().all(|peer| access.allows(peer)));
    assert!(![peer(7, 7, &[]), peer(50, 1000, &[3])].iter().any(|peer| access.allows(peer)));
}

#[test]
fn a_socket_that_was_left_is_replaced_and_anything_else_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let bind = |path: &Path| Listener::bind(path, ours());
    // SIGKILL leaves the socket like this.
    drop(UnixListener::bind(&path).unwrap());
    let error = ask(&path, &Request::Status).unwrap_err().to_string();
    assert!(error.starts_with("no agent is running: an agent was killed and left its socket /"), "{error}");
    let first = bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(ControlError::InUse { .. })));
    drop(first);
    std::fs::write(&path, "a file").unwrap();
    assert!(matches!(bind(&path), Err(ControlError::NoSocket { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    let none = folder.path().join("none/agent.sock");
    assert!(bind(&none).unwrap_err().to_string().starts_with("cannot open the folder "));
    let long = folder.path().join("x".repeat(200));
    assert!(bind(&long).is_err() && ask(&long, &Request::Status).is_err());
}

/// Where others may exchange the socket, its owner and mode could become those of another file.
#[test]
fn a_socket_that_others_could_exchange_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    std::fs::create_dir_all(open.join("below")).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    for path in [open.join("agent.sock"), open.join("below/agent.sock")] {
        let error = Listener::bind(&path, ours()).unwrap_err().to_string();
        assert!(error.contains("mode 0777) may be written to by others: chmod go-w "), "{error}");
        assert!(!path.exists());
    }
    // What is in a sticky folder stays its owner's. No link is followed.
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).unwrap();
    drop(Listener::bind(&open.join("agent.sock"), ours()).unwrap());
    std::os::unix::fs::symlink("/dev/null", open.join("agent.sock")).unwrap();
    assert!(matches!(Listener::bind(&open.join("agent.sock"), ours()), Err(ControlError::NoSocket { .. })));
}

#[test]
fn an_invalid_answer_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serve = std::thread::spawn(move || {
        for answer in ["{\"later\":1}\n", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert!(matches!(ask(&path, &Request::Status), Err(AskError::NotUnderstood { .. })));
    assert!(matches!(ask(&path, &Request::Status), Err(AskError::System { what: "hear", .. })));
    serve.join().unwrap();
}
