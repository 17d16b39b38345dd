//! Options that say which threads work, where, and on how much memory.

use clap::Args;
use machine::{CpuId, CpuSet, Places, SMALL_PAGE, chain, size};
use std::path::PathBuf;

/// Options of every verb.
#[derive(Args, Debug)]
pub struct Options {
    /// Memory to work on: bytes, or a number with K, M, G or T
    #[arg(long, default_value = "64M", value_parser = parse_size)]
    pub size: u64,
    /// Threads [default: one for each CPU in --pin or available to this process; chase: 1]
    #[arg(long, value_parser = parse_count)]
    pub threads: Option<usize>,
    /// Number of measurements
    #[arg(long, default_value = "5", value_parser = parse_count)]
    pub repeat: usize,
    /// Run the first thread on the first of these CPUs, the second on the second, and so on: 0-3,5 or 0,4,1,5; also in
    /// OpenMP's syntax, {0},{4} or {0-3},{4-7} [default: the places in `OMP_PLACES`, or any CPU]
    #[arg(long, value_name = "CPUS", value_parser = parse_pin)]
    pub pin: Option<Places>,
    /// Fill the memory from this CPU [default: the first thread's]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    pub touch_cpu: Option<CpuId>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Where the times of passes go.
#[derive(Args, Debug, Default)]
pub struct PassesOption {
    /// Write a line to this file whenever a pass, one of --repeat, ends: its time in seconds
    #[arg(long, value_name = "FILE")]
    pub passes: Option<PathBuf>,
}

/// Options of `rivals`.
#[derive(Args, Debug)]
pub struct RivalsOptions {
    #[command(flatten)]
    pub common: Options,
    #[command(flatten)]
    pub passes: PassesOption,
    /// Run a rival on each of these CPUs
    #[arg(long, value_name = "CPUS")]
    pub rivals: Option<CpuSet>,
    /// Fill the rivals' memory from this CPU [default: each rival its own]
    #[arg(long, value_name = "CPU", value_parser = parse_cpu, requires = "rivals")]
    pub rivals_touch_cpu: Option<CpuId>,
}

pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes < SMALL_PAGE { Err(format!("at least one page, {SMALL_PAGE} bytes")) } else { Ok(bytes) }
}

pub fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=1_000_000) => Ok(count),
        _ => Err("a number from 1 to 1000000".to_owned()),
    }
}

fn parse_pin(text: &str) -> Result<Places, String> {
    if text.trim().is_empty() {
        return Err("it names no CPU: give a list such as 0-3,5".to_owned());
    }
    text.parse().map_err(|error: machine::PlacesError| chain(&error))
}

fn parse_cpu(text: &str) -> Result<CpuId, String> {
    text.parse().map(CpuId).map_err(|_| "one CPU, by its number".to_owned())
}
