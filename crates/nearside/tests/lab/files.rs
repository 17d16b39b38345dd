//! Files of the host: those that come back through `--out`, those that an ordinary user can read, and a lab for
//! ordinary users.

use crate::support::{FAST, LIMIT, Lab, is_root_to, noise, open_to_others};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn files_below_out_come_back_and_others_do_not() {
    let lab = Lab::new();
    fs::write(lab.path("work/input"), noise(100_000)).unwrap();
    let script = "umask 027; cd 'kept, with spaces' && cp ../input copy && mkdir -p a/b && echo text > a/b/file && \
        cp /bin/true program && chmod 755 program && ln -s copy link && cmp link copy && stat -c %a copy && echo gone > ../gone && mv a/b/file a/b/renamed && : > empty && rm empty && kill -KILL $$";
    let options = ["--quiet", "--out", "kept, with spaces"];
    let ran = lab.script("small-2x2", &options, script);
    // The guest sees what it asked for, and the host plain files for their owner.
    assert_eq!((ran.status, ran.error.as_str(), ran.text()), (128 + 9, "", "640\n"));
    let out = lab.path("work/kept, with spaces");
    assert!(fs::read(out.join("copy")).unwrap() == noise(100_000));
    assert_eq!(fs::read_to_string(out.join("a/b/renamed")).unwrap(), "text\n");
    assert_eq!(fs::read_to_string(out.join("link")).unwrap(), "copy");
    let copy = fs::metadata(out.join("copy")).unwrap();
    assert_eq!((copy.mode() & 0o7777, copy.uid()), (0o600, rustix::process::getuid().as_raw()));
    assert!(Command::new(out.join("program")).status().unwrap().success(), "what the guest built runs on the host");
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "copy", "link", "program"]);
    assert!(!lab.path("work/gone").exists());
}

/// Needs root, which makes all of these on the host if QEMU lets it.
#[test]
fn root_of_the_guest_makes_no_device_and_no_setuid_file_on_the_host() {
    if !is_root_to("run the guest's command as root") {
        return;
    }
    let lab = Lab::new();
    let script = "cd out && cp /bin/true program && chmod 6755 program && mknod device c 1 3 && mkfifo pipe && \
        stat -c '%a %F' program device pipe && chown 1 program && ./program && echo ran";
    let ran = lab.script("small-2x2", &["--quiet", "--out", "out"], script).succeeded();
    let seen = "6755 regular file\n644 character special file\n644 fifo\nran\n";
    assert_eq!((ran.text(), ran.error.as_str()), (seen, ""));
    for name in ["program", "device", "pipe"] {
        let made = fs::symlink_metadata(lab.path("work/out").join(name)).unwrap();
        let expected = if name == "program" { 0o700 } else { 0o600 };
        assert_eq!((made.is_file(), made.mode() & 0o7777, made.uid()), (true, expected, 0), "{name}");
    }
}

/// The outputs of `lab run`, and of `place` and `compare` in the machine, under `umask 0`.
#[test]
fn outputs_under_umask_0_are_not_open_to_others() {
    let lab = Lab::new();
    let script = "umask; mkdir out/folder; echo > out/folder/file; \
        ../nearside place --policy interleave --log out/log --json out/place -- true && \
        ../nearside compare --policies first-touch,interleave --repeat 1 --json out/compare --html out/page -- sleep 0.1 && \
        stat -c '%a %n' out/log out/place out/compare out/page";
    let mut run = Command::new("sh");
    run.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(lab.path("nearside")).args([
        "lab",
        "run",
        "--machine",
        "small-2x2",
    ]);
    run.args(["--timeout", LIMIT, "--quiet", "--out", "out", "--json", "report", "--samples", "samples"]);
    run.args(FAST).args(["--", "sh", "-c", script]).current_dir(lab.path("work")).env("TMPDIR", lab.path("temporary"));
    let ran = lab.run(run, b"").succeeded();
    // The decision log is for the agent's group, too.
    let modes = "640 out/log\n600 out/place\n600 out/compare\n600 out/page\n";
    assert!(ran.text().starts_with("0000\n") && ran.text().ends_with(modes), "{}", ran.text());
    for name in ["report", "samples", "out/folder/file", "out/log", "out/place", "out/compare", "out/page"] {
        assert!(lab.path("work").join(name).exists(), "{name}");
    }
    assert_eq!(open_to_others(&lab.path("work")), []);
}

/// Needs root, for the small disk.
#[test]
fn a_full_disk_is_reported() {
    if !is_root_to("mount a small disk") {
        return;
    }
    let lab = Lab::new();
    let disk = lab.path("work/disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(&disk).status().unwrap();
    if !mounted.success() {
        return test_tools::skipped("a container's root may not mount");
    }
    // Linux writes files back later: the program only learns of the error if it syncs, nearside always.
    let ran =
        lab.script("small-2x2", &["--out", "disk"], "dd if=/dev/zero of=disk/file bs=64k count=64 conv=fsync; echo $?");
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!(ran.text(), "1\n");
    ran.failed(
        125,
        &[
            "No space left on device",
            "dd: fsync",
            "cannot keep what the command wrote to",
            "name another folder with --out",
        ],
    );
}

#[test]
fn an_out_folder_that_cannot_serve_is_refused_at_once() {
    let lab = Lab::new();
    fs::write(lab.path("work/file"), "").unwrap();
    let run = |out: &str| lab.script("small-2x2", &["--out", out], "true");
    run("file").failed(125, &["cannot make the folder file"]);
    run("/").failed(125, &["/: the guest has /dev, /proc, /run and /sys of its own"]);
    run("/proc/self").failed(125, &["/proc"]);
    lab.run(lab.command("small-2x2", &["--json", "no/such/report"], &["true"]), b"")
        .failed(125, &["cannot write to no/such/report: there is no folder no/such"]);
}

/// As root, runs everything as another user; an ordinary user has run all other tests already.
#[test]
fn an_ordinary_user_needs_no_rights_and_gets_none() {
    if !is_root_to("run the lab as another user") {
        return;
    }
    let lab = Lab::new();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(Into::into);
    let cache = cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"));
    if cache.join("nearside").exists() {
        fs::create_dir_all(lab.path("cache/nearside")).unwrap();
        // The user's own boots are saved here.
        for entry in
            fs::read_dir(cache.join("nearside")).unwrap().flatten().filter(|entry| entry.file_name() != "boots")
        {
            let copied = Command::new("cp").arg("-r").arg(entry.path()).arg(lab.path("cache/nearside")).status();
            assert!(copied.unwrap().success());
        }
        assert!(Command::new("chmod").args(["-R", "a+rX"]).arg(lab.path("cache")).status().unwrap().success());
    }
    fs::write(lab.path("secret"), "for root only").unwrap();
    fs::set_permissions(lab.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(lab.path("work/out")).unwrap();
    fs::set_permissions(lab.path("work/out"), fs::Permissions::from_mode(0o777)).unwrap();

    let script = "id -u; id -g; cat ../secret; cat /proc/1/environ; echo x > out/file; echo y > ../nearside; echo end";
    let mut run = Command::new("setpriv");
    run.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(lab.path("nearside"));
    run.args(["lab", "run", "--machine", "small-2x2", "--timeout", LIMIT, "--out", "out", "--json", "out/report"]);
    run.args(["--", "sh", "-c", script]);
    run.current_dir(lab.path("work")).env("TMPDIR", lab.path("temporary")).env("HOME", lab.path("work"));
    run.env("XDG_CACHE_HOME", lab.path("cache"));
    let ran = lab.run(run, b"").succeeded();
    assert_eq!(ran.text(), "65534\n65534\nend\n");
    for refused in [
        "../secret: Permission denied",
        "/proc/1/environ: Permission denied",
        "cannot create ../nearside: Permission denied",
    ] {
        assert!(ran.error.contains(refused), "no {refused:?} in {}", ran.error);
    }
    assert_eq!(lab.text("work/out/file"), "x\n");
    assert_eq!(fs::metadata(lab.path("work/out/file")).unwrap().uid(), 65534);
    assert!(lab.json("work/out/report")["time_s"].as_f64().unwrap() > 0.0);
}
