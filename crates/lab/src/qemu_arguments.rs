//! QEMU's command line for the virtual machine.

use crate::guest::ROOT_TAG;
use crate::out_folder;
use crate::protocol::PORT;
use crate::setup::Assets;
use crate::shape::Shape;
use machine::Distances;
use model::{control_block, pmu};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Files that QEMU opens by descriptor: unnamed memory, so that nothing can be left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    pub(crate) plugin: PathBuf,
    pub(crate) configuration: PathBuf,
    pub(crate) pmu: PathBuf,
    /// Control words, if the machine has control hardware.
    pub(crate) control: Option<PathBuf>,
    /// Descriptor of the connected socket behind the guest's serial port.
    pub(crate) port: i32,
}

/// How a virtual machine begins. Numbers are those of descriptors that QEMU inherits.
#[derive(Clone, Debug)]
pub(crate) enum Beginning {
    /// It boots this kernel with these first files. With a connected socket, its state can be saved.
    Boot { kernel: PathBuf, initrd: PathBuf, monitor: Option<i32> },
    /// It continues from a saved state, a pipe's, with the guest's clock at this value, ns.
    Saved { state: i32, clock_ns: u64 },
}

/// The kernel's command line. The guest's clock is the time stamp counter, which the plugin derives from simulated
/// time, one tick per nanosecond. Options switch off what slows booting and has no effect afterwards.
/// `proc_mem.force_override` lets root copy pages of other processes, which newer Debian kernels reserve for debuggers.
pub(crate) const KERNEL: &str = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic tsc_early_khz=1000000 tsc=reliable lpj=1000000 \
    mitigations=off audit=0 apparmor=0 random.trust_cpu=on nokaslr cryptomgr.notests maxcpus=1 \
    cgroup_disable=pressure no_timer_check edd=off cpu_init_udelay=0 rcupdate.rcu_expedited=1 transparent_hugepage_shmem=never \
    proc_mem.force_override=always";

fn memory_id(node: usize) -> String {
    format!("memory{node}")
}

/// QEMU's arguments for the machine itself: those that a saved state depends on.
pub(crate) fn arguments(assets: &Assets, shape: &Shape, files: &Files, out: Option<&Path>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: String| arguments.extend([OsString::from(option), OsString::from(value)]);
    let nodes = &shape.nested().nodes;
    let memory: u64 = nodes.iter().map(|node| node.memory_bytes).sum();

    // Without the description of its contents, a saved state ends where QEMU has all of it (`saved_boot::WITHHELD`).
    add("-machine", "pc,graphics=off,usb=off,vmport=off,hpet=off,suppress-vmdesc=on".into());
    add("-accel", "tcg,thread=multi".into());
    // Without fast short and enhanced string instructions Linux copies and clears eight bytes at a time; QEMU runs each
    // step of a string instruction as a separate access.
    // Page tables have four levels, as on the presets' machines: the plugin reads them. With MTRRs or page attributes,
    // Linux stops all CPUs for each one that it starts, which takes most of the boot time.
    add("-cpu", "max,-erms,-fsrm,-la57,-mtrr,-pat".into());
    add("-m", format!("{}M", memory >> 20));
    let t = shape.topology;
    let cpus = shape.machine.cpus().len();
    add("-smp", format!("{cpus},sockets={},dies={},cores={},threads={}", t.sockets, t.dies, t.cores, t.threads));
    for (index, node) in nodes.iter().enumerate() {
        let mut numa = vec![format!("node,nodeid={index}")];
        numa.extend(
            node.cpus.to_string().split(',').filter(|range| !range.is_empty()).map(|range| format!("cpus={range}")),
        );
        if node.memory_bytes > 0 {
            let id = memory_id(index);
            numa.push(format!("memdev={id}"));
            add("-object", format!("memory-backend-ram,id={id},size={},reserve=off", node.memory_bytes));
        }
        add("-numa", numa.join(","));
    }
    for (from, to, distance) in distances(shape) {
        add("-numa", format!("dist,src={from},dst={to},val={distance}"));
    }
    for option in ["-nodefaults", "-no-user-config", "-no-reboot"] {
        arguments.push(option.into());
    }
    let mut add = |option: &str, value: String| arguments.extend([OsString::from(option), OsString::from(value)]);
    add("-display", "none".into());
    // As many threads as the guest may read files at a time; none of them ends, so that the plugin knows all of them.
    add("-object", "main-loop,id=main-loop,thread-pool-min=8,thread-pool-max=8".into());
    add("-serial", "stdio".into());
    add("-device", "virtio-serial-pci".into());
    add("-chardev", format!("socket,id=port,fd={}", files.port));
    add("-device", format!("virtserialport,chardev=port,name={PORT}"));
    add("-object", format!("memory-backend-file,id=pmu,mem-path={},size={},share=on", files.pmu.display(), pmu::BYTES));
    // Only a master's machine can be saved.
    add("-device", "ivshmem-plain,memdev=pmu,master=on".into());
    if let Some(control) = &files.control {
        let (path, size) = (control.display(), control_block::BYTES);
        add("-object", format!("memory-backend-file,id=control,mem-path={path},size={size},share=on"));
        add("-device", "ivshmem-plain,memdev=control,master=on".into());
    }
    add("-virtfs", format!("local,path=/,mount_tag={ROOT_TAG},readonly=on,security_model=none,multidevs=remap"));
    if let Some(out) = out {
        add("-virtfs", out_folder::option(out));
    }
    if let Some(firmware) = &assets.qemu.firmware {
        add("-L", firmware.display().to_string());
    }
    // Without a limit: a thread that keeps one would pass for a file worker, which the plugin knows by timed waits.
    add("-global", "migration.x-max-bandwidth=0".into());
    arguments
}

/// QEMU's further arguments: how the machine begins, and the plugin.
pub(crate) fn beginning_arguments(files: &Files, beginning: &Beginning) -> Vec<OsString> {
    let plugin = files.plugin.display().to_string().replace(',', ",,");
    let mut plugin = format!("{plugin},config={},pmu={}", files.configuration.display(), files.pmu.display());
    if let Some(control) = &files.control {
        plugin += ",control=";
        plugin += &control.display().to_string();
    }
    let mut arguments = Vec::new();
    match beginning {
        Beginning::Boot { kernel, initrd, monitor } => {
            arguments.extend(["-kernel".into(), kernel.display().to_string()]);
            arguments.extend(["-initrd".into(), initrd.display().to_string()]);
            arguments.extend(["-append".into(), KERNEL.into()]);
            if let Some(socket) = monitor {
                arguments.extend(["-chardev".into(), format!("socket,id=monitor,fd={socket}")]);
                arguments.extend(["-mon".into(), "chardev=monitor,mode=control".into()]);
            }
        }
        Beginning::Saved { state, clock_ns } => {
            plugin += ",clock=";
            plugin += &clock_ns.to_string();
            arguments.extend(["-incoming".into(), format!("fd:{state}")]);
        }
    }
    arguments.extend(["-plugin".into(), plugin]);
    arguments.into_iter().map(OsString::from).collect()
}

/// Firmware distances for QEMU, which requires 10 for local and 11 to 255 for others.
fn distances(shape: &Shape) -> Vec<(usize, usize, u32)> {
    let Some(Distances { matrix, .. }) = &shape.machine.distances else { return Vec::new() };
    let rows = matrix.iter().enumerate();
    rows.flat_map(|(from, row)| row.iter().enumerate().map(move |(to, &distance)| (from, to, distance)))
        .map(|(from, to, distance)| (from, to, if from == to { 10 } else { distance.clamp(11, 255) }))
        .collect()
}
