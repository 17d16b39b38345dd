//! The lab's control words, as root's programs in its guest see them.

use super::control_word::{ControlWord, Interface, limit_text, ways_text};
use super::offer::{ControlDevice, LimitUnit, Offer, WayMasks, Words};
use linux::{SharedWords, pci_memory};
use machine::Machine;
use model::control_block::{self, ControlBlock};
use model::{ControlHardware, Controls, pmu};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::Path;

/// The device with the control words.
#[derive(Debug)]
pub(crate) struct LabControl {
    words: SharedWords,
    /// Locked by the one that changes words.
    file: File,
    hardware: ControlHardware,
    offer: Offer,
}

impl LabControl {
    /// The device of this machine, where it is a virtual machine of the lab with control hardware. Needs root.
    pub(super) fn open() -> io::Result<Option<Self>> {
        let path = Path::new(pmu::MACHINE_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let machine = Machine::load(path).map_err(io::Error::other)?;
        let Some(hardware) = ControlHardware::of(&machine) else { return Ok(None) };
        let bytes = control_block::BYTES;
        let memory = pci_memory(Path::new("/sys"), pmu::PCI_IDS, pmu::PCI_RESOURCE, bytes as u64);
        let Some(memory) = memory else { return Ok(None) };
        let file = File::options().read(true).write(true).open(&memory)?;
        let offer = offer_of(&hardware);
        Ok(Some(Self { words: SharedWords::map(&file, bytes)?, file, hardware, offer }))
    }

    fn block(&self) -> io::Result<ControlBlock<'_>> {
        ControlBlock::open(&self.words, &self.hardware).map_err(io::Error::other)
    }
}

/// What the lab's hardware can do.
pub(super) fn offer_of(hardware: &ControlHardware) -> Offer {
    Offer {
        classes: hardware.classes.into(),
        ways: hardware.ways.map(|ways| WayMasks { all: ways.all, least: ways.least, may_have_gaps: true }),
        limits: hardware.step_bytes_per_s.map(|step_bytes_per_s| LimitUnit::EachCpu { step_bytes_per_s }),
        caches: hardware.caches.clone(),
        counts_bytes: false,
    }
}

impl ControlDevice for LabControl {
    fn interface(&self) -> Interface {
        Interface::Lab
    }

    fn offer(&self) -> &Offer {
        &self.offer
    }

    fn values(&self) -> io::Result<Words> {
        Ok(words_of(&self.block()?.controls(&self.hardware)))
    }

    fn set(&self, word: ControlWord, text: &str) -> io::Result<()> {
        let value = word.parse(text).ok_or(io::ErrorKind::InvalidInput)?;
        let block = self.block()?;
        flock(&self.file, FlockOperation::LockExclusive)?;
        let changed = block.change(&self.hardware, |controls| {
            let _ = write(word, controls, value);
        });
        flock(&self.file, FlockOperation::Unlock)?;
        changed.map_err(io::Error::other)
    }
}

/// All words.
fn words_of(controls: &Controls) -> Words {
    let of_cpus = controls.classes.iter().enumerate();
    let of_cpus = of_cpus.map(|(cpu, class)| (ControlWord::Class { cpu }, class.to_string()));
    let of_classes = controls.shares.iter().enumerate().flat_map(|(class, shares)| {
        shares.iter().enumerate().flat_map(move |(cache, share)| {
            [
                (ControlWord::Ways { class, cache }, ways_text(share.ways)),
                (ControlWord::Limit { class, cache }, limit_text(share.bytes_per_s)),
            ]
        })
    });
    of_cpus.chain(of_classes).collect()
}

/// Changes a word among all. None if the hardware has no such word.
fn write(word: ControlWord, controls: &mut Controls, value: u64) -> Option<()> {
    *match word {
        ControlWord::Class { cpu } => controls.classes.get_mut(cpu)?,
        ControlWord::Ways { class, cache } => &mut controls.share_mut(class, cache)?.ways,
        ControlWord::Limit { class, cache } => &mut controls.share_mut(class, cache)?.bytes_per_s,
    } = value;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    #[test]
    fn words_are_read_as_they_are_written() {
        let hardware = ControlHardware::of(&presets::find("magny-cours-4p-control").unwrap()).unwrap();
        let (offer, mut controls) = (offer_of(&hardware), hardware.at_start());
        for (word, at_start, text) in [
            (ControlWord::Class { cpu: 7 }, "0", "3"),
            (ControlWord::Ways { class: 0, cache: 2 }, "0xffffffffff", "0xff"),
            (ControlWord::Limit { class: 0, cache: 7 }, "max", "125000000"),
        ] {
            assert_eq!(
                (words_of(&controls)[&word].as_str(), word.at_start(&offer).as_deref()),
                (at_start, Some(at_start))
            );
            assert_eq!(write(word, &mut controls, word.parse(text).unwrap()), Some(()));
            assert_eq!(words_of(&controls)[&word], text);
        }
        let none = ControlWord::Class { cpu: 48 };
        assert!(none.at_start(&offer).is_none() && write(none, &mut controls, 1).is_none());
    }
}
