//! Results of earlier runs, kept between runs: a file for each machine and workload, with one comparison per policy.

use super::cases::{Case, Machine};
use bench::Error;
use report::Comparison;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder of results, with which an interrupted or repeated run only runs what is missing.
pub struct ResultCache<'a> {
    pub folder: &'a Path,
    /// Policies to run again.
    pub again: &'a [String],
}

impl ResultCache<'_> {
    /// The folder of a machine.
    pub fn folder_of(&self, machine: &Machine) -> PathBuf {
        self.folder.join(machine.folder())
    }

    /// The file of a workload; each policy's result is appended.
    pub fn file(&self, machine: &Machine, case: &Case) -> PathBuf {
        self.folder_of(machine).join(format!("{}.json", case.verb))
    }

    /// The policies that still have to run; creates the file.
    pub fn missing(&self, machine: &Machine, case: &Case) -> Result<Vec<&'static str>, Error> {
        let mut there = self.read(machine, case)?;
        there.retain(|one| one.policies.iter().all(|runs| !self.again.contains(&runs.policy)));
        let is_there = |policy: &&str| there.iter().flat_map(|one| &one.policies).any(|runs| runs.policy == *policy);
        let missing: Vec<&'static str> = case.policies.split(',').filter(|policy| !is_there(policy)).collect();
        if !missing.is_empty() {
            self.write(machine, case, &there)?;
        }
        Ok(missing)
    }

    /// All policies as one comparison.
    pub fn comparison(&self, machine: &Machine, case: &Case) -> Result<Comparison, Error> {
        let mut there = self.read(machine, case)?;
        self.write(machine, case, &there)?;
        let index = |one: &Comparison| {
            let named = |policy: &str| one.policies.first().is_some_and(|runs| runs.policy == policy);
            case.policies.split(',').position(named)
        };
        there.sort_by_key(index);
        let rest: Vec<_> = there.iter().skip(1).flat_map(|one| one.policies.clone()).collect();
        let mut all = there.into_iter().next().ok_or_else(|| {
            let command = format!("nearside compare -- {}", case.command(machine));
            Error::Failed { command, status: "nothing".to_owned(), said: String::new() }
        })?;
        all.policies.extend(rest);
        Ok(all)
    }

    /// The results of the current command line; a partial line is skipped.
    fn read(&self, machine: &Machine, case: &Case) -> Result<Vec<Comparison>, Error> {
        let file = self.file(machine, case);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(Error::system(format!("read {}", file.display())))?,
        };
        let command = case.command(machine);
        let all = serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok);
        Ok(all.filter(|one: &Comparison| one.command.join(" ") == command).collect())
    }

    fn write(&self, machine: &Machine, case: &Case, all: &[Comparison]) -> Result<(), Error> {
        let folder = self.folder_of(machine);
        fs::create_dir_all(&folder).map_err(Error::system(format!("make {}", folder.display())))?;
        let lines: Result<Vec<String>, _> = all.iter().map(serde_json::to_string).collect();
        let lines =
            lines.map_err(|why| Error::Report { command: format!("nearside compare … {}", case.verb), why })?;
        let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        let file = self.file(machine, case);
        fs::write(&file, text).map_err(Error::system(format!("write {}", file.display())))
    }
}
