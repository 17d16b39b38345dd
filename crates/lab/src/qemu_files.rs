//! What QEMU gets of this program for one run, and how it is started with that.

use crate::LabError;
use crate::first_files::first_files;
use crate::passed_files::{by_number, find_plugin, inherited, memory, unpacked_kernel};
use crate::qemu_arguments::{Beginning, Files, KERNEL, arguments, beginning_arguments};
use crate::run::Run;
use crate::saved_boot::{Key, SavedBoot};
use crate::setup::Assets;
use linux::{ChildSetup, SharedWords};
use model::{Configuration, control_block, pmu};
use rustix::fs::OFlags;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

/// Files that QEMU inherits, by descriptor: unnamed memory, so that nothing can be left behind.
pub(crate) struct QemuFiles {
    plugin: PathBuf,
    plugin_file: OwnedFd,
    configuration: OwnedFd,
    pmu: OwnedFd,
    pmu_words: Arc<SharedWords>,
    control: Option<OwnedFd>,
    first_files: OwnedFd,
    out: Option<OwnedFd>,
}

impl QemuFiles {
    pub(crate) fn new(assets: &Assets, run: &Run) -> Result<Self, LabError> {
        let pmu = memory("nearside-pmu", pmu::BYTES, &[])?;
        let pmu_words = SharedWords::map(&pmu, pmu::BYTES).map_err(LabError::host("map the virtual PMU"))?;
        let configuration = Configuration {
            machine: run.shape.nested(),
            cpu_numbers: run.shape.numbers.clone(),
            memory: run.shape.memory.clone(),
            mechanisms: run.mechanisms.clone(),
            idles_with_host: run.task.terminal.is_some(),
        };
        let configuration = serde_json::to_vec(&configuration).map_err(LabError::host("write the configuration"))?;
        let first_files = first_files(assets, &run.shape)?;
        let plugin = find_plugin()?;
        let out = run.task.out.as_deref().map(|out| inherited(Path::new(out), OFlags::PATH | OFlags::DIRECTORY));
        let control = run.shape.machine.control.is_some();
        Ok(Self {
            plugin_file: inherited(&plugin, OFlags::RDONLY)?,
            plugin,
            configuration: memory("nearside-configuration", configuration.len(), &configuration)?,
            pmu,
            pmu_words: Arc::new(pmu_words),
            control: control.then(|| memory("nearside-control", control_block::BYTES, &[])).transpose()?,
            first_files: memory("nearside-first-files", first_files.len(), &first_files)?,
            out: out.transpose()?,
        })
    }

    /// The memory of the virtual PMU.
    pub(crate) fn pmu_words(&self) -> &Arc<SharedWords> {
        &self.pmu_words
    }

    /// What the state of the booted machine depends on.
    pub(crate) fn key(&self, assets: &Assets, run: &Run) -> Result<Key, LabError> {
        let mut key = Key::new();
        let unnumbered = Files::default();
        let out = self.out.as_ref().map(|_| Path::new("/"));
        for argument in arguments(assets, &run.shape, &unnumbered, out) {
            key.add(argument.as_bytes());
        }
        key.add(KERNEL.as_bytes());
        // What the guest sees of the simulated processor.
        let machine = serde_json::to_vec(&(run.shape.nested(), &run.shape.numbers));
        key.add(&machine.map_err(LabError::host("write the machine"))?);
        for file in [&assets.qemu.program, &assets.kernel_image] {
            key.add_file(file).map_err(|why| LabError::file("look at", file, why))?;
        }
        for file in [by_number(&self.plugin_file), by_number(&self.first_files)] {
            key.add(&fs::read(&file).map_err(|why| LabError::file("read", &file, why))?);
        }
        Ok(key)
    }

    /// Boots a machine. `monitor` is the socket of QEMU's monitor.
    pub(crate) fn boot(
        &self,
        assets: &Assets,
        run: &Run,
        port: &UnixStream,
        monitor: Option<&UnixStream>,
    ) -> Result<Child, LabError> {
        let kernel = unpacked_kernel(&assets.kernel_image)?;
        let beginning = Beginning::Boot {
            kernel: kernel.as_ref().map_or(assets.kernel_image.clone(), by_number),
            initrd: by_number(&self.first_files),
            monitor: monitor.map(AsRawFd::as_raw_fd),
        };
        self.start(assets, run, port, &beginning)
    }

    /// Continues a machine.
    pub(crate) fn continue_saved(
        &self,
        assets: &Assets,
        run: &Run,
        port: &UnixStream,
        saved: SavedBoot,
    ) -> Result<Child, LabError> {
        let clock_ns = saved.clock_ns;
        let state = saved.pipe().map_err(LabError::host("read a saved boot"))?;
        self.start(assets, run, port, &Beginning::Saved { state: state.as_raw_fd(), clock_ns })
    }

    fn start(&self, assets: &Assets, run: &Run, port: &UnixStream, beginning: &Beginning) -> Result<Child, LabError> {
        let files = Files {
            plugin: self.plugin.clone(),
            configuration: by_number(&self.configuration),
            pmu: by_number(&self.pmu),
            control: self.control.as_ref().map(by_number),
            port: port.as_raw_fd(),
        };
        // By descriptor, since a space or a colon would end a path here.
        let mut command = assets.qemu.command(&by_number(&self.plugin_file));
        command.args(arguments(assets, &run.shape, &files, self.out.as_ref().map(by_number).as_deref()));
        command.args(beginning_arguments(&files, beginning));
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.die_with_parent();
        // The terminal's signals are for this program, which then ends QEMU.
        command.process_group(0);
        command.spawn().map_err(|why| LabError::file("run", &assets.qemu.program, why))
    }
}
