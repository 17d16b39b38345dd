//! The parts of a machine's description that the model requires, with checked numbers.

use crate::cache::Cache;
use crate::cpu::{CpuCaches, NO_CACHE};
use crate::memory_map::MemoryMap;
use crate::resources::picoseconds;
use crate::{LINE_BYTES, ModelError};
use machine::{CacheKind, CpuId, Machine};

/// One each ps.
const MOST_INSTRUCTIONS_PER_S: f64 = 1e12;

/// The description of a core, with numbers that the model can use.
pub(crate) fn core(machine: &Machine) -> Result<&machine::Core, ModelError> {
    let missing = || ModelError::Missing { machine: machine.name.clone(), field: "core".to_owned() };
    let core = machine.core.as_ref().ok_or_else(missing)?;
    let numbers = [
        ("core.clock_hz", core.clock_hz),
        ("core.instructions_per_cycle", core.instructions_per_cycle),
        ("core.stream_bandwidth_bytes_per_s", core.stream_bandwidth_bytes_per_s),
        ("core.stream_lines", f64::from(core.stream_lines)),
        ("core.store_lines", f64::from(core.store_lines)),
    ];
    let out_of_range = |field: &str, number: f64, rule| {
        let (machine, field, value) = (machine.name.clone(), field.to_owned(), number.to_string());
        ModelError::OutOfRange { machine, field, value, rule }
    };
    if let Some((field, number)) = numbers.into_iter().find(|(_, number)| !(number.is_finite() && *number > 0.0)) {
        return Err(out_of_range(field, number, "it must be above 0"));
    }
    // A program that waits for a time has to reach it.
    if core.clock_hz * core.instructions_per_cycle > MOST_INSTRUCTIONS_PER_S {
        let rule = "with the core's clock, an instruction must take 1 ps at least";
        return Err(out_of_range("core.instructions_per_cycle", core.instructions_per_cycle, rule));
    }
    Ok(core)
}

/// All caches and, for each CPU in ascending order, the indexes of its own.
pub(crate) fn caches(machine: &Machine, map: &MemoryMap) -> Result<(Box<[Cache]>, Vec<CpuCaches>), ModelError> {
    let out_of_range = |field: String, value: u64, rule| {
        let (machine, value) = (machine.name.clone(), value.to_string());
        ModelError::OutOfRange { machine, field, value, rule }
    };
    let missing = |field: String| ModelError::Missing { machine: machine.name.clone(), field };
    let ids: Vec<CpuId> = machine.cpus().iter().collect();
    let none = CpuCaches { data: NO_CACHE, instruction: NO_CACHE, level2: NO_CACHE, level3: NO_CACHE, last: NO_CACHE };
    let mut of_cpus = vec![none; ids.len()];
    let mut caches = Vec::new();
    for (index, cache) in machine.caches.iter().enumerate() {
        if !(1..=3).contains(&cache.level) {
            let field = format!("cache[{index}].level");
            return Err(out_of_range(field, cache.level.into(), "the model supports levels 1 to 3"));
        }
        if u64::from(cache.line_bytes) != LINE_BYTES {
            let field = format!("cache[{index}].line_bytes");
            return Err(out_of_range(field, cache.line_bytes.into(), "the model supports lines of 64 bytes only"));
        }
        let field = || format!("latency_ns of cache[{index}] (level {})", cache.level);
        let latency_ps = match cache.latency_ns {
            Some(ns) => picoseconds(machine, ns, field)?,
            // A hit costs nothing beyond the instruction, and no PMU samples the latency of a fetch.
            None if cache.kind == CacheKind::Instruction => 0,
            None => return Err(missing(field())),
        };
        for cpus in machine.cache_instances(cache) {
            let made = Cache::new(cache.size_bytes, cache.ways, latency_ps).map_err(|_| {
                let field = format!("cache[{index}].size_bytes");
                out_of_range(field, cache.size_bytes, "the host has no room for it: some 5 bytes per line")
            })?;
            if map.end / LINE_BYTES >= made.line_limit() {
                let field = format!("cache[{index}].size_bytes");
                return Err(out_of_range(field, cache.size_bytes, "it is too small for the tags of this much memory"));
            }
            for cpu in cpus.iter() {
                let Ok(cpu) = ids.binary_search(&cpu) else { continue };
                let own = &mut of_cpus[cpu];
                let places: &mut [&mut u32] = match (cache.level, cache.kind) {
                    (1, CacheKind::Data) => &mut [&mut own.data],
                    (1, CacheKind::Instruction) => &mut [&mut own.instruction],
                    (1, CacheKind::Unified) => &mut [&mut own.data, &mut own.instruction],
                    (2, _) => &mut [&mut own.level2],
                    _ => &mut [&mut own.level3],
                };
                for place in places {
                    **place = caches.len() as u32;
                }
            }
            caches.push(made);
        }
    }
    for own in &mut of_cpus {
        own.last = [own.level3, own.level2, own.data].into_iter().find(|&cache| cache != NO_CACHE).unwrap_or(NO_CACHE);
    }
    match of_cpus.iter().position(|own| own.data == NO_CACHE) {
        Some(cpu) => Err(missing(format!("an L1 data cache of CPU {}", ids[cpu]))),
        None => Ok((caches.into(), of_cpus)),
    }
}
