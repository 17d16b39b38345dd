//! Where the memory of a process is: the first step of several verbs.

use crate::options::system::{System, UnseenError};
use linux::{
    Process, Residence, Residences, huge_page_bytes, huge_pages_by_node, parse_numa_maps, parse_smaps, residences,
};
use std::error::Error;

/// The mappings of a process with the pages of each. Transparent huge pages are distinguished as far as the kernel
/// reports them.
pub fn mappings(system: &System, process: &Process) -> Result<Residences, Box<dyn Error>> {
    let text = |file| process.text(file).map_err(|error| system.unseen(process.pid(), &error));
    let numa = parse_numa_maps(&text("numa_maps")?)?;
    let uses = parse_smaps(&text("smaps")?)?;
    if uses.is_empty() {
        // Every program has mappings: this process has just ended.
        system.check_memory(process)?;
    }
    let huge_page_bytes = huge_page_bytes(&system.sys());
    let mut found = residences(uses, numa, huge_page_bytes);
    // The kernel can only be asked about live processes.
    for mapping in found.mappings.iter_mut().filter(|mapping| system.is_live() && !mapping.huge_pages_told) {
        set_huge_pages(process, mapping, huge_page_bytes);
    }
    Ok(found)
}

/// Counts that cannot be read stay unknown, and reports say so.
fn set_huge_pages(process: &Process, mapping: &mut Residence, huge_page_bytes: u64) {
    if let Ok(Some(nodes)) = huge_pages_by_node(process, &mapping.mapping.range) {
        mapping.set_huge_pages(huge_page_bytes, &nodes);
    }
}

/// Whether a query failed because the process has ended.
pub fn is_gone(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<UnseenError>().is_some_and(|error| error.is_gone)
}
