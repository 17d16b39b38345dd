//! A PMU as the kernel describes it: its number, the encoding of its events, and its CPUs.

use linux::CpuSet;
use machine::bounded;
use perf_event::Builder;
use perf_event::events::Software;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The sysfs folder of PMUs.
pub(super) const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pmu {
    /// Its name, such as `cpu` or `ibs_op`.
    pub name: String,
    number: u32,
    /// The CPUs that have it; `None` for all.
    pub cpus: Option<CpuSet>,
    formats: BTreeMap<String, Format>,
    events: BTreeMap<String, String>,
    caps: BTreeMap<String, String>,
}

/// An encoded event: the PMU's number, and `config` to `config3` of `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub pmu: u32,
    pub words: [u64; 4],
}

impl Config {
    /// Returns a builder for the event, without a target.
    pub fn builder(self) -> Builder<'static> {
        let mut builder = Builder::new(Software::DUMMY);
        let attributes = builder.attrs_mut();
        let [first, second, third, fourth] = self.words;
        (attributes.type_, attributes.config) = (self.pmu, first);
        (attributes.config1, attributes.config2, attributes.config3) = (second, third, fourth);
        builder
    }
}

/// The bits of a term: a word, and its bits from the lowest on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Format {
    word: usize,
    bits: Vec<u32>,
}

impl Pmu {
    /// Reads the PMUs in this folder whose names are `name` and a number, ordered by number.
    pub fn numbered(devices: &Path, name: &str) -> Vec<Self> {
        let entries = fs::read_dir(devices).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(name)?.parse().ok());
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers.iter().filter_map(|number| Self::read(devices, &format!("{name}{number}"))).collect()
    }

    /// Reads a PMU in this folder. `None` if there is none of this name.
    pub fn read(devices: &Path, name: &str) -> Option<Self> {
        let folder = devices.join(name);
        let text = |path: &Path| bounded::text(path).ok().map(|text| text.trim().to_owned());
        let files = |below: &str| -> Vec<(String, String)> {
            let entries = fs::read_dir(folder.join(below)).into_iter().flatten().flatten();
            entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, text(&entry.path())?))).collect()
        };
        let formats = files("format").into_iter().filter_map(|(term, text)| Some((term, Format::parse(&text)?)));
        Some(Self {
            name: name.to_owned(),
            number: text(&folder.join("type"))?.parse().ok()?,
            cpus: ["cpus", "cpumask"].iter().find_map(|name| text(&folder.join(name))?.parse().ok()),
            formats: formats.collect(),
            events: files("events").into_iter().collect(),
            caps: files("caps").into_iter().collect(),
        })
    }

    /// The terms of an event that the kernel names: `event=0xcd,umask=0x1,ldlat=3`.
    pub fn event(&self, name: &str) -> Option<&str> {
        self.events.get(name).map(String::as_str)
    }

    /// A numeric capability from `caps/`.
    pub fn cap(&self, name: &str) -> Option<u64> {
        number(self.caps.get(name)?)
    }

    /// Whether the PMU has this term.
    pub fn knows(&self, term: &str) -> bool {
        self.formats.contains_key(term)
    }

    /// Encodes an event. `None` if the PMU lacks a term or a value does not fit. If a term is repeated, the last one
    /// wins.
    pub fn config(&self, terms: &str) -> Option<Config> {
        let mut values = BTreeMap::new();
        for term in terms.split(',').filter(|term| !term.is_empty()) {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            values.insert(name.trim(), number(value.trim())?);
        }
        let mut config = Config { pmu: self.number, words: [0; 4] };
        for (name, value) in values {
            self.formats.get(name)?.put(value, &mut config.words)?;
        }
        Some(config)
    }
}

impl Format {
    /// Parses `config1:0-15` or `config:0-7,32-35`.
    fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.split_once(':')?;
        let word = ["config", "config1", "config2", "config3"].iter().position(|name| *name == word)?;
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if last > 63 {
                return None;
            }
            bits.extend(first..=last);
        }
        Some(Self { word, bits })
    }

    fn put(&self, value: u64, words: &mut [u64; 4]) -> Option<()> {
        let fits = self.bits.len() >= 64 || value >> self.bits.len() == 0;
        let word = words.get_mut(self.word).filter(|_| fits)?;
        for (from, to) in (0..64).zip(&self.bits) {
            *word = *word & !(1 << to) | (value >> from & 1) << to;
        }
        Some(())
    }
}

/// A number as sysfs and procfs have them: decimal, or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use tempfile::TempDir;

    /// A folder of PMUs, from pairs of `PMU/FILE` and text.
    pub fn devices(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    #[test]
    fn an_event_is_written_as_its_formats_say() {
        let root = devices(&[
            ("cpu/type", "4"),
            ("cpu/cpus", "0-3"),
            ("cpu/format/event", "config:0-7"),
            ("cpu/format/umask", "config:8-15,40-41"),
            ("cpu/format/ldlat", "config1:0-15"),
            ("cpu/format/odd", "config9:0-15"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
        ]);
        let pmu = Pmu::read(root.path(), "cpu").unwrap();
        let terms = pmu.event("mem-loads").unwrap();
        assert_eq!(pmu.config(terms), Some(Config { pmu: 4, words: [0x1cd, 3, 0, 0] }));
        let more = pmu.config(&format!("{terms},ldlat=30")).unwrap();
        assert_eq!((more.words[1], pmu.cpus.clone()), (30, "0-3".parse().ok()));
        assert_eq!(pmu.config("umask=0x3ff").unwrap().words[0], 0xff00 | 3 << 40);
        assert_eq!(pmu.config("event").unwrap().words[0], 1);
        let not = ["event=256", "odd=1", "umask=x", "nothing=0", "umask=0x400"];
        assert_eq!(not.map(|terms| pmu.config(terms)), [None; 5]);
        assert_eq!(Pmu::read(root.path(), "ibs_op"), None);
        assert!(pmu.knows("ldlat") && !pmu.knows("odd"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_format_or_not(text in "(config[0-9]?:)?([0-9]{0,11}[-,]?){0,5}|.*", value: u64) {
            if let Some(format) = Format::parse(&text) {
                let _ = format.put(value, &mut [0; 4]);
            }
        }

        #[test]
        fn what_is_put_where_is_found_there(value: u16, first in 0..40_u32, gap in 0..8_u32) {
            let next = first + 7 + gap;
            let text = format!("config2:{first}-{},{next}-{}", first + 6, next + 8);
            let mut words = [0; 4];
            Format::parse(&text).unwrap().put(value.into(), &mut words).unwrap();
            let (low, high) = (words[2] >> first & 0x7f, words[2] >> next & 0x1ff);
            prop_assert_eq!(low | high << 7, u64::from(value));
            prop_assert_eq!(words[2].count_ones(), value.count_ones());
        }
    }
}
