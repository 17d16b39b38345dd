//! Network interfaces and their addresses.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

/// The name and address of each interface address; an interface with several addresses appears several times.
pub(crate) fn with_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = null_mut();
    // SAFETY: the call writes one pointer, to a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: every entry is a valid ifaddrs or null, until the list is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the name of an entry is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        // SAFETY: the address is null, or one of the family that it names.
        found.extend(unsafe { address(entry.ifa_addr) }.map(|address| (interface(&name).to_owned(), address)));
        next = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and no pointer into it is kept.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The interface of an address by its label, which glibc gives as the name. A label may go on after a `:`, as in
/// `eth0:1`, which no name of an interface has.
fn interface(label: &str) -> &str {
    label.split_once(':').map_or(label, |(interface, _)| interface)
}

/// Converts an internet address.
///
/// # Safety
///
/// The pointer is null or points to a whole address of the family that it names.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: every address begins with its family, as the caller promises.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is a sockaddr_in; the read allows any alignment.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is a sockaddr_in6; the read allows any alignment.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_its_interface() {
        assert_eq!(["eth0", "eth0:1", "eth0:web"].map(interface), ["eth0"; 3]);
    }
}
