//! A file for Parquet's reader that never reads past its end, whatever its footer claims.

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Take};
use std::os::unix::fs::FileExt;

/// A file with its length at the time of opening.
pub(crate) struct CheckedFile {
    file: File,
    length: u64,
}

impl CheckedFile {
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    fn rest(&self, start: u64) -> Result<u64> {
        let outside = || ParquetError::EOF(format!("byte {start} of a file of {}", self.length));
        self.length.checked_sub(start).ok_or_else(outside)
    }
}

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for CheckedFile {
    type T = BufReader<Take<File>>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let rest = self.rest(start)?;
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::with_capacity(512, file.take(rest)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if length as u64 > self.rest(start)? {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} of a file of {}", self.length)));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
