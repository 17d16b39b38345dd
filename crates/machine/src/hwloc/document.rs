//! Parses hwloc XML into a flat list of its objects, distances and memory attributes. Independent of what a machine is.

use super::HwlocError;
use super::bitmap::Bitmap;
use crate::description::CacheKind;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use std::borrow::Cow;
use std::str::FromStr;

/// Deeper than any topology that hwloc writes (it has 20 types of objects, and nested bridges).
const MAX_DEPTH: usize = 64;
/// More attributes than hwloc ever writes on one element. The check for repeated attributes is quadratic.
const MAX_ATTRIBUTES: usize = 64;

/// A topology as in its XML.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Parents before their children.
    pub objects: Vec<Object>,
    /// Matrices between objects.
    pub distances: Vec<Distances>,
    /// Values of memory attributes.
    pub memory_attributes: Vec<MemoryAttribute>,
    /// The `name` of the machine, or else the product name from the firmware.
    pub name: Option<String>,
    /// Whether the name is the machine's own.
    named_by_object: bool,
}

/// One `<object>`.
#[derive(Debug)]
pub(super) struct Object {
    /// Offset in the text after its start tag.
    pub at: usize,
    /// Index of its parent object.
    pub parent: Option<usize>,
    pub kind: Kind,
    pub os_index: Option<u32>,
    pub gp_index: Option<u64>,
    /// For NUMA nodes only: other objects have the CPUs of the PUs in them.
    pub cpuset: Option<Bitmap>,
    /// For PUs only: their nodes, also those that a control group or administrator forbids.
    pub nodeset: Option<Bitmap>,
    pub local_memory: u64,
}

/// The kind of an object, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Machine,
    Package,
    NumaNode,
    Cache(Shape),
    Core,
    Pu,
    /// Groups, dies, devices and other objects that do not affect the machine.
    Other,
}

/// The shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    pub level: u8,
    pub kind: CacheKind,
    pub size_bytes: u64,
    /// -1: fully associative; 0: unknown.
    pub ways: i64,
    pub line_bytes: u32,
}

/// One `<distances2>`.
#[derive(Debug)]
pub(super) struct Distances {
    pub at: usize,
    pub object_type: String,
    pub name: Option<String>,
    pub kind: u64,
    pub count: usize,
    /// Whether the indexes are hwloc's own (`gp`) rather than the system's (`os`).
    pub by_gp_index: bool,
    pub indexes: Vec<u64>,
    pub values: Vec<u64>,
}

/// One `<memattr_value>`.
#[derive(Debug)]
pub(super) struct MemoryAttribute {
    /// `Latency` (ns), `Bandwidth` (MiB/s) or another.
    pub name: String,
    pub target_gp_index: u64,
    pub value: u64,
    pub initiator: Option<Initiator>,
}

/// Where a memory attribute was measured from.
#[derive(Debug)]
pub(super) enum Initiator {
    Cpus(Bitmap),
    /// hwloc's index of an object.
    Object(u64),
}

/// An element whose end tag is still to come.
enum Open {
    Topology,
    Object(usize),
    Distances,
    Indexes,
    Values,
    MemoryAttribute(String),
    Ignored,
}

impl Document {
    pub fn parse(text: &str) -> Result<Self, HwlocError> {
        let mut reader = Reader::from_str(text);
        let mut document = Self::default();
        let mut open: Vec<Open> = Vec::new();
        let mut complete = false;
        loop {
            let event = reader.read_event();
            let at = reader.buffer_position() as usize;
            match event.map_err(|error| failed(text, reader.error_position() as usize, "XML", error.to_string()))? {
                Event::Start(start) => {
                    if open.len() >= MAX_DEPTH {
                        let rule = format!("is nested more than {MAX_DEPTH} deep");
                        return Err(failed(text, at, start.name().as_ref(), rule));
                    }
                    let element = document.begin(text, at, &start, open.last(), complete)?;
                    open.push(element);
                }
                Event::Empty(start) => {
                    complete |= matches!(document.begin(text, at, &start, open.last(), complete)?, Open::Topology);
                }
                Event::End(_) => complete |= matches!(open.pop(), Some(Open::Topology)),
                Event::Text(content) => document.numbers(text, at, open.last(), &content.xml10_content())?,
                Event::DocType(declaration) if declaration.xml10_content().contains('[') => {
                    return Err(failed(
                        text,
                        at,
                        "DOCTYPE",
                        "must not define anything: hwloc's names hwloc2.dtd and no more",
                    ));
                }
                Event::Eof => break,
                _ => {}
            }
        }
        let rule = "ends before </topology>: the file is cut short, or not hwloc XML";
        if complete { Ok(document) } else { Err(failed(text, text.len(), "topology", rule)) }
    }

    /// Handles a start tag.
    fn begin(
        &mut self,
        text: &str,
        at: usize,
        start: &BytesStart,
        parent: Option<&Open>,
        complete: bool,
    ) -> Result<Open, HwlocError> {
        let name = start.name();
        let tag = Tag { text, at, element: name.as_ref(), attributes: attributes(text, at, start)? };
        match (tag.element, parent) {
            ("topology", None) if !complete => tag.check_version().map(|()| Open::Topology),
            (_, None) => Err(tag.failed("the only element outside others must be one <topology>")),
            ("object", Some(Open::Topology | Open::Object(_))) => {
                let parent = if let Some(Open::Object(parent)) = parent { Some(*parent) } else { None };
                let object = tag.object(parent)?;
                if let (Kind::Machine, Some(name)) = (&object.kind, tag.get("name")) {
                    self.name = Some(name.to_owned());
                    self.named_by_object = true;
                }
                self.objects.push(object);
                Ok(Open::Object(self.objects.len() - 1))
            }
            ("info", Some(Open::Object(0))) => {
                if tag.get("name") == Some("DMIProductName") && !self.named_by_object {
                    self.name = tag.get("value").map(str::to_owned);
                }
                Ok(Open::Ignored)
            }
            ("distances2", Some(Open::Topology)) => {
                self.distances.push(tag.distances()?);
                Ok(Open::Distances)
            }
            ("indexes", Some(Open::Distances)) => Ok(Open::Indexes),
            ("u64values", Some(Open::Distances)) => Ok(Open::Values),
            ("memattr", Some(Open::Topology)) => Ok(Open::MemoryAttribute(tag.required::<String>("name")?)),
            ("memattr_value", Some(Open::MemoryAttribute(name))) => {
                self.memory_attributes.extend(tag.memory_attribute(name)?);
                Ok(Open::Ignored)
            }
            (_, Some(_)) => Ok(Open::Ignored),
        }
    }

    /// Handles the numbers between tags.
    fn numbers(&mut self, text: &str, at: usize, within: Option<&Open>, content: &str) -> Result<(), HwlocError> {
        let list = match (within, self.distances.last_mut()) {
            (Some(Open::Indexes), Some(distances)) => &mut distances.indexes,
            (Some(Open::Values), Some(distances)) => &mut distances.values,
            _ => return Ok(()),
        };
        for word in content.split_ascii_whitespace() {
            list.push(
                word.parse()
                    .map_err(|_| failed(text, at, "distances2", format!("`{}` is not a number", short(word))))?,
            );
        }
        Ok(())
    }
}

/// A start tag with its attributes and its position.
struct Tag<'a> {
    text: &'a str,
    at: usize,
    element: &'a str,
    attributes: Vec<(&'a str, Cow<'a, str>)>,
}

impl Tag<'_> {
    fn failed(&self, rule: impl Into<String>) -> HwlocError {
        failed(self.text, self.at, self.element, rule)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>, HwlocError> {
        let value = self.get(name).map(|value| {
            value
                .parse()
                .map_err(|_| self.failed(format!("{name} is `{}`, which is not a number in range", short(value))))
        });
        value.transpose()
    }

    fn required<T: FromStr>(&self, name: &str) -> Result<T, HwlocError> {
        self.optional(name)?.ok_or_else(|| self.failed(format!("has no {name}")))
    }

    fn bitmap(&self, name: &str) -> Result<Option<Bitmap>, HwlocError> {
        let parsed =
            self.get(name).map(|value| Bitmap::parse(value).map_err(|rule| self.failed(format!("{name}: {rule}"))));
        parsed.transpose()
    }

    /// Versions 2 and 3 have the same objects, distances and memory attributes. Version 3 names objects a second time
    /// (`id`), and moves what hwloc says of the whole topology from the machine's object to the topology itself.
    fn check_version(&self) -> Result<(), HwlocError> {
        match self.get("version") {
            Some(version) if matches!(version.split('.').next(), Some("2" | "3")) => Ok(()),
            Some(version) => Err(self.failed(format!(
                "is of version {}, nearside reads versions 2 and 3: export it with `lstopo --export-xml-flags v2`",
                short(version)
            ))),
            None => Err(self.failed(
                "has no version, as hwloc 1.x writes it; nearside reads versions 2 and 3: convert it with hwloc 2's `lstopo -i OLD.xml NEW.xml`",
            )),
        }
    }

    fn object(&self, parent: Option<usize>) -> Result<Object, HwlocError> {
        let kind = match self.required::<String>("type")?.as_str() {
            "Machine" => Kind::Machine,
            "Package" => Kind::Package,
            "NUMANode" => Kind::NumaNode,
            "Core" => Kind::Core,
            "PU" => Kind::Pu,
            name => match cache_type(name) {
                Some((level, instructions)) => Kind::Cache(self.shape(level, instructions)?),
                None => Kind::Other,
            },
        };
        let cpuset = if kind == Kind::NumaNode { self.bitmap("cpuset")? } else { None };
        let nodeset = if kind == Kind::Pu { self.bitmap("complete_nodeset")? } else { None };
        Ok(Object {
            at: self.at,
            parent,
            kind,
            os_index: self.optional("os_index")?,
            gp_index: self.optional("gp_index")?,
            cpuset,
            nodeset,
            local_memory: self.optional("local_memory")?.unwrap_or(0),
        })
    }

    fn shape(&self, level: u8, instructions: bool) -> Result<Shape, HwlocError> {
        let kind = match (instructions, self.get("cache_type")) {
            (true, _) => CacheKind::Instruction,
            (false, Some("1")) => CacheKind::Data,
            (false, _) => CacheKind::Unified,
        };
        Ok(Shape {
            level,
            kind,
            size_bytes: self.optional("cache_size")?.unwrap_or(0),
            ways: self.optional("cache_associativity")?.unwrap_or(0),
            line_bytes: self.optional("cache_linesize")?.unwrap_or(0),
        })
    }

    fn distances(&self) -> Result<Distances, HwlocError> {
        Ok(Distances {
            at: self.at,
            object_type: self.required("type")?,
            name: self.optional("name")?,
            kind: self.required("kind")?,
            count: self.required("nbobjs")?,
            by_gp_index: self.get("indexing") == Some("gp"),
            indexes: Vec::new(),
            values: Vec::new(),
        })
    }

    fn memory_attribute(&self, name: &str) -> Result<Option<MemoryAttribute>, HwlocError> {
        if self.get("target_obj_type") != Some("NUMANode") {
            return Ok(None);
        }
        let object = self.optional("initiator_obj_gp_index")?.map(Initiator::Object);
        Ok(Some(MemoryAttribute {
            name: name.to_owned(),
            target_gp_index: self.required("target_obj_gp_index")?,
            value: self.required("value")?,
            initiator: self.bitmap("initiator_cpuset")?.map(Initiator::Cpus).or(object),
        }))
    }
}

/// Parses `L3Cache`, `L1iCache`: the level, and whether it holds instructions only.
fn cache_type(name: &str) -> Option<(u8, bool)> {
    let level = name.strip_prefix('L')?.strip_suffix("Cache")?;
    let (digits, instructions) = level.strip_suffix('i').map_or((level, false), |digits| (digits, true));
    Some((digits.parse().ok().filter(|level| (1..=5).contains(level))?, instructions))
}

fn attributes<'a>(text: &str, at: usize, start: &'a BytesStart) -> Result<Vec<(&'a str, Cow<'a, str>)>, HwlocError> {
    let name = start.name();
    let wrong = |rule: String| failed(text, at, name.as_ref(), rule);
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| wrong(error.to_string()))?;
        if attributes.len() >= MAX_ATTRIBUTES {
            return Err(wrong(format!("has more than {MAX_ATTRIBUTES} attributes")));
        }
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(error.to_string()))?;
        attributes.push((attribute.key.into_inner(), value));
    }
    Ok(attributes)
}

/// An error for a broken rule, with the line of an offset in the text.
pub(super) fn failed(text: &str, at: usize, what: &str, rule: impl Into<String>) -> HwlocError {
    let line = 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
    HwlocError::Text { line, what: format!("<{}>", short(what)), rule: rule.into() }
}

/// Untrusted text, shortened for a message.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}
