//! A private apt: its lists, archives and sources are in the scratch folder. The host's own apt and dpkg are read but
//! never changed, and no privileges are needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache::create_folder;
use super::command::{Finished, run};
use super::interrupts::Interrupts;
use super::kernel_packages::{self, KernelOffer, kernels};
use super::kernel_version::newest_of_each_series;
use super::{KernelVersion, SetupError, Version};

/// Options beside the paths: no hooks or pins of the host (they are meant for its own packages), no locks (setup has
/// its own), only package lists, and short network timeouts.
const CONFIGURATION: &str = r#"
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear AptCli::Hooks;
APT::Default-Release "";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::Retries "2";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Debug::NoLocking "1";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
"#;

/// Paths that apt writes to, in the scratch folder.
const PLACES: [(&str, &str); 6] = [
    ("Dir::State::lists", "lists"),
    ("Dir::State::extended_states", "extended_states"),
    ("Dir::Cache", ""),
    ("Dir::Cache::archives", "archives"),
    ("Dir::Cache::pkgcache", "pkgcache.bin"),
    ("Dir::Log", "log"),
];

/// Debian's keys; if the file is missing apt falls back to the keys that it trusts for every source.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const QEMU_PACKAGE: &str = "qemu-system-x86";

/// The release whose backports have the lab's QEMU.
const QEMU_RELEASE: &str = "trixie";

/// The Debian releases that packages are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    /// This host's release and its backports.
    Host,
    /// Also the backports of Debian's stable release, which have the newest kernels: those run on any host.
    Newer,
    /// [`QEMU_RELEASE`] and its backports, whatever the host's release: QEMU comes with all its dependencies and uses
    /// none of the host's libraries.
    Qemu,
}

pub struct Apt<'a> {
    scratch: PathBuf,
    interrupts: &'a Interrupts,
    /// Result of `apt-get update`: the reason if a package cannot be found.
    update: Finished,
}

/// One version of a package in one release of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    version: String,
    release: String,
}

impl Apt<'_> {
    /// Reads the host's sources and fetches the package lists of these releases from the same mirrors.
    pub fn new<'a>(
        scratch: &Path,
        releases: Releases,
        interrupts: &'a Interrupts,
        progress: &dyn Fn(&str),
    ) -> Result<Apt<'a>, SetupError> {
        let codename = debian_codename()?;
        for folder in ["lists/partial", "archives/partial"] {
            create_folder(&scratch.join(folder))?;
        }
        let with_hosts_sources = scratch.join("hosts-sources.conf");
        let hosts = configuration(scratch);
        write(&with_hosts_sources, &hosts)?;
        let list = scratch.join("debian.sources");
        let mut ours = hosts + &setting("Dir::Etc::sourcelist", &list) + "Dir::Etc::sourceparts \"/dev/null\";\n";
        if releases == Releases::Qemu {
            // As on a machine without installed packages.
            let installed = scratch.join("installed");
            write(&installed, "")?;
            ours += &setting("Dir::State::status", &installed);
        }
        write(&scratch.join("apt.conf"), &ours)?;
        let listed = run(configured("apt-get", &with_hosts_sources).args(["update", "--print-uris"]))?.checked()?;
        let sources = sources(&listed, &codename, releases);
        if sources.is_empty() {
            return Err(SetupError::Unavailable {
                reason: format!("apt has no source for Debian {codename}, component main"),
            });
        }
        progress("fetching the lists of Debian's packages");
        write(&list, &stanzas(&sources, Path::new(KEYRING).exists()))?;
        // The status is not checked: apt reports a mirror without backports as an error, but it may have all that is
        // needed.
        let update = run(private("apt-get", scratch).arg("update"))?;
        if is_disk_full(&update.stderr) {
            return Err(SetupError::DiskFull { folder: scratch.to_path_buf() });
        }
        interrupts.check()?;
        Ok(Apt { scratch: scratch.to_path_buf(), interrupts, update })
    }

    /// The version of QEMU to fetch.
    pub fn choose_qemu(&self, minimum: Version) -> Result<(Version, Offer), SetupError> {
        let listed = self.run(private("apt-cache", &self.scratch).args(["madison", QEMU_PACKAGE]))?;
        self.choose(QEMU_PACKAGE, minimum, offers(&listed))
    }

    /// The kernel to fetch: the requested one, or else the default.
    pub fn choose_kernel(&self, wanted: Option<&KernelVersion>, minimum: Version) -> Result<KernelOffer, SetupError> {
        let search = ["search", "--names-only", kernel_packages::SEARCH];
        let listed = self.run(private("apt-cache", &self.scratch).args(search))?;
        let offered: Vec<_> = kernels(&listed).into_iter().map(|offer| (offer.version, offer)).collect();
        let Some(wanted) = wanted else {
            return self.choose("linux-image-VERSION-amd64", minimum, offered).map(|(_, offer)| offer);
        };
        self.check_lists(&offered)?;
        let new_enough = || offered.iter().filter(|(version, _)| *version >= minimum);
        let meant = new_enough().filter(|(_, offer)| wanted.matches(&offer.release)).max_by_key(|(version, _)| version);
        meant.map(|(_, offer)| offer.clone()).ok_or_else(|| SetupError::NoSuchKernel {
            wanted: wanted.clone(),
            minimum,
            offered: newest_of_each_series(new_enough().map(|(version, _)| *version)),
            apt: self.complaint(),
        })
    }

    /// The packages with the headers of a kernel: its own and the common ones, and the programs of its build.
    pub fn header_packages(&self, release: &str, cached: Option<&Path>) -> Result<Vec<String>, SetupError> {
        let own = format!("linux-headers-{release}");
        let depends = run(private("apt-cache", &self.scratch).args(["depends", "--important", &own]))?;
        self.interrupts.check()?;
        if !depends.succeeded() {
            let reason =
                format!("no package {own}: the archive may have only a newer kernel now; {}", self.complaint());
            return Err(SetupError::Headers { kernel: cached.map(Path::to_owned), reason });
        }
        let mut packages = kernel_packages::header_packages(&depends.checked()?);
        packages.push(own);
        Ok(packages)
    }

    fn choose<T>(
        &self,
        package: &'static str,
        minimum: Version,
        offered: Vec<(Version, T)>,
    ) -> Result<(Version, T), SetupError> {
        self.check_lists(&offered)?;
        let versions = offered.iter().map(|(version, _)| version.to_string()).collect();
        let too_old = || SetupError::TooOld { package, minimum, offered: versions, apt: self.complaint() };
        Version::choose(offered, minimum).ok_or_else(too_old)
    }

    /// Checks that `apt-get update` fetched a list.
    fn check_lists<T>(&self, offered: &[T]) -> Result<(), SetupError> {
        if offered.is_empty() && !self.update.stderr.trim().is_empty() {
            return Err(self.update.failed("it fetched no package list"));
        }
        Ok(())
    }

    /// The last lines of errors of `apt-get update`.
    fn complaint(&self) -> String {
        if self.update.stderr.trim().is_empty() { String::new() } else { self.update.last_lines() }
    }

    /// Unpacks these packages without their dependencies; returns the folder.
    pub fn download(&self, packages: &[String]) -> Result<PathBuf, SetupError> {
        let archives = self.scratch.join("kernel-archive");
        create_folder(&archives)?;
        self.run(private("apt-get", &self.scratch).arg("download").args(packages).current_dir(&archives))?;
        self.unpack(&archives, "kernel-unpacked")
    }

    /// Unpacks QEMU with all its dependencies; returns the folder.
    pub fn download_qemu(&self, offer: &Offer) -> Result<PathBuf, SetupError> {
        let mut install = private("apt-get", &self.scratch);
        install.args(["install", "--yes", "--download-only", "--no-install-recommends"]);
        if offer.release.ends_with("-backports") {
            // apt looks in the same release for dependencies only if told to.
            install.args(["--target-release", &offer.release]);
        }
        self.run(install.arg(format!("{QEMU_PACKAGE}={}", offer.version)))?;
        self.unpack(&self.scratch.join("archives"), "qemu-unpacked")
    }

    /// Archives are removed as they are unpacked: the disk need not hold both.
    fn unpack(&self, archives: &Path, name: &str) -> Result<PathBuf, SetupError> {
        let unpacked = self.scratch.join(name);
        create_folder(&unpacked)?;
        for entry in fs::read_dir(archives).map_err(SetupError::io("read", archives))? {
            let archive = entry.map_err(SetupError::io("read", archives))?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                self.run(Command::new("dpkg-deb").arg("-x").args([&archive, &unpacked]))?;
                fs::remove_file(&archive).map_err(SetupError::io("remove", &archive))?;
            }
        }
        Ok(unpacked)
    }

    fn run(&self, command: &mut Command) -> Result<String, SetupError> {
        let finished = run(command)?;
        self.interrupts.check()?;
        if !finished.succeeded() && is_disk_full(&finished.stderr) {
            return Err(SetupError::DiskFull { folder: self.scratch.clone() });
        }
        finished.checked()
    }
}

/// apt with the private sources.
fn private(program: &str, scratch: &Path) -> Command {
    configured(program, &scratch.join("apt.conf"))
}

fn configured(program: &str, configuration: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--quiet").arg("--config-file").arg(configuration);
    command
}

fn configuration(scratch: &Path) -> String {
    let places = PLACES.map(|(option, name)| setting(option, &scratch.join(name)));
    CONFIGURATION.to_string() + &places.concat()
}

/// A line of apt's configuration. Quotes cannot be escaped in it; the cache folder's path has none.
fn setting(option: &str, path: &Path) -> String {
    format!("{option} \"{}\";\n", path.display())
}

fn write(path: &Path, text: &str) -> Result<(), SetupError> {
    fs::write(path, text).map_err(SetupError::io("write", path))
}

fn is_disk_full(said: &str) -> bool {
    said.contains("No space left on device")
        || said.contains("enough free space")
        || said.contains("Disk quota exceeded")
}

/// The codename of the Debian release that this host runs.
fn debian_codename() -> Result<String, SetupError> {
    let unavailable = |reason: String| SetupError::Unavailable { reason };
    if std::env::consts::ARCH != "x86_64" {
        return Err(unavailable(format!("this host is {}", std::env::consts::ARCH)));
    }
    let text = fs::read_to_string("/etc/os-release").map_err(|error| {
        unavailable(format!("/etc/os-release, which names the distribution, cannot be read: {error}"))
    })?;
    let field = |name| os_release_field(&text, name);
    match (field("ID"), field("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => Ok(codename.to_string()),
        (Some("debian"), None) => Err(unavailable("/etc/os-release names no VERSION_CODENAME".to_string())),
        (id, _) => {
            let name = field("PRETTY_NAME").or(id).unwrap_or("an unknown system");
            Err(unavailable(format!("this host runs {name}")))
        }
    }
}

fn os_release_field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\''])).filter(|value| !value.is_empty())
}

/// A folder of an archive: `URI/dists/SUITE`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
}

/// Suites that move from release to release; a host may use one instead of a codename.
const MOVING_SUITES: [&str; 6] = ["oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"];
/// Those of them without backports.
const DEVELOPMENT_SUITES: [&str; 3] = ["testing", "unstable", "sid"];
/// Suites with Debian's newest kernels, with short package lists; also by the codename of the current stable release,
/// because caching mirrors may have an old copy under the other name.
const NEWEST_SUITES: [&str; 2] = ["stable-backports", "trixie-backports"];

/// The sources of this release's main component in the output of `apt-get update --print-uris`
/// (`'http://mirror/debian/dists/bookworm/main/binary-amd64/Packages.xz' name size`), with their backports; or those of
/// QEMU's release on the same mirrors.
fn sources(listed: &str, codename: &str, releases: Releases) -> Vec<Source> {
    let mut found: Vec<Source> = Vec::new();
    let mut add = |source: Source| {
        if !found.contains(&source) {
            found.push(source);
        }
    };
    for line in listed.lines() {
        let uri = line.strip_prefix('\'').and_then(|line| line.split_once('\''));
        let Some((uri, path)) = uri.and_then(|(uri, _)| uri.split_once("/dists/")) else { continue };
        let Some((suite, _)) = path.split_once("/main/binary-amd64/Packages") else { continue };
        let stem = suite.split(['-', '/']).next().unwrap_or(suite);
        if stem != codename && !MOVING_SUITES.contains(&stem) {
            continue;
        }
        let source = |suite: String| Source { uri: uri.to_string(), suite };
        if releases == Releases::Qemu {
            if stem == suite {
                add(source(QEMU_RELEASE.to_string()));
                add(source(format!("{QEMU_RELEASE}-backports")));
            }
            continue;
        }
        add(source(suite.to_string()));
        if stem == suite && !DEVELOPMENT_SUITES.contains(&stem) {
            add(source(format!("{stem}-backports")));
        }
        if stem == suite && releases == Releases::Newer {
            for suite in NEWEST_SUITES {
                add(source(suite.to_string()));
            }
        }
    }
    found
}

fn stanzas(sources: &[Source], signed: bool) -> String {
    let signed_by = if signed { format!("Signed-By: {KEYRING}\n") } else { String::new() };
    let stanza = |Source { uri, suite }: &Source| {
        format!("Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\n{signed_by}\n")
    };
    sources.iter().map(stanza).collect()
}

/// Reads `apt-cache madison`: `package | 1:10.0.2+ds-2 | http://mirror/debian bookworm-backports/main amd64 Packages`.
fn offers(listed: &str) -> Vec<(Version, Offer)> {
    let read = |line: &str| {
        let mut columns = line.split('|').map(str::trim);
        let (_, version, source) = (columns.next()?, columns.next()?, columns.next()?);
        let (release, _component) = source.split_whitespace().nth(1)?.rsplit_once('/')?;
        let offer = Offer { version: version.to_string(), release: release.to_string() };
        source.ends_with(" Packages").then_some((Version::parse(version)?, offer))
    };
    listed.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(uri: &str, suite: &str) -> Source {
        Source { uri: uri.to_string(), suite: suite.to_string() }
    }

    #[test]
    fn takes_the_sources_of_this_release_and_their_backports() {
        let listed = "\
'http://mirror.example/debian/dists/bookworm/InRelease' x 0 
'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' x 0 
'http://mirror.example/debian/dists/bookworm/main/binary-all/Packages.xz' x 0 
'http://mirror.example/debian/dists/bookworm/contrib/binary-amd64/Packages.xz' x 0 
'http://mirror.example/debian/dists/bookworm-updates/main/binary-amd64/Packages.xz' x 0 
'mirror+file:/etc/apt/mirrors/security.list/dists/bookworm-security/main/binary-amd64/Packages' x 0 
'http://mirror.example/debian/dists/trixie/main/binary-amd64/Packages.xz' x 0 
'https://other.example/apt/dists/nodistro/main/binary-amd64/Packages.xz' x 0 
'https://flat.example/apt/Packages.xz' x 0 
Reading package lists...
";
        let debian = "http://mirror.example/debian";
        let expected = [
            source(debian, "bookworm"),
            source(debian, "bookworm-backports"),
            source(debian, "bookworm-updates"),
            source("mirror+file:/etc/apt/mirrors/security.list", "bookworm-security"),
        ];
        assert_eq!(sources(listed, "bookworm", Releases::Host), expected);
        let newer = sources(listed, "bookworm", Releases::Newer);
        let [first, second] = NEWEST_SUITES.map(|suite| source(debian, suite));
        assert_eq!(newer.iter().filter(|source| !expected.contains(source)).collect::<Vec<_>>(), [&first, &second]);
        let qemus = [source(debian, "trixie"), source(debian, "trixie-backports")];
        assert_eq!(sources(listed, "bookworm", Releases::Qemu), qemus);
    }

    #[test]
    fn development_suites_have_no_backports_and_a_source_comes_once() {
        let listed = "'http://a/dists/sid/main/binary-amd64/Packages.xz' x 0\n\
                      'http://b/dists/stable/main/binary-amd64/Packages.xz' x 0\n\
                      'http://b/dists/stable-backports/main/binary-amd64/Packages.xz' x 0\n";
        let expected =
            [source("http://a", "sid"), source("http://b", "stable"), source("http://b", "stable-backports")];
        assert_eq!(sources(listed, "forky", Releases::Host), expected);
        let newer = sources(listed, "forky", Releases::Newer);
        let suites: Vec<&str> = newer.iter().map(|source| source.suite.as_str()).collect();
        let [alias, name] = NEWEST_SUITES;
        assert_eq!(suites, ["sid", alias, name, "stable", alias, name], "of each mirror once");
    }

    #[test]
    fn stanzas_are_signed_when_the_keyring_is_there() {
        let text = stanzas(&[source("http://a", "sid")], true);
        assert_eq!(
            text,
            format!(
                "Types: deb\nURIs: http://a\nSuites: sid\nComponents: main\nArchitectures: amd64\nSigned-By: {KEYRING}\n\n"
            )
        );
        assert!(!stanzas(&[source("http://a", "sid")], false).contains("Signed-By"));
    }

    #[test]
    fn reads_the_versions_on_offer() {
        let listed = "\
qemu-system-x86 | 1:11.1.3+ds-1~bpo13+1 | http://a/debian trixie-backports/main amd64 Packages
qemu-system-x86 | 1:10.0.13+ds-0+deb13u1 | http://a/debian trixie/main amd64 Packages
      qemu | 1:10.0.13+ds-0+deb13u1 | http://a/debian trixie/main Sources
broken | line
";
        let offer = |version: &str, release: &str| Offer { version: version.into(), release: release.into() };
        let expected = [
            (Version { major: 11, minor: 1, patch: 3 }, offer("1:11.1.3+ds-1~bpo13+1", "trixie-backports")),
            (Version { major: 10, minor: 0, patch: 13 }, offer("1:10.0.13+ds-0+deb13u1", "trixie")),
        ];
        assert_eq!(offers(listed), expected);
    }

    #[test]
    fn reads_os_release() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_CODENAME='bookworm'\nEMPTY=\n";
        assert_eq!(os_release_field(text, "ID"), Some("debian"));
        assert_eq!(os_release_field(text, "VERSION_CODENAME"), Some("bookworm"));
        assert_eq!(os_release_field(text, "PRETTY_NAME"), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(os_release_field(text, "EMPTY"), None);
        assert_eq!(os_release_field(text, "NAME"), None);
    }

    proptest! {
        #[test]
        fn any_output_of_apt_is_read(text in "([ -~]{0,20}(/dists/|/main/binary-amd64/Packages|'|\\||\n)?){0,12}") {
            let _ = (offers(&text), os_release_field(&text, "ID"));
            for source in sources(&text, "bookworm", Releases::Newer) {
                let start = format!("'{}/dists/", source.uri);
                prop_assert!(text.contains(&start) && !source.suite.contains('\n'));
            }
        }
    }
}
