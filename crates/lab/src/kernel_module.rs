//! A kernel module of the user's, for the guest.

use crate::LabError;
use crate::protocol::GuestModule;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Upper limit of a module's file, in bytes, far above real ones.
const SIZE_LIMIT: u64 = 64 << 20;

/// What a module's section `.modinfo` has before the release of the kernel that it was built for.
const BUILT_FOR: &[u8] = b"\0vermagic=";

/// A kernel module that the guest loads before the command starts.
#[derive(Clone, Debug)]
pub struct KernelModule {
    /// Its file on the host, for messages.
    name: String,
    /// `name=value`, separated by spaces, as for `insmod`.
    parameters: String,
    contents: Vec<u8>,
}

impl KernelModule {
    /// Reads a module, and checks that it was built for this release of the kernel.
    pub fn read(path: &Path, parameters: &str, release: &str) -> Result<KernelModule, LabError> {
        let failed = |why| LabError::file("use the kernel module", path, why);
        let mut contents = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(SIZE_LIMIT + 1).read_to_end(&mut contents).map_err(failed)?;
        check(&contents, release).map_err(|why| failed(io::Error::other(why)))?;
        Ok(KernelModule { name: path.display().to_string(), parameters: parameters.to_owned(), contents })
    }

    /// The module as the guest gets it.
    pub(crate) fn for_guest(&self) -> GuestModule {
        let Self { name, parameters, contents } = self.clone();
        GuestModule { name, parameters, contents }
    }
}

/// The kernel refuses a module of another release without saying why.
fn check(module: &[u8], release: &str) -> Result<(), String> {
    if module.len() as u64 > SIZE_LIMIT {
        return Err(format!("it is larger than {}", machine::size::format(SIZE_LIMIT)));
    }
    let at = module.windows(BUILT_FOR.len()).position(|bytes| bytes == BUILT_FOR);
    let built_for = at.filter(|_| module.starts_with(b"\x7fELF")).map(|at| &module[at + BUILT_FOR.len()..]);
    let built_for = built_for.and_then(|rest| rest.split(|byte| matches!(byte, 0 | b' ')).next());
    let Some(built_for) = built_for else {
        return Err("it is no kernel module: it does not name the kernel that it was built for (vermagic)".to_owned());
    };
    if built_for == release.as_bytes() {
        return Ok(());
    }
    Err(format!(
        "it was built for Linux {}, and the guest runs {release}: build it with that kernel's headers, which \
         `nearside lab setup --headers` fetches",
        String::from_utf8_lossy(&built_for[..built_for.len().min(64)])
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn module(built_for: &str) -> Vec<u8> {
        format!("\x7fELF..license=GPL\0vermagic={built_for} SMP preempt\0").into_bytes()
    }

    #[test]
    fn only_modules_of_the_guests_kernel_are_taken() {
        assert_eq!(check(&module("6.12.1-amd64"), "6.12.1-amd64"), Ok(()));
        let other = check(&module("6.1.0-amd64"), "6.12.1-amd64").expect_err("another kernel's");
        assert!(other.contains("built for Linux 6.1.0-amd64, and the guest runs 6.12.1-amd64"), "{other}");
        for no_module in [&b""[..], b"\x7fELF", b"\0vermagic=6.12.1-amd64 SMP"] {
            assert!(check(no_module, "6.12.1-amd64").expect_err("no module").contains("no kernel module"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_checked(bytes in prop::collection::vec(any::<u8>(), 0..200), built_for in "[ -~]{0,9}") {
            let _ = check(&bytes, "6.12.1-amd64");
            let mut module = module(&built_for);
            module.extend(bytes);
            prop_assert_eq!(check(&module, "6.12.1-amd64").is_ok(), built_for.split(' ').next() == Some("6.12.1-amd64"));
        }
    }
}
