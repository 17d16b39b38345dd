//! Hashes of fetched files, kept beside them: a damaged file is named instead of what follows from the damage.

use super::SetupError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The list's name in its folder. Folders without it are not compared: a user's own, and those of older versions.
pub const LIST: &str = "hashes.json";

/// How a folder is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// By sizes and times, and by hashes where times differ.
    Quick,
    /// By hashes.
    Whole,
}

#[derive(Debug, Serialize, Deserialize)]
struct Listed {
    path: PathBuf,
    bytes: u64,
    modified_ns: u64,
    sha256: String,
}

/// Keeps the hashes of all files of a folder, but for what links to folders lead to.
pub fn keep(folder: &Path) -> Result<(), SetupError> {
    let mut listed = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let at = folder.join(&below);
        for entry in fs::read_dir(&at).map_err(SetupError::io("read", &at))? {
            let entry = entry.map_err(SetupError::io("read", &at))?;
            let (path, whole) = (below.join(entry.file_name()), entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path != Path::new(LIST) && !whole.is_dir() {
                listed.push(list(path, &whole).map_err(SetupError::io("read", &whole))?);
            }
        }
    }
    let path = folder.join(LIST);
    let text = serde_json::to_vec(&listed).map_err(io::Error::from);
    text.and_then(|text| fs::write(&path, text)).map_err(SetupError::io("write", &path))
}

/// The first damaged file of a folder that has a list, and what is wrong with it.
pub fn damage(folder: &Path, check: Check) -> Option<String> {
    let list = folder.join(LIST);
    let text = match fs::read(&list) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(format!("cannot read {}: {error}", list.display())),
        Ok(text) => text,
    };
    let Ok(all) = serde_json::from_slice::<Vec<Listed>>(&text) else {
        return Some(format!("{} is damaged", list.display()));
    };
    all.iter().find_map(|listed| {
        let path = folder.join(&listed.path);
        match differs(listed, &path, check) {
            Ok(false) => None,
            Ok(true) => Some(format!("{} is damaged", path.display())),
            Err(error) => Some(format!("cannot read {}: {error}", path.display())),
        }
    })
}

fn differs(listed: &Listed, path: &Path, check: Check) -> io::Result<bool> {
    let found = path.metadata()?;
    if found.len() != listed.bytes {
        return Ok(true);
    }
    let is_as_left = check == Check::Quick && modified_ns(&found)? == listed.modified_ns;
    Ok(!is_as_left && sha256(path)? != listed.sha256)
}

fn list(path: PathBuf, whole: &Path) -> io::Result<Listed> {
    let found = whole.metadata()?;
    Ok(Listed { path, bytes: found.len(), modified_ns: modified_ns(&found)?, sha256: sha256(whole)? })
}

fn modified_ns(found: &Metadata) -> io::Result<u64> {
    let since = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The files have at most some 30 MB.
fn sha256(path: &Path) -> io::Result<String> {
    Ok(hexadecimal(&Sha256::digest(fs::read(path)?)))
}

/// A hash as text.
pub fn hexadecimal(hash: &[u8]) -> String {
    let mut text = String::new();
    for byte in hash {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("lib/a");
        fs::create_dir(folder.path().join("lib")).expect("a folder");
        fs::write(&file, "whole").expect("a file");
        let said = |check| damage(folder.path(), check).unwrap_or_default();
        assert_eq!([Check::Quick, Check::Whole].map(said), ["", ""]);
        keep(folder.path()).expect("a list");
        keep(folder.path()).expect("the same list");
        assert_eq!([Check::Quick, Check::Whole].map(said), ["", ""]);
        let is_damaged = format!("{} is damaged", file.display());
        let time = file.metadata().and_then(|found| found.modified()).expect("a time");
        fs::write(&file, "whol ").expect("damage");
        assert_eq!([Check::Quick, Check::Whole].map(said), [&is_damaged; 2].map(String::as_str));
        // As of a disk that loses bits: only the hash tells.
        File::options().append(true).open(&file).and_then(|file| file.set_modified(time)).expect("an old time");
        assert_eq!([Check::Quick, Check::Whole].map(said), ["", &is_damaged]);
        // A copy has another time.
        fs::write(&file, "whole").expect("a repair");
        assert_eq!([Check::Quick, Check::Whole].map(said), ["", ""]);
        fs::write(&file, "").expect("a file that is cut off");
        assert_eq!(said(Check::Quick), is_damaged);
        fs::remove_file(&file).expect("a file");
        assert!(said(Check::Quick).contains("lib/a: No such file"));
        fs::write(folder.path().join(LIST), "[").expect("a list that is cut off");
        assert!(said(Check::Quick).contains("hashes.json is damaged"));
    }
}
