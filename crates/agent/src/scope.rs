//! Which processes are managed: by user, program name or control group.

use crate::grants::{GrantRecord, read_records};
use crate::journal::grant_of;
use linux::{Cgroups, Pid, Process};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Length to which the kernel truncates a program's name, bytes.
const NAME_BYTES: usize = 15;

/// A selection of processes: those that match any of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessSelection {
    /// Users that processes run as, by name or number.
    pub users: Vec<String>,
    /// Names of programs, as `ps -o comm` shows them; only the first 15 bytes are compared.
    pub commands: Vec<String>,
    /// Control groups (version 2) and their descendants, as paths from the root of the hierarchy: `/system.slice`.
    pub cgroups: Vec<String>,
}

/// The attributes of a process that the configuration selects by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessAttributes {
    /// The user that it runs as.
    pub uid: u32,
    /// The name of its program.
    pub name: String,
    /// Its control group; none on a system without control groups.
    pub cgroup: Option<String>,
}

/// Which processes are managed: the configuration's selection with users resolved to numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    managed: Resolved,
    not_managed: Resolved,
    /// If set, only this user's processes may be placed.
    only_of: Option<u32>,
    /// The folder of the records of grants, if programs with grants are left alone.
    grants: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolved {
    uids: Vec<u32>,
    commands: Vec<String>,
    cgroups: Vec<String>,
}

impl ProcessAttributes {
    /// Reads a process's attributes; none if it has ended. Needs no privileges.
    pub fn from_proc(pid: Pid) -> Option<Self> {
        let process = Process::open(pid).ok()?;
        let status = process.status().ok()?;
        let cgroup = Cgroups::find().ok().and_then(|cgroups| cgroups.of(&process).ok());
        let [uid, ..] = status.uids;
        Some(Self { uid, name: status.name, cgroup })
    }
}

/// No user has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no user `{0}`")]
pub struct NoSuchUser(pub String);

impl Scope {
    /// Selects the processes in `managed`, or all if it is empty, except those in `not_managed`. `user` resolves names
    /// of users.
    pub fn new(
        managed: &ProcessSelection,
        not_managed: &ProcessSelection,
        user: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, NoSuchUser> {
        let (managed, not_managed) = (Resolved::new(managed, &user)?, Resolved::new(not_managed, &user)?);
        Ok(Self { managed, not_managed, ..Self::default() })
    }

    /// Restricts the selection to one user's processes, for users who may not place those of others.
    #[must_use]
    pub fn of_user(self, uid: u32) -> Self {
        Self { only_of: Some(uid), ..self }
    }

    /// Excludes programs with grants. `records` is the folder of the grants' records.
    #[must_use]
    pub fn without_grants(self, records: PathBuf) -> Self {
        Self { grants: Some(records), ..self }
    }

    /// Whether a control group is a grant's: one that was made for it, or an adopted one.
    fn has_grant(&self, group: &str) -> bool {
        let Some(records) = &self.grants else { return false };
        let adopted = || {
            let folder = Cgroups::find().ok()?.folder_of(group);
            let is_in = |record: GrantRecord| record.adopted.is_some_and(|group| folder.starts_with(group));
            Some(read_records(records).into_iter().any(is_in))
        };
        grant_of(group).is_some() || adopted().unwrap_or(false)
    }

    /// Whether a process is managed; false once it has ended.
    pub fn has(&self, pid: Pid) -> bool {
        *self == Self::default()
            || ProcessAttributes::from_proc(pid).is_some_and(|process| self.why_not(&process).is_none())
    }

    /// Why a process is not managed; none if it is.
    pub fn why_not(&self, process: &ProcessAttributes) -> Option<String> {
        if self.only_of.is_some_and(|uid| process.uid != uid) {
            return Some(format!("it belongs to user {}, and only root may place other users' processes", process.uid));
        }
        if process.cgroup.as_deref().is_some_and(|group| self.has_grant(group)) {
            return Some("it has a grant, whose CPUs and memory are its own".to_owned());
        }
        if let Some(why) = self.not_managed.matches(process) {
            return Some(format!("the configuration leaves {why} alone"));
        }
        let is_all = self.managed == Resolved::default();
        (!is_all && self.managed.matches(process).is_none()).then(|| {
            let group = process.cgroup.as_deref().unwrap_or("none");
            format!(
                "the configuration names neither its user ({}), nor its program ({}), nor its control group ({group})",
                process.uid, process.name
            )
        })
    }
}

impl Resolved {
    fn new(chosen: &ProcessSelection, user: impl Fn(&str) -> Option<u32>) -> Result<Self, NoSuchUser> {
        let uid = |name: &String| name.parse().ok().or_else(|| user(name)).ok_or_else(|| NoSuchUser(name.clone()));
        let uids = chosen.users.iter().map(uid).collect::<Result<_, _>>()?;
        Ok(Self { uids, commands: chosen.commands.clone(), cgroups: chosen.cgroups.clone() })
    }

    /// Describes what matches the process.
    fn matches(&self, process: &ProcessAttributes) -> Option<String> {
        if self.uids.contains(&process.uid) {
            return Some(format!("processes of user {}", process.uid));
        }
        if self.commands.iter().any(|name| is_kept_as(name, &process.name)) {
            return Some(format!("programs of the name {}", process.name));
        }
        let group = process.cgroup.as_ref().map(Path::new)?;
        let above = self.cgroups.iter().find(|above| group.starts_with(above))?;
        Some(format!("processes of control group {above}"))
    }
}

/// Whether `kept` is the kernel's truncation of a program's name.
fn is_kept_as(name: &str, kept: &str) -> bool {
    // The kernel cuts bytes; what is left of a character is not UTF-8.
    let bytes = name.as_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(NAME_BYTES)]) == kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::{Carrier, Records};
    use reserve::{Asker, Control, Facts, Ledger, Request, Rules, Throttle};
    use std::sync::Arc;

    fn scope(managed: &ProcessSelection, not_managed: &ProcessSelection) -> Scope {
        Scope::new(managed, not_managed, |name| (name == "postgres").then_some(70)).unwrap()
    }

    fn process(uid: u32, name: &str, cgroup: &str) -> ProcessAttributes {
        ProcessAttributes { uid, name: name.into(), cgroup: Some(cgroup.into()) }
    }

    fn users(of: &[&str]) -> ProcessSelection {
        ProcessSelection { users: of.iter().map(|user| (*user).to_owned()).collect(), ..ProcessSelection::default() }
    }

    /// The kernel cuts the name in the middle of a character, whose rest is shown as a replacement.
    #[test]
    fn long_names_are_cut_as_the_kernel_does() {
        assert!(is_kept_as("größeüberprüfung", "größeüberpr\u{fffd}") && is_kept_as("größe", "größe"));
        assert!(!is_kept_as("größe", "größ"));
    }

    #[test]
    fn all_are_managed_if_none_are_named() {
        let scope = scope(&ProcessSelection::default(), &users(&["postgres"]));
        assert_eq!(scope.why_not(&process(0, "sh", "/")), None);
        let why = scope.why_not(&process(70, "sh", "/")).unwrap();
        assert_eq!(why, "the configuration leaves processes of user 70 alone");
    }

    #[test]
    fn programs_with_grants_are_left_alone_where_grants_are_made() {
        let with_grant = process(70, "sh", "/nearside-grant-7");
        assert_eq!(Scope::default().why_not(&with_grant), None);
        let without = Scope::default().without_grants("/no/records".into());
        let why = without.why_not(&with_grant).unwrap();
        assert_eq!(why, "it has a grant, whose CPUs and memory are its own");
        assert_eq!(without.why_not(&process(70, "sh", "/batch")), None);
    }

    #[test]
    fn programs_of_adopted_groups_are_left_alone_too() {
        let Ok(cgroups) = Cgroups::find() else { return test_tools::skipped("there are no control groups") };
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("grants");
        let facts = Facts::new(machine::presets::find("small-4x2").unwrap(), Control::default());
        let ledger = Ledger::new(Arc::new(facts), Rules::default());
        let grant = ledger.admit(&[Request::default()], &Asker::default()).unwrap().grants.remove(0);
        let adopted = cgroups.folder().join("batch");
        let carrier = Carrier::Agent { stays: true, adopted: Some(&adopted) };
        Records::lock(&records).unwrap().add(&grant, carrier, Throttle::None, None, None).unwrap();
        let without = Scope::default().without_grants(records);
        assert!(without.why_not(&process(70, "sh", "/batch/inner")).is_some());
        assert_eq!(without.why_not(&process(70, "sh", "/batches")), None);
    }

    #[test]
    fn one_user_places_no_processes_of_others() {
        let scope = Scope::default().of_user(70);
        assert_eq!(scope.why_not(&process(70, "sh", "/")), None);
        let why = scope.why_not(&process(0, "sh", "/")).unwrap();
        assert_eq!(why, "it belongs to user 0, and only root may place other users' processes");
        assert!(rustix::process::geteuid().as_raw() == 70 || !scope.has(Pid(std::process::id())));
    }

    #[test]
    fn users_programs_and_groups_are_alternatives() {
        let managed = ProcessSelection {
            commands: vec!["a-name-of-twenty-byt".into()],
            cgroups: vec!["/batch".into()],
            ..users(&["postgres", "12"])
        };
        let not_managed = ProcessSelection { cgroups: vec!["/batch/left".into()], ..ProcessSelection::default() };
        let scope = scope(&managed, &not_managed);
        for managed in [
            process(70, "sh", "/"),
            process(12, "sh", "/"),
            process(7, "a-name-of-twent", "/"),
            process(7, "sh", "/batch"),
            process(7, "sh", "/batch/job/1"),
        ] {
            assert_eq!(scope.why_not(&managed), None, "{managed:?}");
        }
        let why = |process| scope.why_not(&process).unwrap();
        assert_eq!(
            why(process(7, "sh", "/batch/left/1")),
            "the configuration leaves processes of control group /batch/left alone"
        );
        assert_eq!(
            why(process(7, "sh", "/batches")),
            "the configuration names neither its user (7), nor its program (sh), nor its control group (/batches)"
        );
        assert!(why(ProcessAttributes { cgroup: None, ..process(7, "sh", "/") }).ends_with("(none)"));
        assert!(why(process(7, "a-name-of", "/")).contains("neither"));
    }

    #[test]
    fn an_unknown_user_is_named() {
        let error = Scope::new(&users(&["no-such-user"]), &ProcessSelection::default(), |_| None).unwrap_err();
        assert_eq!(error.to_string(), "there is no user `no-such-user`");
    }
}
