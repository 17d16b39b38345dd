//! A kernel tracepoint: its number, and the layout of its records.

use super::LiveError;
use super::permission::with_remedy;
use linux::Cause;
use perf_data::Bytes;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tracepoint {
    /// Its number in `perf_event_attr::config`.
    pub id: u64,
    fields: Vec<(String, Field)>,
}

/// Position of a numeric field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    offset: u64,
    bytes: u64,
}

impl Tracepoint {
    /// Finds a tracepoint by `group/name`. Needs read access to tracefs, which is root's by default.
    pub fn find(name: &str) -> Result<Self, LiveError> {
        let failed =
            |diagnosis| LiveError { what: format!("observe the tracepoint {name}"), diagnosis: Box::new(diagnosis) };
        let root = ROOTS.iter().map(Path::new).find(|root| root.join("events").exists());
        let Some(root) = root else {
            // The mount point is visible to all users, its contents only to root.
            let hidden =
                ROOTS.iter().any(|root| fs::read_dir(root).is_err_and(|why| why.kind() == ErrorKind::PermissionDenied));
            let (mount, sudo) = ("sudo mount -t tracefs tracefs /sys/kernel/tracing", "run it with sudo");
            return Err(failed(if hidden {
                with_remedy("only root may read /sys/kernel/tracing", sudo)
            } else {
                with_remedy("tracefs is not mounted at /sys/kernel/tracing", mount)
            }));
        };
        let path = root.join("events").join(name).join("format");
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text)
                .ok_or_else(|| failed(Cause::Other(format!("{} cannot be parsed", path.display())).into())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(failed(Cause::Other("this kernel does not have this tracepoint".to_owned()).into()))
            }
            Err(error) => Err(failed(with_remedy(format!("{}: {error}", path.display()), "run it with sudo"))),
        }
    }

    /// Parses a tracepoint's format file.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(|line| line.trim().strip_prefix("field:")).filter_map(parse_field);
        Some(Self { id, fields: fields.collect() })
    }

    /// Position of the field of this name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, field)| *field)
    }
}

/// Parses `unsigned long address; offset:8; size:8; signed:0;`, with tabs.
fn parse_field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let name = parts.next()?.split_ascii_whitespace().next_back()?.to_owned();
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    Some((name, Field { offset: number("offset:")?, bytes: number("size:")? }))
}

impl Field {
    /// Reads the field from the tracepoint's raw record.
    pub fn of(self, raw: Bytes<'_>) -> Option<u64> {
        let mut raw = raw;
        raw.take(self.offset)?;
        match self.bytes {
            8 => raw.u64(),
            4 => raw.u32().map(u64::from),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: page_fault_user\nID: 190\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long address;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long error_code;\toffset:24;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"address=%ps\", (void *)REC->address\n";

    #[test]
    fn fields_are_where_the_format_says() {
        let tracepoint = Tracepoint::parse(FORMAT).unwrap();
        let told: Vec<u8> = (0..32).collect();
        let value = |name| tracepoint.field(name).and_then(|field| field.of(Bytes(&told)));
        assert_eq!((tracepoint.id, value("address")), (190, Some(0x0f0e_0d0c_0b0a_0908)));
        assert_eq!((value("common_pid"), value("common_type"), value("ip")), (Some(0x0706_0504), None, None));
        let cut = tracepoint.field("error_code").and_then(|field| field.of(Bytes(&told[..30])));
        assert_eq!((cut, Tracepoint::parse("format:")), (None, None));
    }

    proptest! {
        #[test]
        fn any_format_is_read_or_not(
            text in "(ID: [0-9]{1,30}\n|\tfield:[a-z; ]{0,9}\toffset:[0-9x]{0,30};\tsize:[0-9]{1,22};|.|\n){0,9}",
            raw: Vec<u8>
        ) {
            for (_, field) in Tracepoint::parse(&text).into_iter().flat_map(|tracepoint| tracepoint.fields) {
                let _ = field.of(Bytes(&raw));
            }
        }
    }
}
