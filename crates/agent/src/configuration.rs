//! The service's configuration: a TOML file in which every key is optional. Errors name the file and line.

use crate::regions::RegionPlace;
use crate::scope::ProcessSelection;
use linux::{PrivateFolder, PrivateFolderError, Trust};
use machine::{CpuSet, Mistake, Violation, bounded, read_checked, size};
use placement::{PolicyName, Thresholds};
use reserve::{Quota, Rule};
use rustix::process::geteuid;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// The service's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// The policy's name, with its page and thread parts, as for `nearside place --policy`.
    pub policy: PolicyName,
    /// The measured machine description written by `nearside measure --output`; default: what the system reports.
    pub machine: Option<PathBuf>,
    /// Length of a round, s.
    pub round_s: f64,
    /// Most bytes to move per second, as a number or a text such as "200 MiB"; default: unlimited.
    #[serde(deserialize_with = "some_size")]
    pub budget_bytes_per_s: Option<u64>,
    /// Most CPU time that observing and deciding may use, in percent of one CPU.
    pub cpu_limit_percent: f64,
    /// Respect affinity and memory policies that a program or its owner set.
    pub respect_owner: bool,
    /// Also move memory that several processes map.
    pub shared: bool,
    /// What to do about the kernel's NUMA balancing.
    pub kernel_balancing: KernelBalancing,
    /// The folder of the journal and the socket, writable by the agent's user only. Default: /run/nearside for root, a
    /// folder per user otherwise.
    pub folder: Option<PathBuf>,
    /// Which processes are managed; default: all.
    pub managed: ProcessSelection,
    /// Exceptions to those.
    pub not_managed: ProcessSelection,
    /// The control socket.
    pub socket: SocketSettings,
    /// Metrics as a file.
    pub metrics: MetricsSettings,
    /// The decision log.
    pub log: LogSettings,
    /// Huge pages that nodes share falsely.
    pub hugepages: HugePageSettings,
    /// Named ranges of programs that have a place of their own, whatever the policy decides.
    pub regions: RegionSettings,
    /// Grants: cores, caches, memory and bandwidth for single programs.
    pub reserve: ReserveSettings,
    /// The policies' thresholds; `docs/place.md` lists them.
    pub thresholds: Thresholds,
}

/// What to do about the kernel's NUMA balancing while a policy moves pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelBalancing {
    /// Switch it off, and on again at the end.
    #[default]
    Off,
    /// Leave it as it is.
    Keep,
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketSettings {
    /// The path; default: `agent.sock` in the journal's folder.
    pub path: Option<PathBuf>,
    /// The owner, by name or number; default: the user that runs the service.
    pub owner: Option<String>,
    /// The group whose members may use it, by name or number; default: the group that runs the service.
    pub group: Option<String>,
}

/// Huge pages of which different nodes use different parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HugePageSettings {
    /// What to do about them.
    pub mode: HugePageMode,
    /// Time between two judgements, s.
    pub every_s: f64,
    /// Most bytes to move per second to cure them.
    #[serde(deserialize_with = "some_size")]
    pub budget_bytes_per_s: Option<u64>,
    /// Keep what is split small, where the library that reports objects is in the program and may ask for it.
    pub keep_small: bool,
    /// Split pages again that the kernel has joined, once.
    pub rearm: bool,
    /// Join split pages again when one node uses them for long enough, or when their split made accesses slower.
    pub join: bool,
}

/// What to do about falsely shared huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePageMode {
    /// They are left to the policy.
    #[default]
    Off,
    /// They are found, and nothing is changed.
    Find,
    /// They are split, and their small pages move to their users.
    Cure,
}

impl Default for HugePageSettings {
    fn default() -> Self {
        let budget_bytes_per_s = Some(100 << 20);
        let mode = HugePageMode::default();
        Self { mode, every_s: 10.0, budget_bytes_per_s, keep_small: true, rearm: true, join: true }
    }
}

/// Named ranges of the managed programs' memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegionSettings {
    /// Names besides those that programs give themselves, as `--regions` of other commands has them; default: none.
    pub file: Option<PathBuf>,
    /// By name: `here`, or nodes such as "1" or "0-3", as `nearside place --region` has them.
    pub places: BTreeMap<String, RegionPlace>,
}

/// Grants, which the agent carries out for users of this machine. Needs root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "switches that do not depend on each other")]
pub struct ReserveSettings {
    /// Whether the agent makes grants.
    pub enabled: bool,
    /// The CPUs that grants are made of; default: all.
    pub zone: Option<CpuSet>,
    /// Whether only programs with grants run on the zone's CPUs.
    pub isolate_zone: bool,
    /// CPUs that no grant gets.
    pub keep_back: CpuSet,
    /// The test of guarded controllers.
    pub rule: Rule,
    /// Leave programs without isolation where they are, also in the way of a request.
    pub keep_tenants: bool,
    /// Guard controllers and routes also on machines without a cache directory.
    pub without_directory: bool,
    /// What limits the rest of the machine while a controller is guarded.
    pub throttle: ThrottleSetting,
    /// Control groups whose CPU time is limited then, where `throttle` is that, named from the topmost one.
    pub limit: Vec<String>,
    /// How often what grants draw from memory is counted, where it can be, s; 0 for never. Default: 1.
    pub monitor_s: f64,
    /// What users may have, by name or number.
    pub users: BTreeMap<String, Quota>,
    /// What members of groups may have, by name or number.
    pub groups: BTreeMap<String, Quota>,
}

impl Default for ReserveSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            zone: None,
            isolate_zone: false,
            keep_back: CpuSet::new(),
            rule: Rule::default(),
            keep_tenants: false,
            without_directory: false,
            throttle: ThrottleSetting::default(),
            limit: Vec::new(),
            monitor_s: 1.0,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }
}

/// What limits the rest of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThrottleSetting {
    /// The processor's bandwidth control where it can be used, and CPU time elsewhere.
    #[default]
    Best,
    /// The processor's bandwidth control: by resctrl, or that of the lab's machines.
    Hardware,
    /// CPU time of control groups.
    Duty,
    /// Nothing.
    None,
}

/// Metrics as a file, for `node_exporter`'s textfile collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// The file, ending in `.prom` for `node_exporter`; default: none.
    pub file: Option<PathBuf>,
    /// How often it is written, s.
    pub every_s: f64,
}

/// The decision log: JSON lines that `nearside replay` reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// The file; default: none.
    pub file: Option<PathBuf>,
    /// Size at which the file is renamed to FILE.1, replacing the previous one, and a new file is begun: bytes, or a
    /// text such as "64 MiB".
    #[serde(deserialize_with = "size::deserialize")]
    pub most_bytes: u64,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            policy: PolicyName { memory: placement::MemoryPlacement::Predict, ..PolicyName::default() },
            machine: None,
            round_s: 1.0,
            budget_bytes_per_s: None,
            cpu_limit_percent: 10.0,
            respect_owner: true,
            shared: false,
            kernel_balancing: KernelBalancing::default(),
            managed: ProcessSelection::default(),
            not_managed: ProcessSelection::default(),
            folder: None,
            socket: SocketSettings::default(),
            metrics: MetricsSettings::default(),
            log: LogSettings::default(),
            hugepages: HugePageSettings::default(),
            regions: RegionSettings::default(),
            reserve: ReserveSettings::default(),
            thresholds: Thresholds::default(),
        }
    }
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { file: None, every_s: 15.0 }
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { file: None, most_bytes: 64 << 20 }
    }
}

fn some_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size::deserialize(deserializer).map(Some)
}

/// Why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// Another user could change it, or it cannot be opened.
    #[error("cannot use the configuration {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PrivateFolderError,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// It has mistakes, one per line.
    #[error("{0}")]
    Mistakes(String),
}

impl Configuration {
    /// Reads and checks a configuration file, which only root and the caller may be able to change: it says where the
    /// agent writes. For users other than root, members of their groups are trusted too: there are distributions where
    /// new files may be written to by a group of each user. `missing` reports what it names that does not exist.
    pub fn load(path: &Path, missing: impl FnOnce(&Self) -> Vec<Violation>) -> Result<Self, ConfigurationError> {
        let read = |source| ConfigurationError::Read { path: path.to_owned(), source };
        let trust = if geteuid().is_root() { Trust::Owners } else { Trust::Groups };
        let file = PrivateFolder::existing_file(path, trust)
            .map_err(|source| ConfigurationError::Open { path: path.to_owned(), source })?;
        let bytes = bounded::bytes_of(file, bounded::MOST_BYTES).map_err(read)?;
        let text = String::from_utf8(bytes).map_err(|error| not_utf8(&error, path))?;
        Self::read(&text, path, missing)
    }

    /// Parses and checks a configuration. `file_name` is used in errors only.
    pub fn from_toml(text: &str, file_name: &Path) -> Result<Self, ConfigurationError> {
        Self::read(text, file_name, |_| Vec::new())
    }

    /// Like [`from_toml`](Self::from_toml); `missing` reports what it names that does not exist.
    pub fn read(
        text: &str,
        file_name: &Path,
        missing: impl FnOnce(&Self) -> Vec<Violation>,
    ) -> Result<Self, ConfigurationError> {
        let check = |read: &Self| [read.violations(), missing(read)].concat();
        read_checked(text, file_name, check).map_err(|mistakes| {
            let lines: Vec<String> = mistakes.into_iter().map(|mistake| with_key(mistake, text).to_string()).collect();
            ConfigurationError::Mistakes(lines.join("\n"))
        })
    }

    fn violations(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (name, least) in self.thresholds.violations() {
            let rule = format!("must be a number of at least {least}");
            found.push(Violation { field: format!("thresholds.{name}"), rule });
        }
        let mut must = |field: &str, holds: bool, rule: &str| {
            if !holds {
                found.push(Violation { field: field.to_owned(), rule: rule.to_owned() });
            }
        };
        must("round_s", (0.01..=3600.0).contains(&self.round_s), "must be from 0.01 to 3600 s");
        must("budget_bytes_per_s", self.budget_bytes_per_s != Some(0), "must be above 0; omit it for no limit");
        let limit = self.cpu_limit_percent;
        must("cpu_limit_percent", limit > 0.0 && limit <= 100.0, "must be above 0 and at most 100 % of one CPU");
        let hugepages = &self.hugepages;
        must("hugepages.every_s", (0.1..=3600.0).contains(&hugepages.every_s), "must be from 0.1 to 3600 s");
        let budget = hugepages.budget_bytes_per_s;
        must("hugepages.budget_bytes_per_s", budget != Some(0), "must be above 0");
        let is_period = |s: f64| s == 0.0 || (0.01..=3600.0).contains(&s);
        must("reserve.monitor_s", is_period(self.reserve.monitor_s), "must be 0, or from 0.01 to 3600 s");
        let has_zone = self.reserve.zone.is_some() || !self.reserve.isolate_zone;
        must("reserve.isolate_zone", has_zone, "needs the CPUs of the zone: reserve.zone");
        must("metrics.every_s", (1.0..=86400.0).contains(&self.metrics.every_s), "must be from 1 to 86400 s");
        must("log.most_bytes", self.log.most_bytes >= 1 << 20, "must be at least 1 MiB");
        // Relative paths would be ambiguous: a service has no obvious working directory.
        let paths = [
            ("machine", &self.machine),
            ("folder", &self.folder),
            ("socket.path", &self.socket.path),
            ("metrics.file", &self.metrics.file),
            ("log.file", &self.log.file),
            ("regions.file", &self.regions.file),
        ];
        for (field, path) in paths {
            let is_absolute = path.as_ref().is_none_or(|path| path.is_absolute());
            must(field, is_absolute, "must be an absolute path");
        }
        let groups = [
            ("managed.cgroups", &self.managed.cgroups),
            ("not_managed.cgroups", &self.not_managed.cgroups),
            ("reserve.limit", &self.reserve.limit),
        ];
        for (field, groups) in groups {
            let absolute = groups.iter().all(|group| group.starts_with('/'));
            must(field, absolute, "must be a path from the root of the hierarchy, such as /batch");
        }
        found
    }
}

fn not_utf8(error: &FromUtf8Error, file: &Path) -> ConfigurationError {
    let understood = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
    let line = 1 + understood.filter(|&&byte| byte == b'\n').count();
    ConfigurationError::Mistakes(format!("{}:{line}: this is not UTF-8 text", file.display()))
}

/// For duplicate keys and tables the parser reports only the line; the key is added.
fn with_key(mistake: Mistake, text: &str) -> Mistake {
    let line = text.lines().nth(mistake.line.saturating_sub(1)).unwrap_or_default();
    let key = line.split('=').next().unwrap_or_default().trim().trim_matches(['[', ']']);
    let has_key = !mistake.field.is_empty() || mistake.rule != "duplicate key";
    if has_key { mistake } else { Mistake { field: key.to_owned(), ..mistake } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn read(text: &str) -> Result<Configuration, String> {
        Configuration::from_toml(text, Path::new("/etc/nearside.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn everything_may_be_left_out() {
        assert_eq!(read("").unwrap(), Configuration::default());
        assert_eq!(Configuration::default().policy.to_string(), "predict");
        let told = toml::to_string(&Configuration::default()).unwrap();
        assert_eq!(read(&told).unwrap(), Configuration::default());
    }

    #[test]
    fn the_file_that_is_installed_says_what_holds_without_it() {
        let text = include_str!("../../../packaging/nearside.toml");
        assert_eq!(read(text).unwrap(), Configuration::default());
        // Every commented-out line must be valid when uncommented.
        let lines =
            text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
        let all = read(&lines.collect::<Vec<_>>().join("\n")).unwrap();
        assert!(all.budget_bytes_per_s == Some(400 << 20) && all.log.file.is_some() && all.socket.group.is_some());
    }

    /// Keys of the configuration that a file lacks. Those of the thresholds are in docs/place.md.
    fn missing(all: &Value, file: &Value, table: &str) -> BTreeSet<String> {
        let keys =
            all.as_object().into_iter().flatten().map(|(key, all)| (format!("{table}{key}"), all, file.get(key)));
        keys.filter(|(key, ..)| key != "thresholds")
            .flat_map(|(key, all, file)| match file {
                Some(file) => missing(all, file, &format!("{key}.")),
                None => [key].into(),
            })
            .collect()
    }

    /// Serialised as JSON, the configuration has all its keys, also those without a value.
    #[test]
    fn the_file_that_is_installed_has_every_key() {
        let all = serde_json::to_value(Configuration::default()).unwrap();
        let text = include_str!("../../../packaging/nearside.toml");
        let lines =
            text.lines().map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
        let file = |lines: Vec<&str>| toml::from_str::<Value>(&lines.join("\n")).unwrap();
        assert_eq!(missing(&all, &file(lines.clone().collect()), ""), BTreeSet::new());
        let less = lines.filter(|line| !line.starts_with("shared = ") && !line.starts_with("keep_tenants = "));
        let expected = ["reserve.keep_tenants", "shared"].map(str::to_owned);
        assert_eq!(missing(&all, &file(less.collect()), ""), expected.into());
    }

    #[test]
    fn what_is_written_is_meant() {
        let told = read(
            "policy = \"balanced+local\"\nround_s = 0.5\nkernel_balancing = \"keep\"\n[managed]\nusers = [\"postgres\"]\n\
             [log]\nfile = \"/var/log/nearside/decisions.jsonl\"\nmost_bytes = \"2 MiB\"\n[thresholds]\ncredit_rounds = 2.0\n",
        )
        .unwrap();
        assert_eq!((told.policy.to_string().as_str(), told.round_s), ("balanced+local", 0.5));
        assert_eq!((told.kernel_balancing, told.log.most_bytes), (KernelBalancing::Keep, 2 << 20));
        assert_eq!(
            (told.managed.users, told.thresholds.credit_rounds.to_bits()),
            (vec!["postgres".to_owned()], 2.0_f64.to_bits())
        );
    }

    #[test]
    fn mistakes_have_file_line_and_suggestion() {
        let wrong = |text: &str| read(text).unwrap_err();
        let error = wrong("round_s = 1.0\npolicie = \"auto\"\n");
        assert!(
            error.starts_with(
                "/etc/nearside.toml:2: policie: unknown field `policie` (did you mean `policy`?), expected"
            ),
            "{error}"
        );
        let error = wrong("[managed]\nuser = [\"a\"]\n");
        assert!(
            error.starts_with("/etc/nearside.toml:2: managed.user: unknown field `user` (did you mean `users`?)"),
            "{error}"
        );
        let error = wrong("policy = \"carefour\"\n");
        assert!(error.contains(":1: policy: there is no policy `carefour` (did you mean `carrefour`?)"), "{error}");
        let error = wrong("kernel_balancing = \"of\"\n");
        assert!(error.contains("unknown variant `of` (did you mean `off`?)"), "{error}");
        assert_eq!(
            wrong(
                "round_s = 0\nbudget_bytes_per_s = 0\ncpu_limit_percent = 200\n[log]\nfile = \"x\"\nmost_bytes = 7\n"
            )
            .lines()
            .collect::<Vec<_>>(),
            [
                "/etc/nearside.toml:1: round_s: must be from 0.01 to 3600 s",
                "/etc/nearside.toml:2: budget_bytes_per_s: must be above 0; omit it for no limit",
                "/etc/nearside.toml:3: cpu_limit_percent: must be above 0 and at most 100 % of one CPU",
                "/etc/nearside.toml:6: log.most_bytes: must be at least 1 MiB",
                "/etc/nearside.toml:5: log.file: must be an absolute path",
            ]
        );
        assert!(wrong("[managed]\ncgroups = [\"batch\"]\n").contains(":2: managed.cgroups: must be a path"));
        assert!(wrong("[reserve]\nlimit = [\"batch\"]\n").contains(":2: reserve.limit: must be a path"));
        assert!(wrong("[regions]\nfile = \"x\"\n").contains(":2: regions.file: must be an absolute path"));
        assert!(wrong("[reserve]\nzone = \"4-\"\n").contains(":2: reserve.zone: "));
        assert!(wrong("[reserve]\nisolate_zone = true\n").contains(":2: reserve.isolate_zone: needs the CPUs"));
        assert!(wrong("[reserve]\nmonitor_s = -1\n").contains(":2: reserve.monitor_s: must be 0, or from 0.01"));
        assert!(wrong("[reserve.users.a]\ngrants = -1\ncores = 1\n").contains("reserve.users.a"));
        assert!(wrong("[hugepages]\nmode = \"split\"\n").contains(":2: hugepages.mode: unknown variant `split`"));
        assert!(wrong("[hugepages]\nevery_s = 0\n").contains(":2: hugepages.every_s: must be from 0.1 to 3600 s"));
        assert!(wrong("[hugepages]\nbudget_bytes_per_s = 0\n").contains("must be above 0"));
        assert!(wrong("round_s = nan\n").contains("must be from"));
        assert!(wrong("= 7").starts_with("/etc/nearside.toml:1: "));
        assert_eq!(wrong("round_s = 1.0\nround_s = 2.0\n"), "/etc/nearside.toml:2: round_s: duplicate key");
        assert_eq!(wrong("[log]\n\n[log]\n"), "/etc/nearside.toml:3: log: duplicate key");
        let load = |path: &Path| machine::chain(&Configuration::load(path, |_| Vec::new()).unwrap_err());
        let missing = load(Path::new("/nowhere.toml"));
        assert!(missing.starts_with("cannot use the configuration /nowhere.toml: "), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"round_s = 1.0\n# \xff\n").unwrap();
        assert_eq!(load(file.path()), format!("{}:2: this is not UTF-8 text", file.path().display()));
    }

    #[test]
    fn thresholds_are_numbers_from_0_up() {
        let wrong = |text: &str| read(&format!("[thresholds]\n{text}\n")).unwrap_err();
        let told = "/etc/nearside.toml:2: thresholds.credit_rounds: must be a number of at least 0";
        assert_eq!(["nan", "inf", "-1.0"].map(|value| wrong(&format!("credit_rounds = {value}"))), [told; 3]);
        let told = "/etc/nearside.toml:2: thresholds.batch_pages: must be a number of at least 1";
        assert_eq!(wrong("batch_pages = 0"), told);
        assert!(read("[thresholds]\npage_moves_max = 0\ncredit_rounds = 1e300\n").is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = read(&text);
        }
    }
}
