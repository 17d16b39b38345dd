//! The guest's file system: the host's, read-only, below an in-memory overlay that takes every write.

use super::{GuestError, Tried};
use rustix::mount::{MountFlags, mount, mount_move};
use std::ffi::CString;
use std::path::Path;

/// Mount tags of the host's root, and of the folder whose files come back.
pub(crate) const ROOT_TAG: &str = "root";
pub(crate) const OUT_TAG: &str = "out";
/// Options of both mounts: the protocol of Linux servers, and messages large enough to load programs quickly.
const NINE_P: &str = "trans=virtio,version=9p2000.L,msize=512000";

const NEW_ROOT: &str = "/new";

fn mount_at(
    source: &str,
    target: impl AsRef<Path>,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> Result<(), GuestError> {
    let target = target.as_ref();
    let shown = target.display();
    std::fs::create_dir_all(target).tried(format!("make the folder {shown}"))?;
    let text = CString::new(options).map_err(std::io::Error::other).tried(format!("mount {shown}"))?;
    mount(source, target, kind, flags, Some(text.as_c_str()))
        .tried(format!("mount {source} ({kind}, {options}) on {shown}"))
}

/// The kernel's pseudo file systems.
pub(crate) fn mount_kernel_file_systems() -> Result<(), GuestError> {
    mount_at("proc", "/proc", "proc", MountFlags::empty(), "")?;
    mount_at("sysfs", "/sys", "sysfs", MountFlags::empty(), "")?;
    mount_at("devtmpfs", "/dev", "devtmpfs", MountFlags::empty(), "mode=0755")
}

/// Makes the host's file system the root, with the mounts that programs expect.
pub(crate) fn enter_host_root(out: Option<&Path>) -> Result<(), GuestError> {
    let none = MountFlags::empty();
    mount_at(ROOT_TAG, "/lower", "9p", MountFlags::RDONLY, &format!("{NINE_P},cache=loose,ro"))?;
    mount_at("tmpfs", "/layer", "tmpfs", none, "mode=0755")?;
    for folder in ["/layer/upper", "/layer/work"] {
        std::fs::create_dir(folder).tried(format!("make the folder {folder}"))?;
    }
    mount_at("overlay", NEW_ROOT, "overlay", none, "lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work")?;
    let at = |folder: &str| format!("{NEW_ROOT}{folder}");
    mount_at("proc", at("/proc"), "proc", none, "")?;
    mount_at("sysfs", at("/sys"), "sysfs", none, "")?;
    mount_at("devtmpfs", at("/dev"), "devtmpfs", none, "mode=0755")?;
    mount_at("devpts", at("/dev/pts"), "devpts", none, "mode=0620,ptmxmode=0666")?;
    mount_at("tmpfs", at("/dev/shm"), "tmpfs", none, "mode=1777")?;
    mount_at("tmpfs", at("/run"), "tmpfs", none, "mode=0755")?;
    // Distributions make it at boot: pqos and others have their lock files there.
    mount_at("tmpfs", at("/run/lock"), "tmpfs", none, "mode=1777")?;
    mount_at("debugfs", at("/sys/kernel/debug"), "debugfs", none, "")?;
    mount_at("tracefs", at("/sys/kernel/tracing"), "tracefs", none, "")?;
    mount_at("cgroup2", at("/sys/fs/cgroup"), "cgroup2", none, "")?;
    for (link, target) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let link = at(&format!("/dev/{link}"));
        std::os::unix::fs::symlink(format!("/proc/self/fd{target}"), &link).tried(format!("link {link}"))?;
    }
    if let Some(out) = out {
        let target = Path::new(NEW_ROOT).join(out.strip_prefix("/").unwrap_or(out));
        mount_at(OUT_TAG, &target, "9p", none, &format!("{NINE_P},cache=mmap"))?;
    }
    // As `switch_root` does it: where the root of a process is not that of its mount namespace, the kernel refuses it user
    // namespaces.
    std::env::set_current_dir(NEW_ROOT).tried("enter the new root")?;
    mount_move(".", "/").tried("move the new root to /")?;
    std::os::unix::fs::chroot(".").tried("make it the root")?;
    std::env::set_current_dir("/").tried("enter the root")
}

/// Describes the machine where programs look for it: the firmware's tables lack its measured properties.
pub(crate) fn describe_machine(machine: &str) -> Result<(), GuestError> {
    let file = Path::new(model::pmu::MACHINE_FILE);
    let folder = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, machine))
        .tried(format!("write {}", file.display()))
}
