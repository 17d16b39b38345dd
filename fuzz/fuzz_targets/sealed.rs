//! Tables with a correct signature, length and checksum, so that the fuzzer does not have to guess a checksum to get
//! past the header.

/// The bytes as a table: with this signature, their length and a correct checksum.
pub fn sealed(signature: &str, bytes: &[u8]) -> Vec<u8> {
    let mut table = bytes.to_vec();
    table.resize(bytes.len().max(36), 0);
    let length = table.len() as u32;
    table[..4].copy_from_slice(signature.as_bytes());
    table[4..8].copy_from_slice(&length.to_le_bytes());
    table[9] = 0;
    table[9] = table.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}
