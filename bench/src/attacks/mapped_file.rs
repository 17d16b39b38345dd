//! D16: the name of a mapped file, exchanged while root opens the file.

use crate::attacks::{Ground, OTHER, Tally, failed, while_another_user};
use linux::{FileWords, Pid, Process};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, inotify, mknodat, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;

/// Opened this often for each try.
const OPENED: usize = 10;
const BYTES: usize = 4096;

pub fn run(ground: &Ground, times: usize) -> io::Result<Tally> {
    let folder = ground.folder("theirs", OTHER, 0o755)?;
    let [file, pipe] = ["file", "pipe"].map(|name| folder.join(name));
    fs::write(&file, [7; BYTES])?;
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0)?;
    chown(&file, Some(OTHER), Some(OTHER))?;
    let words = FileWords::map(File::open(&file)?, BYTES)?;
    let process = Process::open(Pid(std::process::id())).map_err(io::Error::other)?;
    let mapping =
        process.mappings().map_err(io::Error::other)?.into_iter().find(|one| one.range.contains(&words.address()));
    let mapping = mapping.ok_or_else(|| failed("the mapping is not there"))?;
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&opened, &pipe, inotify::WatchFlags::OPEN)?;
    let mut tally = Tally::default();
    let exchange = || {
        let _ = renameat_with(CWD, &file, CWD, &pipe, RenameFlags::EXCHANGE);
    };
    while_another_user(exchange, || {
        for _ in 0..times * OPENED {
            tally.tried += 1;
            tally.worked += usize::from(process.mapped_file(&mapping).is_ok());
        }
        Ok(())
    })?;
    match rustix::io::read(&opened, &mut [0; BYTES]) {
        Err(Errno::AGAIN) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => tally.won.push("a pipe of another user was opened".to_owned()),
    }
    Ok(tally)
}
