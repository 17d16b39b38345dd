//! A server under load.

use crate::{installed, library};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_serves_its_own_benchmark() {
    let (Some(mut server), Some(mut benchmark)) = (installed("redis-server"), installed("redis-benchmark")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    server.args(["--port", "0", "--save", "", "--appendonly", "no", "--io-threads", "2", "--unixsocket"]).arg(&socket);
    server.current_dir(&folder).env("LD_PRELOAD", library()).stdout(Stdio::null());
    let mut server = Server(server.spawn().unwrap());
    let is_up = (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        UnixStream::connect(&socket).is_ok()
    });
    assert!(is_up, "redis-server does not listen");
    let output = benchmark
        .args(["-q", "-n", "20000", "-r", "10000", "-d", "300", "-P", "16", "-t", "set,get,lpush,lpop,hset,mset", "-s"])
        .arg(&socket)
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("requests per second").count(), 6, "{said}");
    assert!(server.0.try_wait().unwrap().is_none(), "redis-server ended");
}
