//! The order of processes that wait for a grant which they carry out themselves.

use crate::grants::{Records, RecordsError};
use linux::PrivateFolder;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Ending of the names of tickets; a number goes before.
const ENDING: &str = ".waits";

/// A place in the queue, for as long as it lives: a file that its process has locked.
#[derive(Debug)]
pub struct Ticket {
    folder: PathBuf,
    number: u64,
    _file: File,
}

impl Ticket {
    /// Draws the last place of the queue, in the folder of records.
    pub fn draw(folder: &Path) -> Result<Self, RecordsError> {
        let records = Records::lock(folder)?;
        let last = numbers(records.folder()).map_err(RecordsError::Write)?.last().copied().unwrap_or(0);
        let number = last + 1;
        let file = records.folder().file(&name(number), 0o600)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| RecordsError::Write(error.into()))?;
        Ok(Self { folder: folder.to_owned(), number, _file: file })
    }

    /// Whether all that came before have their grants, have given up, or were killed.
    pub fn is_first(&self, records: &Records) -> Result<bool, RecordsError> {
        for earlier in numbers(records.folder()).map_err(RecordsError::Write)? {
            if earlier >= self.number {
                break;
            }
            let file = records.folder().file(&name(earlier), 0o600)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Ok(false);
            }
            let _ = records.folder().remove(&name(earlier));
        }
        Ok(true)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // One that cannot be removed is not locked any more, and the next in the queue removes it.
        let _ = std::fs::remove_file(self.folder.join(name(self.number)));
    }
}

fn name(number: u64) -> String {
    format!("{number}{ENDING}")
}

/// The numbers of all tickets, in order.
fn numbers(folder: &PrivateFolder) -> std::io::Result<Vec<u64>> {
    let names = folder.names()?.into_iter();
    let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_suffix(ENDING)?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_order_and_are_given_up_by_their_ends() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, third] = [(); 3].map(|()| Ticket::draw(folder.path()).unwrap());
        let is_first = |ticket: &Ticket| ticket.is_first(&Records::lock(folder.path()).unwrap()).unwrap();
        assert_eq!([&first, &second, &third].map(is_first), [true, false, false]);
        drop(second);
        assert!(!is_first(&third));
        drop(first);
        assert!(is_first(&third));
        // What a killed process left is no process's place: its lock is gone.
        std::fs::write(folder.path().join("1.waits"), "").unwrap();
        assert!(is_first(&third) && !folder.path().join("1.waits").exists());
        drop(third);
        assert_eq!(Ticket::draw(folder.path()).unwrap().number, 1);
    }
}
