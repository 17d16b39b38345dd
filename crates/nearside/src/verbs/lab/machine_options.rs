//! Options of the virtual machine and how it runs, shared by all verbs that use one.

use crate::options::candidates;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use lab::setup::KernelVersion;
use lab::{Changes, KernelModule, LabError, Shape};
use machine::{Disk, presets, size};
use model::{Mechanism, Mechanisms};
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::str::FromStr;

/// The machine, and how it runs.
#[derive(Clone, Debug, Args)]
pub struct MachineOptions {
    /// The machine: a preset (see `nearside lab list`), or a machine file (a path with a / or ending in .toml)
    #[arg(long, short, value_name = "PRESET|FILE", add = ArgValueCompleter::new(candidates::lab_machines))]
    machine: String,

    /// Memory of each node that has any, such as 512M or 2G. The host provides memory only as the guest uses it
    #[arg(long, requires = "machine", value_name = "SIZE", value_parser = size::parse, default_value = "1G")]
    memory_per_node: u64,

    /// Use only the first N CPUs of each node
    #[arg(long, requires = "machine", value_name = "N")]
    pub(super) cpus_per_node: Option<u32>,

    /// How Linux numbers CPUs: those of a package one after the other, of a node, and of a core (nested), or in the order
    /// of the preset's numbers, as the firmware of its machine does (preset)
    #[arg(long, requires = "machine", value_enum, default_value = "nested")]
    cpu_numbers: CpuNumbers,

    /// How much of the memory model to use
    #[arg(long, requires = "machine", value_enum, default_value = "full")]
    fidelity: Fidelity,

    /// Switch off parts of the model, separated by commas: translation (TLBs and page walks), overlap (of independent
    /// load misses), coherence (lines in other caches, and probes to them), write-backs, load-curves (latency rises
    /// before bandwidth is exhausted), siblings (share a core's path to memory), streams (prefetchers), store-buffer
    #[arg(long, requires = "machine", value_name = "PART", value_delimiter = ',')]
    without: Vec<Mechanism>,

    /// The disk that holds all files: latency and bandwidth [default: the machine file's, or else 50us,500MB/s]
    #[arg(long, requires = "machine", value_name = "LATENCY,BANDWIDTH")]
    disk: Option<Disk>,

    /// The guest's kernel, fetched before by `nearside lab setup --kernel VERSION`: a series such as 6.18, a release
    /// such as 6.18.15, or newest [default: the one of `nearside lab setup`, of series 6.12]
    #[arg(long, requires = "machine", value_name = "VERSION")]
    pub kernel: Option<KernelVersion>,

    /// Switch the kernel's own NUMA balancing on or off [default: as the kernel has it, on]
    #[arg(long, requires = "machine", value_enum)]
    pub numa_balancing: Option<Switch>,

    /// Transparent huge pages [default: as the kernel has it, always]
    #[arg(long, requires = "machine", value_enum)]
    pub thp: Option<HugePages>,

    /// Divide the periods of kernel services that work in seconds (NUMA balancing, khugepaged) by this, so that an
    /// experiment with them fits in a short run; reports state it
    #[arg(long, requires = "machine", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub time_scale: u32,

    /// Load this kernel module before the command starts, with parameters as for insmod. It has to be built for the
    /// guest's kernel, with the headers of `nearside lab setup --headers`. May be given several times
    #[arg(long, requires = "machine", value_name = "FILE[,NAME=VALUE...]")]
    pub kernel_module: Vec<ModuleToLoad>,

    /// Boot the machine, even if the same one has booted before: otherwise it continues from the state that was saved
    /// then, with other random numbers
    #[arg(long, requires = "machine")]
    pub fresh_boot: bool,

    /// End the run after this much host time, including boot
    #[arg(long, requires = "machine", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CpuNumbers {
    Nested,
    Preset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fidelity {
    /// The full model
    Full,
    /// Without translation, overlap and coherence: faster, and as accurate for programs that wait for memory one line
    /// after another, or read it sequentially
    Fast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HugePages {
    Always,
    Madvise,
    Never,
}

/// A kernel module's file, and its parameters as for `insmod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleToLoad {
    file: PathBuf,
    parameters: String,
}

impl FromStr for ModuleToLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<ModuleToLoad, String> {
        let (file, parameters) = text.split_once(',').unwrap_or((text, ""));
        let parameters: Vec<&str> = parameters.split(',').filter(|parameter| !parameter.is_empty()).collect();
        if let Some(wrong) = parameters.iter().find(|parameter| !parameter.contains('=')) {
            return Err(format!("`{wrong}` is no NAME=VALUE"));
        }
        Ok(ModuleToLoad { file: file.into(), parameters: parameters.join(" ") })
    }
}

impl Display for ModuleToLoad {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.file.file_name().unwrap_or_default().display();
        if self.parameters.is_empty() { write!(f, "{name}") } else { write!(f, "{name} {}", self.parameters) }
    }
}

impl MachineOptions {
    /// The kernel modules to load, for a kernel of this release.
    pub fn kernel_modules(&self, release: &str) -> Result<Vec<KernelModule>, LabError> {
        let modules = self.kernel_module.iter();
        modules.map(|module| KernelModule::read(&module.file, &module.parameters, release)).collect()
    }

    /// The preset or file.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// The machine, reduced to the chosen size.
    pub fn shape(&self) -> Result<Shape, Box<dyn Error>> {
        let mut preset = presets::load(&self.machine)?;
        preset.disk = self.disk.clone().or(preset.disk);
        let changes = Changes {
            memory_per_node: Some(self.memory_per_node),
            cpus_per_node: self.cpus_per_node,
            cpu_numbers: match self.cpu_numbers {
                CpuNumbers::Nested => lab::CpuNumbers::Nested,
                CpuNumbers::Preset => lab::CpuNumbers::Preset,
            },
        };
        Ok(lab::shape(&preset, changes).map_err(LabError::from)?)
    }

    /// The parts of the model that are switched on.
    pub fn mechanisms(&self) -> Mechanisms {
        let mut mechanisms = match self.fidelity {
            Fidelity::Full => Mechanisms::full(),
            Fidelity::Fast => Mechanisms::fast(),
        };
        self.without.iter().for_each(|&part| mechanisms.remove(part));
        mechanisms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_a_file_and_parameters() {
        let module: ModuleToLoad = "./a/b.ko,split=page,reset=1".parse().expect("a module");
        assert_eq!((module.file.as_path(), module.parameters.as_str()), ("./a/b.ko".as_ref(), "split=page reset=1"));
        assert_eq!(module.to_string(), "b.ko split=page reset=1");
        assert_eq!("b.ko".parse::<ModuleToLoad>().expect("a module").to_string(), "b.ko");
        assert_eq!("b.ko,split".parse::<ModuleToLoad>(), Err("`split` is no NAME=VALUE".to_owned()));
    }
}
