//! Named ranges of programs that have a place of their own, whatever the policy decides.

use linux::{Mapping, NamedRange, mapped_parts};
use machine::NodeSet;
use observe::Regions;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Where a named range belongs; as text, `here` or nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RegionPlace {
    /// Where it is.
    Here,
    /// On these nodes: all of it on one, or its pages dealt to several, by address.
    On(NodeSet),
}

impl TryFrom<String> for RegionPlace {
    type Error = String;

    fn try_from(text: String) -> Result<RegionPlace, String> {
        if text == "here" {
            return Ok(RegionPlace::Here);
        }
        match text.parse::<NodeSet>() {
            Ok(nodes) if !nodes.is_empty() => Ok(RegionPlace::On(nodes)),
            _ => Err(format!("`{text}` is neither `here` nor nodes, such as \"0-3\"")),
        }
    }
}

impl From<RegionPlace> for String {
    fn from(place: RegionPlace) -> String {
        match place {
            RegionPlace::Here => "here".to_owned(),
            RegionPlace::On(nodes) => nodes.to_string(),
        }
    }
}

/// The named ranges with a place of their own.
#[derive(Clone, Debug, Default)]
pub struct RegionOrders {
    regions: Regions,
    /// By name. All ranges of a name are placed.
    places: BTreeMap<String, RegionPlace>,
    /// Names that no process has had.
    unseen: BTreeSet<String>,
}

/// A range that has a place: whole pages, all of them mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderedRange {
    pub range: Range<u64>,
    pub place: RegionPlace,
}

impl RegionOrders {
    /// None yet, of these named ranges.
    pub fn new(regions: Regions) -> Self {
        Self { regions, ..Self::default() }
    }

    /// Gives all ranges of this name a place. Returns whether the name had none.
    pub fn add(&mut self, name: &str, place: RegionPlace) -> bool {
        self.unseen.insert(name.to_owned());
        self.places.insert(name.to_owned(), place).is_none()
    }

    /// Whether no range has a place.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A sentence about the names that no process has had.
    pub(crate) fn unseen(&self) -> Option<String> {
        let names: Vec<&str> = self.unseen.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| {
            format!("no process had a range named {}: `nearside pages PID NAME` looks for one", names.join(", "))
        })
    }

    /// The ranges of a process with these mappings, ascending, without overlaps: what two have in common, as the page at
    /// their border, is the first one's.
    pub(crate) fn ranges(&mut self, mappings: &[Mapping]) -> Vec<OrderedRange> {
        if self.is_empty() {
            return Vec::new();
        }
        let named = self.regions.named(mappings);
        for one in &named {
            self.unseen.remove(&one.name);
        }
        let ordered = |named: &NamedRange| Some((named.pages(), self.places.get(&named.name)?.clone()));
        let mut wanted: Vec<(Range<u64>, RegionPlace)> = named.iter().filter_map(ordered).collect();
        wanted.sort_by_key(|(pages, _)| pages.start);
        let (mut found, mut end) = (Vec::new(), 0);
        for (pages, place) in wanted {
            let rest = pages.start.max(end)..pages.end;
            end = end.max(pages.end);
            let parts = mapped_parts(mappings, &rest);
            found.extend(parts.map(|range| OrderedRange { range, place: place.clone() }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::parse_maps;

    #[test]
    fn neighbours_share_no_page() {
        let maps = "1000-90000 rw-p 0 0:0 0\n\
                    a0000-a1000 rw-s 0 0:0 9 /memfd:nearside-region 1000-2800 weights (deleted)\n\
                    b0000-b1000 rw-s 0 0:0 9 /memfd:nearside-region 2800-80000 mesh (deleted)\n";
        let mut orders = RegionOrders::new(Regions::default());
        orders.add("weights", RegionPlace::Here);
        orders.add("mesh", RegionPlace::Here);
        let ranges: Vec<_> = orders.ranges(&parse_maps(maps).unwrap()).into_iter().map(|one| one.range).collect();
        assert_eq!(ranges, [0x1000..0x3000, 0x3000..0x80000]);
    }

    #[test]
    fn ranges_are_whole_pages_of_mapped_memory() {
        let maps = "10000-14000 rw-p 0 0:0 0\n16000-18000 rw-p 0 0:0 0 [anon:weights]\n\
                    20000-21000 rw-s 0 0:0 9 /memfd:nearside-region 11008-ffffffffffffffff table (deleted)\n\
                    30000-31000 rw-s 0 0:0 9 /memfd:nearside-region 10000-10008 other (deleted)\n";
        let mappings = parse_maps(maps).unwrap();
        let on: NodeSet = "0-1".parse().unwrap();
        let mut orders = RegionOrders::new(Regions::default());
        assert_eq!(orders.ranges(&mappings), []);
        assert!(orders.add("table", RegionPlace::On(on.clone())) && orders.add("weights", RegionPlace::Here));
        assert!(orders.add("none", RegionPlace::Here) && !orders.add("none", RegionPlace::Here));
        let found = orders.ranges(&mappings);
        let first = OrderedRange { range: 0x11000..0x14000, place: RegionPlace::On(on) };
        assert_eq!(found.first(), Some(&first));
        // `weights` is within the table, which comes first; the mapping after both is the table's too.
        assert!(found.iter().all(|ordered| ordered.place != RegionPlace::Here), "{found:x?}");
        assert!(found.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        assert!(orders.unseen().unwrap().contains("named none:"));
    }
}
