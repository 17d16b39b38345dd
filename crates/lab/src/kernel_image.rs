//! The guest's kernel in a form that QEMU starts at once. Distributions ship kernels that decompress themselves at
//! boot, which takes an emulated processor a second; the host needs a tenth of that.

use lzma_rust2::XzReader;
use object::elf::{FileHeader64, NoteType, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, ReadRef};
use std::io::Read;

/// Offsets of an x86 kernel image's header fields ("The Linux/x86 Boot Protocol"): number of setup sectors, signature,
/// protocol version, and position of the compressed kernel in the data after the setup code.
const SETUP_SECTORS: usize = 0x1f1;
const SIGNATURE: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;
/// The first protocol version that has the compressed kernel's position.
const VERSION_WITH_PAYLOAD: u16 = 0x208;
const SECTOR: usize = 512;
/// Magic numbers of compression formats.
const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Upper limit of a kernel's size in bytes, far above real ones; a damaged image could claim more.
const MOST_BYTES: u32 = 256 << 20;
/// The ELF note with the entry point of a kernel without setup code (Xen's PVH: `XEN_ELFNOTE_PHYS32_ENTRY`).
const START: (&[u8], NoteType) = (b"Xen", NoteType(18));

/// The kernel in an image, if it is compressed in a known format and can be started directly. Otherwise the image
/// itself has to be started, which takes longer.
pub(crate) fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    let payload = payload(image)?;
    // The kernel's build appends the size.
    let (compressed, size) = payload.split_last_chunk()?;
    let size = u32::from_le_bytes(*size);
    if size > MOST_BYTES {
        return None;
    }
    let mut kernel = Vec::with_capacity(size as usize);
    if compressed.starts_with(ZSTD) {
        zstd_safe::decompress(&mut kernel, compressed).ok()?;
    } else if compressed.starts_with(XZ) {
        XzReader::new(compressed, true).take(size.into()).read_to_end(&mut kernel).ok()?;
    }
    (kernel.len() == size as usize && says_where_to_start(kernel.as_slice())).then_some(kernel)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| image.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let version = image.get(VERSION..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))?;
    if !image.get(SIGNATURE..)?.starts_with(b"HdrS") || version < VERSION_WITH_PAYLOAD {
        return None;
    }
    // For historical reasons, 0 stands for 4.
    let setup_sectors = match *image.get(SETUP_SECTORS)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let begin = (1 + setup_sectors) * SECTOR + number(PAYLOAD_OFFSET)?;
    image.get(begin..begin.checked_add(number(PAYLOAD_BYTES)?)?)
}

/// Whether a kernel has the note that QEMU needs to start it without setup code.
fn says_where_to_start<'data>(kernel: impl ReadRef<'data>) -> bool {
    let found = || {
        let header = FileHeader64::<LittleEndian>::parse(kernel).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, kernel).ok()?;
        for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_NOTE) {
            let mut notes = segment.notes(endian, kernel).ok()??;
            while let Some(note) = notes.next().ok()? {
                if (note.name(), note.n_type(endian)) == START {
                    return Some(());
                }
            }
        }
        None
    };
    found().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A 64-bit kernel that consists only of a note.
    fn kernel(note: (&[u8; 4], u32)) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, number: &[u8]| bytes[at..at + number.len()].copy_from_slice(number);
        put(16, &[2, 0, 62, 0, 1]);
        put(32, &64_u64.to_le_bytes());
        put(52, &[64, 0, 56, 0, 1]);
        put(64, &4_u32.to_le_bytes());
        put(72, &120_u64.to_le_bytes());
        put(96, &24_u64.to_le_bytes());
        put(112, &4_u64.to_le_bytes());
        for number in [4, 8, note.1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(note.0);
        bytes.extend([0; 8]);
        bytes
    }

    /// An image around this compressed data.
    fn image(compressed: &[u8], size: usize) -> Vec<u8> {
        let mut image = vec![0; 3 * SECTOR + 16];
        image[SETUP_SECTORS] = 2;
        image[SIGNATURE..][..4].copy_from_slice(b"HdrS");
        image[VERSION..][..2].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[PAYLOAD_OFFSET..][..4].copy_from_slice(&16_u32.to_le_bytes());
        image[PAYLOAD_BYTES..][..4].copy_from_slice(&(compressed.len() as u32 + 4).to_le_bytes());
        image.extend(compressed);
        image.extend((size as u32).to_le_bytes());
        image
    }

    fn zstd(kernel: &[u8]) -> Vec<u8> {
        let mut compressed = Vec::with_capacity(zstd_safe::compress_bound(kernel.len()));
        zstd_safe::compress(&mut compressed, kernel, 3).unwrap();
        compressed
    }

    #[test]
    fn a_kernel_that_says_where_it_starts_is_unpacked() {
        let good = kernel((b"Xen\0", 18));
        let compressed = zstd(&good);
        assert_eq!(unpacked(&image(&compressed, good.len())), Some(good.clone()));
        assert_eq!(unpacked(&image(&compressed, good.len() + 1)), None, "wrong size");
        assert_eq!(unpacked(&image(&compressed, 1 << 30)), None, "claims to be too large");
        for (name, number) in [(b"Xen\0", 6), (b"Zen\0", 18)] {
            let other = kernel((name, number));
            assert_eq!(unpacked(&image(&zstd(&other), other.len())), None, "QEMU cannot start it");
        }
        let whole = image(&compressed, good.len());
        for length in 0..whole.len() {
            assert_eq!(unpacked(&whole[..length]), None, "cut after {length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_payload_is_unpacked_or_refused(mut payload in prop::collection::vec(any::<u8>(), 0..200), xz: bool) {
            let good = kernel((b"Xen\0", 18));
            payload.splice(0..0, if xz { XZ } else { ZSTD }.iter().copied());
            prop_assert_eq!(unpacked(&image(&payload, good.len())), None);
        }
    }
}
