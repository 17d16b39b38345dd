//! One page as a line of text or of JSON.

use crate::pages::Traits;
use crate::residence::Address;
use linux::Page;
use machine::{NodeId, SMALL_PAGE, size};
use serde::{Serialize, Serializer};
use std::fmt;

/// One page. In JSON, one line.
#[derive(Clone, Copy, Debug)]
pub struct PageLine<'a>(pub &'a Page);

impl PageLine<'_> {
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let kernel = self.0.flags.unwrap_or_default().names().filter(|name| *name != "anonymous");
        Traits::from_page(self.0).words().chain(kernel)
    }
}

impl Serialize for PageLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line {
            address: Address,
            page_bytes: u64,
            node: Option<NodeId>,
            frame: Option<Address>,
            flags: Vec<&'static str>,
        }
        let page = self.0;
        Line {
            address: Address(page.address),
            page_bytes: page.page_bytes,
            node: page.node.ok(),
            frame: page.entry.frame().map(Address),
            flags: self.flags().collect(),
        }
        .serialize(serializer)
    }
}

/// Headings for [`PageLine`] as text.
pub const PAGE_HEADING: &str = "address           size     node  frame       flags";

impl fmt::Display for PageLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.0;
        write!(f, "{:<16x}  ", page.address)?;
        // There may be millions of small pages, so their size is not formatted each time.
        let size = (page.page_bytes != SMALL_PAGE).then(|| size::format(page.page_bytes));
        write!(f, "{:<7}", size.as_deref().unwrap_or("4 KiB"))?;
        match page.node {
            Ok(node) => write!(f, "{:>6}  ", node.0)?,
            Err(_) => f.write_str("     -  ")?,
        }
        match page.entry.frame() {
            Some(frame) => write!(f, "{frame:<10x}  ")?,
            None => f.write_str("-           ")?,
        }
        for (index, flag) in self.flags().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            f.write_str(flag)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use linux::{PageEntry, PageFlags};

    pub(crate) const ANONYMOUS: PageEntry = PageEntry(1 << 63 | 1 << 56 | 0x1234);
    pub(crate) const FILE: PageEntry = PageEntry(1 << 63 | 1 << 61);

    pub(crate) fn page(address: u64, page_bytes: u64, node: u32, entry: PageEntry) -> Page {
        Page { address, page_bytes, node: Ok(NodeId(node)), entry, flags: None }
    }

    #[test]
    fn a_page_is_a_line() {
        let mut one = page(0x7f00_0000_1000, 4096, 3, ANONYMOUS);
        one.flags = Some(PageFlags(1 << 5 | 1 << 12));
        assert_eq!(PageLine(&one).to_string(), "7f0000001000      4 KiB       3  1234        anonymous,lru");
        let json = serde_json::to_string(&PageLine(&one)).unwrap();
        let wanted =
            r#"{"address":"0x7f0000001000","page_bytes":4096,"node":3,"frame":"0x1234","flags":["anonymous","lru"]}"#;
        assert_eq!(json, wanted);
        assert_eq!(
            PageLine(&page(0, 2 << 20, 1, FILE)).to_string(),
            "0                 2 MiB       1  -           file,shared"
        );
    }
}
