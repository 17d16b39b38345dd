//! `schemata`: what a group of resctrl may take of each cache and memory controller.

use std::collections::BTreeMap;

/// The values of a `schemata` file, by resource (`L3`, `L3CODE`, `MB`) and domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata(BTreeMap<String, BTreeMap<u32, u64>>);

/// Parses a `schemata` file. The kernel aligns names and values with blanks. Lines and values of another form are left
/// out: newer kernels have resources that are not known here.
pub fn parse_schemata(text: &str) -> Schemata {
    let mut schemata = Schemata::default();
    for (name, domains) in text.lines().filter_map(|line| line.split_once(':')) {
        let name = name.trim();
        let values = schemata.0.entry(name.to_owned()).or_default();
        for (domain, value) in domains.split(';').filter_map(|domain| domain.split_once('=')) {
            let value = number(value.trim(), radix(name));
            if let Some((domain, value)) = number(domain.trim(), 10).zip(value) {
                values.insert(domain, value);
            }
        }
    }
    schemata
}

/// The line that gives a domain of a resource a value.
pub(super) fn schemata_line(resource: &str, domain: u32, value: u64) -> String {
    // The kernel takes no line without its end.
    if radix(resource) == 16 {
        format!("{resource}:{domain}={value:x}\n")
    } else {
        format!("{resource}:{domain}={value}\n")
    }
}

/// Masks of cache ways are hexadecimal, bandwidths decimal.
fn radix(resource: &str) -> u32 {
    if resource.starts_with('L') { 16 } else { 10 }
}

/// A number in digits alone.
pub(super) fn number<T: TryFrom<u64>>(text: &str, radix: u32) -> Option<T> {
    let is_digits = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
    is_digits.then(|| u64::from_str_radix(text, radix).ok()?.try_into().ok())?
}

impl Schemata {
    /// The value of a domain.
    pub fn value(&self, resource: &str, domain: u32) -> Option<u64> {
        self.0.get(resource)?.get(&domain).copied()
    }

    /// The domains of a resource with their values.
    pub fn domains(&self, resource: &str) -> impl Iterator<Item = (u32, u64)> {
        self.0.get(resource).into_iter().flatten().map(|(domain, value)| (*domain, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_files_are_read() {
        let amd = parse_schemata("  SMBA:0=2048;1=2048\n    MB:0=2048;1=  16\n    L3:0=ffff;1=00ff\n");
        assert_eq!((amd.value("MB", 1), amd.value("L3", 1), amd.value("L3", 2)), (Some(16), Some(0xff), None));
        assert_eq!(amd.domains("MB").collect::<Vec<_>>(), [(0, 2048), (1, 16)]);
        let cdp = parse_schemata("L3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=3\n");
        assert_eq!((cdp.value("L3DATA", 1), cdp.value("L3CODE", 1)), (Some(0x7ff), Some(3)));
        let odd = parse_schemata("MB:0=-1;1=99999999999999999999999;2=5;x=6\nL3\n:\nL3:0=0x7;4294967296=1");
        assert_eq!(odd.domains("MB").collect::<Vec<_>>(), [(2, 5)]);
        assert_eq!(odd.domains("L3").count(), 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([A-Z0-9 ]{0,6}:([0-9]{0,12}=[ 0-9a-fx-]{0,22};?){0,4}\n|.{0,30}\n){0,6}") {
            let read = parse_schemata(&text);
            for resource in ["L3", "MB"] {
                prop_assert!(read.domains(resource).count() <= text.len());
            }
        }

        #[test]
        fn what_is_written_is_read(domain: u32, value: u64) {
            for resource in ["L3", "L3CODE", "MB"] {
                let read = parse_schemata(&schemata_line(resource, domain, value));
                prop_assert_eq!(read.value(resource, domain), Some(value));
            }
        }
    }
}
