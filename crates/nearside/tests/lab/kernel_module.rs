//! `lab run --kernel-module`, and the module that splits huge pages in hint faults: T21 to T26 and T30 of the
//! huge-pages study's specification, on a kernel.

use crate::support::Lab;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use test_tools::{Checks, skipped};

/// Builds `modules/nearside-thp` for the lab's kernel into `work/module` of the lab's folder. Returns whether it could:
/// Debian's archive has the headers of its newest kernels only, and the lab may have an older one.
fn build_module(lab: &Lab) -> bool {
    let nearside = assert_cmd::cargo::cargo_bin("nearside");
    let fetched = Command::new(&nearside).args(["lab", "setup", "--headers", "--quiet"]).output().unwrap();
    if !fetched.status.success() {
        skipped(String::from_utf8_lossy(&fetched.stderr).trim());
        return false;
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(repository.join("tools/build-module"));
    let built = command.arg(nearside).arg(lab.path("work/module")).output().unwrap();
    let said = [built.stdout, built.stderr].concat();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&said));
    true
}

fn counts(section: &str) -> BTreeMap<&str, u64> {
    let pairs = section.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, count)| Some((name, count.parse().ok()?))).collect()
}

/// Each option does what the study's patch did, all are off at first, and the kernel says nothing.
#[test]
fn a_module_splits_huge_pages_in_hint_faults() {
    let lab = Lab::new();
    if !build_module(&lab) {
        return;
    }
    lab.compile("parts.c");
    let options = ["--quiet", "--as-root", "--numa-balancing", "on", "--thp", "always", "--time-scale", "1000"];
    let module = ["--kernel-module", "module/nearside_thp.ko,reapply=0"];
    let options = [&options[..], &module, &["--json", "report.json"]].concat();
    let ran = lab.script("small-4x2", &options, include_str!("programs/kernel_module.sh")).succeeded();
    let checks = Checks::new();
    let of = |section| counts(ran.section(section));
    checks.part("T30: all options are off at first", || {
        let off = of("off");
        assert!(off["numa_hint_faults"] > 0, "{off:?}");
        for count in ["splits", "failed_splits", "reapplied", "marked", "marked_moves", "migrated", "thp_split_page"] {
            assert_eq!(off[count], 0, "{count}");
        }
    });
    checks.part("T22, T24: a split by the page, alone", || {
        let split = of("split");
        assert!(split["splits"] > 0 && split["thp_split_page"] == split["splits"], "{split:?}");
        for count in ["reapplied", "marked", "migrated"] {
            assert_eq!(split[count], 0, "{count}");
        }
    });
    checks.part("T24 to T26: all options", || {
        let all = of("all");
        let splits = all["splits"];
        // A page that another CPU handles at that moment cannot be split.
        assert!(splits > 0 && all["thp_split"] == splits + all["failed_splits"], "{all:?}");
        // A pass of the kernel's own may mark pages first, and a page that is in use does not move.
        assert!((500 * splits..=511 * splits).contains(&all["reapplied"]), "{all:?}");
        assert!((1..=splits).contains(&all["migrated"]) && all["marked"] == 512 * splits, "{all:?}");
        assert!(all["marked_moves"] > 0, "{all:?}");
    });
    checks.part("T21: a split by the last fault", || {
        let last = of("last");
        assert!(last["splits"] + last["failed_splits"] > 0, "{last:?}");
    });
    checks.part("the kernel's warnings", || assert_eq!(ran.section("warnings").trim(), "0"));
    checks.part("the report", || {
        let report = lab.json("work/report.json");
        assert_eq!(report["kernel_modules"], serde_json::json!(["nearside_thp.ko reapply=0"]));
    });
    drop(checks);
    lab.assert_nothing_left();
}

/// What is no module, or not the guest's kernel's, is refused before a machine boots; what the kernel refuses is named.
#[test]
fn modules_that_cannot_be_loaded_are_named() {
    let lab = Lab::new();
    std::fs::write(lab.path("work/no.ko"), "no module").unwrap();
    std::fs::write(lab.path("work/old.ko"), b"\x7fELF\0vermagic=5.10.0-amd64 SMP\0").unwrap();
    let load =
        |module: &str| lab.run(lab.command("small-4x2", &["--quiet", "--kernel-module", module], &["true"]), b"");
    load("missing.ko").failed(125, &["missing.ko", "no such file"]);
    load("no.ko").failed(125, &["no.ko", "no kernel module"]);
    load("old.ko").failed(125, &["old.ko", "built for Linux 5.10.0-amd64", "nearside lab setup --headers"]);
    load("no.ko,split").failed(2, &["`split` is no NAME=VALUE"]);
    if !build_module(&lab) {
        return;
    }
    for parameter in ["split=never", "splits=1"] {
        let module = format!("module/nearside_thp.ko,{parameter}");
        load(&module).failed(125, &["load the kernel module module/nearside_thp.ko"]);
    }
    lab.assert_nothing_left();
}
