//! Swaps of random elements of a netlist: PARSEC's canneal, which is bound by the latency of memory. Each thread anneals
//! a netlist of its own, in memory that it touched first.

use crate::error::{self, Error};
use crate::memory::{filled, share};
use crate::passes::Passes;
use crate::team::{Span, Team};
use machine::Random;
use serde::Serialize;
use std::fmt;
use std::sync::Mutex;

/// Nets of an element: the two that it drives, and the two that drive it.
const NETS: usize = 4;

/// An element, and where it is placed.
#[derive(Clone, Copy, Debug, Default)]
struct Element {
    /// The elements that it is connected to.
    nets: [u32; NETS],
    column: u16,
    row: u16,
}

/// A netlist of one thread.
struct Netlist {
    elements: Vec<Element>,
    random: Random,
    /// Length of all wires, by the changes of all swaps.
    length: i64,
    /// Increase of the length that is still accepted: it falls from pass to pass.
    most_increase: i64,
    accepted: u64,
}

/// Duration and result.
#[derive(Debug, Serialize)]
pub struct Annealed {
    /// Time of the passes, without making the netlists.
    #[serde(flatten)]
    span: Span,
    elements: usize,
    /// Swaps that were kept.
    accepted: u64,
    /// Length of all wires before and after.
    length_before: i64,
    length: i64,
}

impl fmt::Display for Annealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span: Span { seconds, .. }, elements, accepted, length_before, length } = self;
        write!(f, "{seconds:.4} s for {elements} elements, {accepted} swaps kept, wires {length_before} to {length}")
    }
}

/// Anneals netlists of `size` bytes in `repeat` passes of `swaps` swaps for each thread, or else of one for each element.
pub fn run(team: &Team, size: usize, repeat: usize, swaps: Option<usize>, passes: Passes) -> Result<Annealed, Error> {
    let all = size / size_of::<Element>();
    error::check_count(size, size_of::<Element>())?;
    let found = Mutex::new(Vec::new());
    let parts: Vec<(usize, Option<Netlist>)> = (0..team.threads).map(|thread| (thread, None)).collect();
    let failed = Mutex::new(None);
    let rounds = team.parallel_rounds(parts, 1 + repeat, |(thread, netlist), round| {
        if *thread == 0 && round > 0 {
            passes.next();
        }
        if round == 0 {
            match Netlist::new(share(all, team.threads, *thread).len(), *thread as u64) {
                Ok(new) => *netlist = Some(new),
                Err(error) => drop(failed.lock().map(|mut failed| *failed = Some(error))),
            }
        } else if let Some(netlist) = netlist {
            netlist.pass(swaps.unwrap_or(netlist.elements.len()));
        }
        if round == repeat
            && let (Some(netlist), Ok(mut found)) = (netlist.take(), found.lock())
        {
            found.push(netlist);
        }
    })?;
    passes.end()?;
    if let Some(error) = failed.into_inner().ok().flatten() {
        return Err(error);
    }
    let netlists = found.into_inner().unwrap_or_default();
    let mut annealed = Annealed {
        span: Span::from_rounds(&rounds[1..]),
        elements: netlists.iter().map(|netlist| netlist.elements.len()).sum(),
        accepted: netlists.iter().map(|netlist| netlist.accepted).sum(),
        length_before: 0,
        length: netlists.iter().map(|netlist| netlist.length).sum(),
    };
    for netlist in &netlists {
        annealed.length_before += netlist.check()?;
    }
    Ok(annealed)
}

impl Netlist {
    fn new(count: usize, thread: u64) -> Result<Self, Error> {
        let mut random = Random(thread + 1);
        let mut elements = filled(count, |index| Element {
            column: (index % columns(count)) as u16,
            row: (index / columns(count)) as u16,
            ..Element::default()
        })?;
        for first in [0, 2] {
            let drives = permutation(count, &mut random)?;
            for (index, to) in drives.into_iter().enumerate() {
                elements[index].nets[first] = to;
                elements[to as usize].nets[first + 1] = index as u32;
            }
        }
        let mut netlist =
            Self { elements, random, length: 0, most_increase: i64::from(columns(count) as u32 / 4), accepted: 0 };
        netlist.length = netlist.whole_length();
        Ok(netlist)
    }

    /// Tries some swaps of two random elements.
    #[inline(never)]
    fn pass(&mut self, swaps: usize) {
        for _ in 0..swaps {
            let [one, other] = [(); 2].map(|()| self.random.below(self.elements.len()));
            if one != other {
                self.swap(one, other);
            }
        }
        self.most_increase = self.most_increase * 3 / 4;
    }

    /// Swaps the places of two elements, if that does not lengthen the wires by too much.
    fn swap(&mut self, one: usize, other: usize) {
        let [a, b] = [self.elements[one], self.elements[other]];
        let mut change = 0;
        for (from, to, this, that) in [(a, b, one, other), (b, a, other, one)] {
            for net in from.nets.map(|net| net as usize) {
                // A wire between the two, or to itself, stays as long as it is.
                if net != this && net != that {
                    change += distance(&to, &self.elements[net]) - distance(&from, &self.elements[net]);
                }
            }
        }
        if change <= self.most_increase {
            (self.elements[one].column, self.elements[one].row) = (b.column, b.row);
            (self.elements[other].column, self.elements[other].row) = (a.column, a.row);
            self.length += change;
            self.accepted += 1;
        }
    }

    /// Of all wires, each counted at the element that drives it.
    fn whole_length(&self) -> i64 {
        let of = |element: &Element| {
            let driven = [element.nets[0], element.nets[2]];
            driven.map(|to| distance(element, &self.elements[to as usize])).into_iter().sum::<i64>()
        };
        self.elements.iter().map(of).sum()
    }

    /// The wires are as long as all changes of their length say, and each place has one element. Returns the length before
    /// the first pass, from elements in order.
    fn check(&self) -> Result<i64, Error> {
        error::check("the length of all wires", self.whole_length(), self.length)?;
        let count = self.elements.len();
        let mut places: Vec<usize> = Vec::new();
        places.extend(self.elements.iter().map(|element| place(element, count)));
        places.sort_unstable();
        for (expected, found) in places.into_iter().enumerate() {
            error::check("a place with one element", expected, found)?;
        }
        let at = |index: usize| Element {
            column: (index % columns(count)) as u16,
            row: (index / columns(count)) as u16,
            ..Element::default()
        };
        let driven = |(index, element): (usize, &Element)| {
            let to = [element.nets[0], element.nets[2]];
            to.map(|to| distance(&at(index), &at(to as usize))).into_iter().sum::<i64>()
        };
        Ok(self.elements.iter().enumerate().map(driven).sum())
    }
}

/// Columns of the square that elements are placed on.
fn columns(count: usize) -> usize {
    count.isqrt().max(1)
}

fn place(element: &Element, count: usize) -> usize {
    usize::from(element.row) * columns(count) + usize::from(element.column)
}

fn distance(one: &Element, other: &Element) -> i64 {
    i64::from(one.column.abs_diff(other.column)) + i64::from(one.row.abs_diff(other.row))
}

/// All numbers below `count`, in random order.
fn permutation(count: usize, random: &mut Random) -> Result<Vec<u32>, Error> {
    let mut all = filled(count, |index| index as u32)?;
    for index in (1..count).rev() {
        all.swap(index, random.below(index + 1));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annealing_shortens_wires_and_a_lost_element_is_found() {
        let mut netlist = Netlist::new(10_000, 3).unwrap();
        let before = netlist.length;
        (0..20).for_each(|_| netlist.pass(10_000));
        assert_eq!(netlist.check().unwrap(), before);
        assert!(netlist.length < before * 3 / 4 && netlist.accepted > 1000, "{before} to {}", netlist.length);
        let taken = netlist.elements[7];
        (netlist.elements[8].column, netlist.elements[8].row) = (taken.column, taken.row);
        assert!(netlist.check().is_err());
        netlist.length = netlist.whole_length();
        assert!(netlist.check().unwrap_err().to_string().contains("a place with one element"));
    }
}
