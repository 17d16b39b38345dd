//! The files that `make install` puts beside the program.

use crate::support::is_root_to;
use assert_cmd::Command;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

#[test]
fn man_pages_and_completions_are_of_the_command_itself() {
    let share = tempfile::tempdir().unwrap();
    Command::cargo_bin("nearside").unwrap().arg("manual").arg(share.path()).assert().success().stdout("").stderr("");
    let text = |path: &str| fs::read_to_string(share.path().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"));
    // hyphens are escaped in roff
    assert!(text("man/man1/nearside-lab-run.1").contains(r"\-\-machine"));
    assert!(text("man/man1/nearside.1").contains(r"\fBnearside\-topology\fR(1)"));
    let asks = |path: &str| text(path).contains("NEARSIDE_COMPLETE");
    assert!(asks("bash-completion/completions/nearside") && asks("fish/vendor_completions.d/nearside.fish"));
    assert!(text("zsh/site-functions/_nearside").starts_with("#compdef nearside"));
    // Hidden commands have no page.
    assert!(!share.path().join("man/man1/nearside-manual.1").exists());
}

/// A folder with all pages, and their paths.
fn pages() -> (TempDir, Vec<PathBuf>) {
    let share = tempfile::tempdir().unwrap();
    Command::cargo_bin("nearside").unwrap().arg("manual").arg(share.path()).assert().success();
    let folders = ["man/man1", "man/man5"].map(|folder| fs::read_dir(share.path().join(folder)).unwrap());
    let pages = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    (share, pages)
}

/// A page as text of 78 columns, and what the formatter complains about.
fn formatted(page: &Path) -> Option<(String, String)> {
    let mut command = std::process::Command::new("groff");
    command.args(["-man", "-ww", "-t", "-K", "utf8", "-T", "utf8", "-rLL=78n", "-P-cbou"]).arg(page);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

/// The lines of a section of a page, without those that are empty.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| line.is_empty() || line.starts_with(' ')).filter(|line| !line.is_empty()).collect()
}

#[test]
fn pages_are_read_without_a_warning_and_have_all_their_parts() {
    let (_share, pages) = pages();
    assert!(pages.len() > 50, "{pages:?}");
    let version = format!("nearside {}", env!("CARGO_PKG_VERSION"));
    for page in &pages {
        let Some((text, complaints)) = formatted(page) else {
            return test_tools::skipped("groff, which formats manual pages, is not installed");
        };
        let name = page.display();
        assert_eq!(complaints, "", "{name}");
        let footer = text.trim_end().lines().last().unwrap();
        assert!(footer.starts_with(&version), "{name}: {footer}");
        assert!(!text.contains("EXTRA") && !text.contains('`'), "{name}");
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
            assert!(!section(&text, heading).is_empty(), "{name} has no {heading}");
        }
    }
}

#[test]
fn examples_and_tables_of_pages_are_as_the_help_has_them() {
    let (share, _) = pages();
    let Some((compare, _)) = formatted(&share.path().join("man/man1/nearside-compare.1")) else {
        return test_tools::skipped("groff, which formats manual pages, is not installed");
    };
    let (nearside, _) = formatted(&share.path().join("man/man1/nearside.1")).unwrap();
    let (place, _) = formatted(&share.path().join("man/man1/nearside-place.1")).unwrap();
    let (agent, _) = formatted(&share.path().join("man/man1/nearside-agent.1")).unwrap();
    let example = "nearside compare --policies first-touch,interleave,oracle -- ./program";
    assert!(section(&compare, "EXAMPLES").iter().any(|line| line.trim() == example), "{compare}");
    let policies = section(&compare, "POLICIES");
    let first = policies.iter().position(|line| line.trim() == "first-touch").unwrap();
    assert!(policies[first + 1].trim().starts_with("memory on the node of the CPU"), "{policies:?}");
    assert!(section(&compare, "SYNOPSIS").concat().contains("[-p|--policies POLICY,…]"), "{compare}");
    assert!(section(&compare, "SEE ALSO").concat().contains("nearside-place(1)"), "{compare}");
    let status = section(&nearside, "EXIT STATUS");
    assert!(status.iter().any(|line| line.trim() == "2      the command line is wrong"), "{status:?}");
    assert!(status.iter().any(|line| line.trim().starts_with("Commands that start programs")), "{status:?}");
    assert!(section(&nearside, "FILES").concat().contains("~/.config/nearside/config.toml"), "{nearside}");
    assert!(section(&place, "PRIVILEGES").concat().contains("None for your own programs"), "{place}");
    assert!(section(&agent, "SEE ALSO").concat().contains("nearside.toml(5)"), "{agent}");
}

/// The keys, and the tables, of the configuration that is installed.
#[test]
fn the_page_of_the_configuration_has_each_key() {
    let (share, _) = pages();
    let Some((text, _)) = formatted(&share.path().join("man/man5/nearside.toml.5")) else {
        return test_tools::skipped("groff, which formats manual pages, is not installed");
    };
    let file = include_str!("../../../../packaging/nearside.toml");
    let settings = file.lines().filter(|line| !line.starts_with("# ") && !line.is_empty());
    let mut count = 0;
    for setting in settings.map(|line| line.trim_start_matches('#')) {
        count += 1;
        assert!(text.lines().any(|line| line.trim() == setting), "{setting} is not in:\n{text}");
    }
    assert!(count > 30, "{count}");
    assert!(text.contains("imbalance_min = 0.35") && text.contains("Interleaving is enabled above"), "{text}");
}

/// The fields with the ranges of their numbers, and the example; pages that name machine files refer to it.
#[test]
fn the_page_of_machine_files_has_each_field_with_its_range() {
    let (share, _) = pages();
    let Some((text, _)) = formatted(&share.path().join("man/man5/machine-files.5")) else {
        return test_tools::skipped("groff, which formats manual pages, is not installed");
    };
    // As one line, since ranges are wrapped.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ranges = machine::number_ranges();
    assert!(ranges.len() > 25, "{ranges:?}");
    for machine::NumberRange { table, field, range } in ranges {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_table = |line: &str| line == format!("[{table}]") || line == format!("[[{table}]]");
        let from = lines.iter().position(|line| is_table(line)).unwrap_or_else(|| panic!("no {table} in:\n{text}"));
        let fields = lines[from + 1..].iter().take_while(|line| !(line.starts_with('[') && line.ends_with(']')));
        let mut names = fields.map(|line| line.split(' ').next());
        assert!(names.any(|name| name == Some(field)), "{table}.{field} is not in:\n{text}");
        assert!(words.contains(&format!("Range: {range}.")), "{table}.{field}: {range}");
    }
    assert!(section(&text, "EXAMPLES").iter().any(|line| line.trim() == "name = \"two-sockets\""), "{text}");
    let (run, _) = formatted(&share.path().join("man/man1/nearside-lab-run.1")).unwrap();
    assert!(section(&run, "SEE ALSO").concat().contains("machine-files(5)"), "{run}");
}

/// Continuation lines of tables stand below their column.
#[test]
fn help_has_hanging_indents() {
    let mut command = Command::cargo_bin("nearside").unwrap();
    let assert = command.args(["place", "--help"]).env("COLUMNS", "80").assert().success();
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    let lines: Vec<&str> =
        text.lines().skip_while(|line| *line != "Policies:").skip(1).take_while(|line| !line.is_empty()).collect();
    assert!(lines.len() > placement::POLICIES.len(), "no line is wrapped: {lines:?}");
    for line in lines {
        let column = 2 + 28 + 1;
        assert!(
            line.chars().count() <= 80 && (!line.starts_with("    ") || line.starts_with(&" ".repeat(column - 2))),
            "{line:?}"
        );
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let assert = Command::cargo_bin("nearside").unwrap().args(["manual", "/dev/null/share"]).assert().code(1);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("cannot make the folder /dev/null/share/man/man1: Not a directory"), "{said}");
}

/// SIGXFSZ would end the process without restoring anything.
#[test]
fn a_file_that_may_grow_no_more_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    let script = "ulimit -f 1; exec \"$0\" manual \"$1\"";
    let assert = Command::new("sh").args(["-c", script]).arg(nearside).arg(folder.path()).assert().code(1);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("File too large"), "{said}");
}

/// `make install` as packagers call it, and as an administrator does; the systemd unit as systemd reads it.
#[test]
fn everything_is_installed_and_uninstalled_and_a_changed_configuration_stays() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = assert_cmd::cargo::cargo_bin("nearside").parent().unwrap().to_owned();
    let make = |target: &str, variables: [&str; 2]| {
        // The programs built for this test are installed; nothing is built.
        let target_dir = format!("CARGO_TARGET_DIR={}", built.parent().unwrap().display());
        let profile = format!("PROFILE={}", built.file_name().unwrap().display());
        let arguments = ["--no-print-directory", "-C", root.to_str().unwrap(), target, &target_dir, &profile];
        Command::new("make").args(arguments).args(variables).assert().success();
    };
    let below = |path: &str| folder.path().join(path);
    let destination = format!("DESTDIR={}", below("packaged").display());
    make("install", [&destination, "PREFIX=/opt/near"]);
    let unit = fs::read_to_string(below("packaged/opt/near/lib/systemd/system/nearside.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/near/bin/nearside agent --config /opt/near/etc/nearside.toml\n"), "{unit}");
    for setting in ["PrivateDevices=yes", "PrivateMounts=yes", "IPAddressDeny=any", "UMask=0077", "WatchdogSec=3min"] {
        assert!(unit.contains(&format!("\n{setting}\n")), "{setting}");
    }
    let drop_in = fs::read_to_string(below("packaged/opt/near/lib/nearside/keep-balancing.conf")).unwrap();
    assert!(drop_in.contains("\nCapabilityBoundingSet=~CAP_SYS_ADMIN\n"), "{drop_in}");
    for name in [
        "bin/nearside",
        "bin/nearside-workloads",
        "lib/nearside/libnearside_preload.so",
        "lib/nearside/libnearside_heap.so",
        "lib/nearside/libnearside_start.so",
    ] {
        let mode = fs::metadata(below("packaged/opt/near").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{name}");
    }
    let package = fs::read_to_string(below("packaged/opt/near/lib/pkgconfig/nearside.pc")).unwrap();
    assert!(package.starts_with("prefix=/opt/near\n") && package.contains("\nVersion: 0."), "{package}");
    for name in [
        "lib/nearside/socket-group.conf",
        "lib/nearside/adopt-cgroup",
        "lib/libnearside.so",
        "lib/libnearside.so.1",
        "lib/libnearside.a",
        "share/man/man3/libnearside.3",
        "share/man/man5/nearside.toml.5",
        "share/doc/nearside/SPECIFICATION.md",
        "share/doc/nearside/docs/reserve-calls.jsonl",
    ] {
        assert!(below("packaged/opt/near").join(name).exists(), "{name}");
    }
    let installed = Command::new(below("packaged/opt/near/bin/nearside")).arg("--version").assert().success();
    assert!(installed.get_output().stdout.starts_with(b"nearside "));

    let prefix = format!("PREFIX={}", below("own").display());
    make("install", [&prefix, "DESTDIR="]);
    let analyse = |arguments: &[&str]| {
        let unit = below("own/lib/systemd/system/nearside.service");
        std::process::Command::new("systemd-analyze").args(arguments).arg(unit).output()
    };
    match analyse(&["verify", "--man=no"]) {
        // It reports what it does not understand, and succeeds all the same.
        Ok(said) => {
            assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
            // Fails where the exposure exceeds 2.0.
            let said = analyse(&["security", "--offline=yes", "--threshold=20", "--no-pager"]).unwrap();
            assert!(said.status.success(), "{said:?}");
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            test_tools::skipped("systemd-analyze, which judges the unit, is not installed");
        }
    }
    fs::write(below("own/etc/nearside.toml"), "policy = \"auto\"\n").unwrap();
    make("install", [&prefix, "DESTDIR="]);
    assert_eq!(fs::read_to_string(below("own/etc/nearside.toml")).unwrap(), "policy = \"auto\"\n");
    make("uninstall", [&prefix, "DESTDIR="]);
    make("uninstall", [&destination, "PREFIX=/opt/near"]);
    let files = |path: &str| -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![below(path)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
            }
        }
        found
    };
    assert_eq!(files("packaged"), Vec::<PathBuf>::new());
    assert_eq!(files("own"), [below("own/etc/nearside.toml")], "the file that its owner changed");
}

/// The Debian package, installed into a folder as into a fresh system, and purged.
#[test]
fn the_package_installs_runs_and_leaves_nothing() {
    if !is_root_to("install packages") {
        return;
    }
    let tool = |name: &str| std::process::Command::new(name).arg("--version").output().is_ok();
    if !["dpkg", "dpkg-deb", "dpkg-shlibdeps"].into_iter().all(tool) {
        return test_tools::skipped("this system has no dpkg, or no dpkg-dev");
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let built = assert_cmd::cargo::cargo_bin("nearside").parent().unwrap().to_owned();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb");
    let made =
        Command::new(script).args([built.parent().unwrap(), Path::new(built.file_name().unwrap())]).assert().success();
    let package = String::from_utf8(made.get_output().stdout.clone()).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = |action: &str, what: &str| {
        let root = format!("--root={}", root.display());
        // The folder has no shell of its own, and none of the packages that this one depends on.
        let forced = ["--force-script-chrootless", "--force-depends", "--log=/dev/null"];
        Command::new("dpkg").arg(root).args(forced).args([action, what]).assert().success();
    };
    dpkg("--install", package.trim_end());
    let installed = Command::new(root.join("usr/bin/nearside")).arg("--version").assert().success();
    assert!(installed.get_output().stdout.starts_with(b"nearside "));
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/nearside.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/nearside agent --config /etc/nearside.toml\n"), "{unit}");
    fs::write(root.join("etc/nearside.toml"), "policy = \"auto\"\n").unwrap();
    dpkg("--remove", "nearside");
    assert_eq!(fs::read_to_string(root.join("etc/nearside.toml")).unwrap(), "policy = \"auto\"\n");
    dpkg("--purge", "nearside");
    let left = ["etc", "usr", "var/log"].map(|path| root.join(path)).into_iter().filter(|path| path.exists());
    assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}
