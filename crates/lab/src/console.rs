//! Keeps the last lines of output of QEMU and of the guest's kernel, and interprets them.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Number of lines kept, and number of lines shown.
const KEPT: usize = 200;
const SHOWN: usize = 12;
/// Longer lines are cut: they are of no use, and a guest must not fill the host's memory.
const LINE_MAX: u64 = 4096;
/// The firmware's banner before the kernel starts.
const FIRMWARE: &str = "SeaBIOS (version";

/// Reads QEMU's output and error streams in the background.
pub(crate) struct Console {
    lines: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Console {
    pub(crate) fn follow<O, E>(output: Option<O>, error: Option<E>) -> Self
    where
        O: Read + Send + 'static,
        E: Read + Send + 'static,
    {
        let lines = Arc::default();
        let threads = [
            output.map(|stream| follow(Box::new(stream), Arc::clone(&lines))),
            error.map(|stream| follow(Box::new(stream), Arc::clone(&lines))),
        ];
        Self { lines, threads: threads.into_iter().flatten().collect() }
    }

    /// Waits until both streams have ended.
    pub(crate) fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// The last lines, for messages.
    pub(crate) fn tail(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    /// The reason of the guest's kernel panic, if it panicked.
    pub(crate) fn panic(&self) -> Option<String> {
        panic_reason(&self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last process that the guest's kernel killed for lack of memory: pid and name.
    pub(crate) fn out_of_memory(&self) -> Option<String> {
        killed_process(&self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn follow(stream: Box<dyn Read + Send>, lines: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while let Ok(1..) = (&mut stream).take(LINE_MAX).read_until(b'\n', &mut line) {
            let text = printable(&String::from_utf8_lossy(&line));
            line.clear();
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if !text.is_empty() && !text.starts_with(FIRMWARE) {
                lines.push(text);
            }
            if lines.len() > 2 * KEPT {
                lines.drain(..KEPT);
            }
        }
    })
}

/// Removes whatever would control the terminal it is shown on: escape sequences (ECMA-48, 5.4) and other control
/// characters.
fn printable(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.next() == Some('[') {
                chars.find(|c| ('@'..='~').contains(c));
            }
        } else if !c.is_control() {
            text.push(c);
        }
    }
    text.trim_end().to_owned()
}

fn panic_reason(lines: &[String]) -> Option<String> {
    let line = lines.iter().find_map(|line| line.split_once("Kernel panic - not syncing: "))?;
    Some(line.1.to_owned())
}

/// From `Out of memory: Killed process 107 (python3) total-vm:...` (Linux, `mm/oom_kill.c`).
fn killed_process(lines: &[String]) -> Option<String> {
    let line = lines.iter().rev().find_map(|line| line.split_once("Out of memory: Killed process "))?;
    let (process, _) = line.1.split_once(" total-vm:")?;
    Some(process.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_is_named() {
        let line = "[ 9.1] Out of memory: Killed process 107 (a (b) c) total-vm:4kB, anon-rss:1kB, UID:0".to_owned();
        assert_eq!(killed_process(&[line, "more".into()]).as_deref(), Some("107 (a (b) c)"));
        assert_eq!(killed_process(&["Out of memory: Killed process ".into()]), None);
    }

    #[test]
    fn a_panic_is_found_among_the_last_lines() {
        let text = b"starting\n[ 1.0] Kernel panic - not syncing: Out of memory\nrebooting\x1b[2J\n".as_slice();
        let mut console = Console::follow(Some(text), None::<&[u8]>);
        console.wait();
        assert_eq!(console.panic().as_deref(), Some("Out of memory"));
        assert!(console.tail().ends_with("rebooting"));
    }

    #[test]
    fn endless_output_is_cut() {
        let mut console = Console::follow(Some(std::io::repeat(b'x').take(10_000_000)), None::<&[u8]>);
        console.wait();
        assert!(console.tail().len() < 100_000);
        assert_eq!(console.panic(), None);
    }
}
