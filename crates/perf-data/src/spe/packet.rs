//! A packet: a header of one or two bytes, and a payload of up to eight bytes.

/// A decoded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Padding.
    Padding,
    /// End of a record without a timestamp.
    End,
    /// End of a record, with the generic timer's count.
    Timestamp(u64),
    /// A bit for each event of the operation.
    Events(u64),
    /// Data source of a load, in the encoding of the processor.
    DataSource(u64),
    /// `CONTEXTIDR_EL1` or `_EL2`: Linux stores the thread ID there.
    Context(u64),
    /// Type of the operation: its class, and details.
    Operation { class: u8, details: u64 },
    /// An address, and what it refers to.
    Address { what: u8, value: u64 },
    /// A duration in core cycles.
    Counter { what: u8, cycles: u64 },
}

// Headers. Bits 5 and 4 give the size of the payload; bits outside the mask are a subtype.
const PADDING: u8 = 0x00;
const END: u8 = 0x01;
const TIMESTAMP: u8 = 0x71;
const SIZED: u8 = 0b1100_1111;
const EVENTS: u8 = 0x42;
const DATA_SOURCE: u8 = 0x43;
const FOUR_KINDS: u8 = 0b1111_1100;
const CONTEXT: u8 = 0x64;
const OPERATION: u8 = 0x48;
const EXTENDED: u8 = 0x20;
const EIGHT_KINDS: u8 = 0b1111_1000;
const ADDRESS: u8 = 0xb0;
const COUNTER: u8 = 0x98;
/// Second byte of an extended header that is only padding.
const ALIGNMENT: u8 = 0x00;

/// Parses the packet at an offset, and returns it with its length. `None` if it is truncated or unknown.
pub(super) fn parse(data: &[u8], at: usize) -> Option<(Packet, usize)> {
    let rest = data.get(at..)?;
    let (&header, after) = rest.split_first()?;
    match header {
        PADDING => Some((Packet::Padding, 1)),
        END => Some((Packet::End, 1)),
        _ if header & FOUR_KINDS != EXTENDED => numbered(header, 0, after).map(|(packet, length)| (packet, 1 + length)),
        _ => {
            let (&second, after) = after.split_first()?;
            if second == ALIGNMENT {
                // Up to the next multiple of a power of two.
                let length = (at + 1).next_multiple_of(2 << (header & 0xf)) - at;
                return (length <= rest.len()).then_some((Packet::Padding, length));
            }
            let extended = numbered(second, (header & 3) << 3, after);
            // Only these packet types have extended headers.
            let extended =
                extended.filter(|(packet, _)| matches!(packet, Packet::Address { .. } | Packet::Counter { .. }));
            extended.map(|(packet, length)| (packet, 2 + length))
        }
    }
}

/// The packet with this header, and the length of its payload.
fn numbered(header: u8, more: u8, after: &[u8]) -> Option<(Packet, usize)> {
    let length = 1 << (header >> 4 & 3);
    let number = after.get(..length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let what = more | header & 7;
    let packet = match header {
        TIMESTAMP => Packet::Timestamp(number),
        _ if header & SIZED == EVENTS => Packet::Events(number),
        _ if header & SIZED == DATA_SOURCE => Packet::DataSource(number),
        _ if header & FOUR_KINDS == CONTEXT => Packet::Context(number),
        _ if header & FOUR_KINDS == OPERATION => Packet::Operation { class: header & 3, details: number },
        _ if header & EIGHT_KINDS == ADDRESS => Packet::Address { what, value: number },
        _ if header & EIGHT_KINDS == COUNTER => Packet::Counter { what, cycles: number },
        _ => return None,
    };
    Some((packet, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_packet_is_known_by_its_header() {
        let all: [(&[u8], Packet, usize); 12] = [
            (&[0, 1], Packet::Padding, 1),
            (&[1], Packet::End, 1),
            (&[0x71, 8, 7, 6, 5, 4, 3, 2, 1, 9], Packet::Timestamp(0x0102_0304_0506_0708), 9),
            (&[0x42, 0x16], Packet::Events(0x16), 2),
            (&[0x62, 0x16, 2, 0x40, 0], Packet::Events(0x40_0216), 5),
            (&[0x43, 0xe], Packet::DataSource(0xe), 2),
            (&[0x53, 0x0e, 1], Packet::DataSource(0x10e), 3),
            (&[0x65, 0x39, 0x30, 0, 0], Packet::Context(12345), 5),
            (&[0x49, 1], Packet::Operation { class: 1, details: 1 }, 2),
            (&[0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0xff], Packet::Address { what: 2, value: 0xff00_0000_0000_1000 }, 9),
            (&[0x98, 0x2c, 1], Packet::Counter { what: 0, cycles: 300 }, 3),
            (&[0x21, 0x9a, 7, 0], Packet::Counter { what: 10, cycles: 7 }, 4),
        ];
        for (bytes, packet, length) in all {
            assert_eq!(parse(bytes, 0), Some((packet, length)), "{bytes:x?}");
            assert_eq!(parse(&bytes[..length - 1], 0), None, "{bytes:x?} is cut");
        }
        // A doubly extended address, a timestamp in an extended header, and unassigned headers.
        for bytes in [[0x20, 0x20, 0, 0], [0x20, 0x42, 0, 0], [0xff, 0, 0, 0], [0x02, 0, 0, 0], [0x10, 0, 0, 0]] {
            assert_eq!(parse(&bytes, 0), None, "{bytes:x?}");
        }
    }

    #[test]
    fn alignment_goes_on_to_the_next_multiple() {
        let mut data = [1; 32];
        (data[3], data[4]) = (0x22, 0);
        assert_eq!(parse(&data, 3), Some((Packet::Padding, 5)));
        (data[8], data[9]) = (0x23, 0);
        assert_eq!(parse(&data, 8), Some((Packet::Padding, 8)));
        assert_eq!(parse(&data[..12], 8), None);
    }

    proptest! {
        #[test]
        fn no_packet_is_longer_than_the_data(data: Vec<u8>, at in 0_usize..40) {
            if let Some((_, length)) = parse(&data, at) {
                prop_assert!(length > 0 && at + length <= data.len());
            }
        }
    }
}
