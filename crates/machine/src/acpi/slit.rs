//! SLIT: the relative distance of each pair of proximity domains (ACPI 6.5, 5.2.17).

use super::AcpiError;
use super::table::Table;
use zerocopy::little_endian::U64;

const COUNT_AT: usize = 36;
const MATRIX_AT: usize = 44;
/// Distance of a domain to itself, by definition.
pub(super) const LOCAL: u32 = 10;
/// Linux's default for a pair of domains that the table does not cover (`REMOTE_DISTANCE`).
pub(super) const REMOTE: u32 = 20;

/// The locality matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slit {
    localities: usize,
    matrix: Vec<u8>,
}

impl Slit {
    /// Parses and checks the table. As in Linux, the diagonal is 10 and everything else more than 10 (255:
    /// unreachable).
    pub fn parse(bytes: &[u8]) -> Result<Self, AcpiError> {
        let table = Table::open("SLIT", bytes)?;
        let count = table.read::<U64>(COUNT_AT, "number of localities")?.get();
        let cells = usize::try_from(count).ok().and_then(|count| count.checked_mul(count));
        let Some(cells) = cells else {
            return Err(table.error(
                COUNT_AT,
                "number of localities",
                format!("is {count}, more than any table can hold"),
            ));
        };
        let localities = count as usize;
        let matrix = table.list::<u8>(MATRIX_AT, cells, "matrix")?.to_vec();
        for (cell, &distance) in matrix.iter().enumerate() {
            let (from, to) = (cell / localities, cell % localities);
            if (u32::from(distance) == LOCAL) != (from == to) || u32::from(distance) < LOCAL {
                let rule = format!("from domain {from} to {to} is {distance}: must be 10 to itself and more to others");
                return Err(table.error(MATRIX_AT + cell, "distance", rule));
            }
        }
        Ok(Self { localities, matrix })
    }

    /// The number of domains in the table.
    pub fn localities(&self) -> usize {
        self.localities
    }

    /// The distance between two domains; Linux's defaults (10 and 20) for domains that the table does not cover.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let covered = |domain: u32| usize::try_from(domain).ok().filter(|&domain| domain < self.localities);
        let cell = covered(from).zip(covered(to)).and_then(|(from, to)| self.matrix.get(from * self.localities + to));
        cell.map_or(if from == to { LOCAL } else { REMOTE }, |&distance| u32::from(distance))
    }
}
