//! Debian's kernel packages: which of them have the files of which kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::Version;

/// The search term for `apt-cache search`: the kernel with every driver, as `cloud` lacks 9p.
pub const SEARCH: &str = "^linux-(image|base|binary|modules)-[0-9].*-amd64(-unsigned)?$";

/// A kernel whose packages are all in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelOffer {
    /// Its version.
    pub version: Version,
    /// Its `uname -r`.
    pub release: String,
    /// The packages to unpack.
    pub packages: Vec<String>,
}

/// Reads `apt-cache search`: `linux-image-6.12.95+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs`.
pub fn kernels(listed: &str) -> Vec<KernelOffer> {
    let names: BTreeSet<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let releases: BTreeMap<&str, Version> = names.iter().filter_map(|name| release_of(name)).collect();
    let offer = |(release, version): (&str, Version)| {
        let has = |name: &String| names.contains(name.as_str());
        // Unsigned packages are preferred: signatures are for Secure Boot only.
        let image = [format!("linux-image-{release}-unsigned"), format!("linux-image-{release}")].into_iter().find(has);
        let parts = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{release}"));
        // Since 6.19 the image is a package without files, and Debian removes some parts of old releases before others.
        let packages = match parts.iter().filter(|&part| has(part)).count() {
            0 => vec![image?],
            3 => parts.to_vec(),
            _ => return None,
        };
        Some(KernelOffer { version, release: release.to_string(), packages })
    };
    releases.into_iter().filter_map(offer).collect()
}

fn release_of(name: &str) -> Option<(&str, Version)> {
    let name = name.strip_suffix("-unsigned").unwrap_or(name);
    let prefixes = ["linux-image-", "linux-base-", "linux-binary-", "linux-modules-"];
    let release = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let numbers = release.strip_suffix("-amd64")?;
    let is_special = numbers.ends_with("-cloud") || numbers.ends_with("-rt");
    (!is_special).then_some((release, Version::parse(numbers)?))
}

/// Reads `apt-cache depends linux-headers-RELEASE`: the other packages that have parts of the headers
/// (`  Depends: linux-kbuild-6.12.95+deb12`).
pub fn header_packages(depends: &str) -> Vec<String> {
    let names = depends.lines().filter_map(|line| line.trim_start().strip_prefix("Depends: "));
    let has_parts = |name: &&str| ["linux-headers-", "linux-kbuild-"].iter().any(|prefix| name.starts_with(prefix));
    names.map(str::trim_end).filter(has_parts).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LISTED: &str = "\
linux-image-6.1.0-50-amd64-unsigned - Linux 6.1 for 64-bit PCs
linux-image-6.12.95+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-6.12.95+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.95+deb12-cloud-amd64-unsigned - Linux 6.12 for x86-64 cloud
linux-image-6.12.95+deb12-rt-amd64-unsigned - Linux 6.12 for 64-bit PCs, PREEMPT_RT
linux-image-6.18.15+deb13-amd64 - Linux 6.18.15 for 64-bit PCs (signed)
linux-image-7.0.13+deb13-amd64 - Linux 7.0.13 for 64-bit PCs
linux-binary-7.0.13+deb13-amd64 - Binary for Linux 7.0.13 (signed)
linux-base-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs (base files)
linux-binary-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs (kernel image)
linux-image-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs
linux-modules-7.3.4+deb13-amd64 - Linux 7.3.4 for 64-bit PCs (modules)
linux-modules-7.3.4+deb13-rt-amd64 - Linux 7.3.4 for 64-bit PCs (modules)
linux-image-amd64 - Linux for 64-bit PCs (meta-package)
";

    #[test]
    fn takes_kernels_with_every_driver_that_are_there_as_a_whole() {
        let packages: Vec<String> = kernels(LISTED).into_iter().map(|offer| offer.packages.join(" ")).collect();
        let expected = [
            "linux-image-6.1.0-50-amd64-unsigned",
            "linux-image-6.12.95+deb12-amd64-unsigned",
            "linux-image-6.18.15+deb13-amd64",
            "linux-base-7.3.4+deb13-amd64 linux-binary-7.3.4+deb13-amd64 linux-modules-7.3.4+deb13-amd64",
        ];
        assert_eq!(packages, expected);
    }

    #[test]
    fn a_kernel_has_its_release_and_version() {
        let newest = kernels(LISTED).pop().expect("an offer");
        let version = Version { major: 7, minor: 3, patch: 4 };
        assert_eq!((newest.release.as_str(), newest.version), ("7.3.4+deb13-amd64", version));
    }

    #[test]
    fn headers_are_in_the_packages_that_they_depend_on() {
        let depends = "linux-headers-6.12.95+deb12-amd64\n  Depends: linux-base\n  Depends: linux-headers-6.12.95+deb12-common\n \
                       |Depends: linux-image-6.12.95+deb12-amd64\n  Depends: linux-kbuild-6.12.95+deb12\n  Depends: gcc-12\n";
        assert_eq!(header_packages(depends), ["linux-headers-6.12.95+deb12-common", "linux-kbuild-6.12.95+deb12"]);
    }

    proptest! {
        #[test]
        fn any_output_of_apt_is_read(text in "((linux-image-|linux-base-|linux-binary-|linux-modules-)?[ -~]{0,9}(-amd64|-unsigned|\n)?){0,12}") {
            for offer in kernels(&text) {
                prop_assert!(offer.packages.iter().all(|package| text.contains(package) && package.contains(&offer.release)));
            }
        }
    }
}
