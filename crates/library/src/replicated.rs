//! Read-mostly data with a copy on each node: a reader gets the copy of the node that it runs on.

use crate::error::Error;
use crate::facts::all_nodes;
use crate::memory::allocate;
use linux::{CurrentNode, NodeFiles, NodeMemory};
use machine::{MemoryPolicy, NodeId, NodeSet};
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Values of plain data, with a copy on each of some nodes.
///
/// Reading takes no lock: [`write`](Self::write) excludes readers by its exclusive reference. Values that change while
/// other threads read belong into a lock (`RwLock<Replicated<T>>`). Each copy takes memory of its node, so replicas pay
/// off for data that is read much more often than written.
#[derive(Debug)]
pub struct Replicated<T> {
    copies: Vec<(NodeId, NodeMemory)>,
    /// The index of the copy that each node reads, by node number.
    copy_of: Vec<usize>,
    current: CurrentNode,
    /// Bytes of the values, at the start of each copy.
    bytes: usize,
    kind: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable> Replicated<T> {
    /// Copies the values to each of these nodes. Threads of other nodes read the copy of the nearest of them, by the
    /// firmware's distances. Needs no privileges. Errors as those of [`allocate`](crate::allocate); no value, and values
    /// without a size, are refused. A node that is full is refused by the kernel only when a page is written: the
    /// process then runs out of memory.
    pub fn new(values: &[T], nodes: &NodeSet) -> Result<Self, Error> {
        let attempt = || format!("keep {} values on each of the nodes {nodes}", values.len());
        let bytes = size_of_val(values);
        if nodes.is_empty() || bytes == 0 {
            let why = if bytes == 0 { "there is nothing to copy" } else { "the set is empty" };
            return Err(Error::argument(attempt(), why));
        }
        let mut copies = Vec::with_capacity(nodes.len());
        for node in nodes.iter() {
            let mut memory = allocate(bytes, &MemoryPolicy::bind(node))?;
            memory.contents_mut()[..bytes].copy_from_slice(values.as_bytes());
            copies.push((node, memory));
        }
        let all = all_nodes(&attempt)?;
        let last = all.last().map_or(0, |files| files.node.0 as usize);
        let mut copy_of = vec![0; last + 1];
        // The distances of a node are in the order of the online nodes.
        let columns: Vec<Option<usize>> =
            copies.iter().map(|(to, _)| all.iter().position(|files| files.node == *to)).collect();
        for files in &all {
            copy_of[files.node.0 as usize] = nearest(files, &copies, &columns);
        }
        Ok(Self { copies, copy_of, current: CurrentNode::new(), bytes, kind: PhantomData })
    }

    /// The values, on the node that the calling thread runs on or, without a copy there, on the nearest with one.
    #[inline]
    pub fn read(&self) -> &[T] {
        self.on(self.current.get())
    }

    /// The values as a thread of this node reads them.
    #[inline]
    pub fn on(&self, node: NodeId) -> &[T] {
        // A node that came online later reads the first copy.
        let index = self.copy_of.get(node.0 as usize).copied().unwrap_or(0);
        let whole = self.copies[index].1.contents();
        // Each copy is page-aligned and holds whole values.
        whole.get(..self.bytes).and_then(|bytes| <[T]>::ref_from_bytes(bytes).ok()).unwrap_or(&[])
    }

    /// Replaces values from an index on, in each copy. Values beyond the end are refused, and nothing is changed.
    pub fn write(&mut self, index: usize, values: &[T]) -> Result<(), Error> {
        let all = self.bytes / size_of::<T>();
        let beyond = || {
            Error::argument(
                format!("replace {} values from index {index} on", values.len()),
                format!("there are {all}"),
            )
        };
        let end = index.checked_add(values.len()).filter(|end| *end <= all).ok_or_else(beyond)?;
        let (start, end) = (index * size_of::<T>(), end * size_of::<T>());
        for (_, memory) in &mut self.copies {
            memory.contents_mut()[start..end].copy_from_slice(values.as_bytes());
        }
        Ok(())
    }

    /// The nodes that have a copy.
    pub fn nodes(&self) -> NodeSet {
        self.copies.iter().map(|(node, _)| *node).collect()
    }

    /// Whether the node of a reader is read from memory, which takes about 1 ns, rather than asked of the kernel, which
    /// takes a call: with glibc 2.35 and Linux 6.3.
    pub fn is_found_without_a_call(&self) -> bool {
        self.current.is_read_from_memory()
    }
}

/// The index of the copy nearest to a node; the lowest node's among equally near ones, and without distances. `columns` has
/// the column of each copy in a row of distances.
fn nearest(from: &NodeFiles, copies: &[(NodeId, NodeMemory)], columns: &[Option<usize>]) -> usize {
    let far = |index: &usize| {
        let distance = columns[*index].and_then(|column| from.distances.get(column).copied());
        if copies[*index].0 == from.node { 0 } else { distance.unwrap_or(u32::MAX) }
    };
    (0..copies.len()).min_by_key(far).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::allowed_memory_nodes;

    #[test]
    fn each_copy_has_the_values_and_a_write_reaches_all() {
        let Ok(nodes) = allowed_memory_nodes() else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let values: Vec<u64> = (0..1000).collect();
        let mut replicated = Replicated::new(&values, &nodes).unwrap();
        assert_eq!(replicated.read(), values);
        replicated.write(998, &[7, 8]).unwrap();
        for node in nodes.iter() {
            let copy = replicated.on(node);
            assert_eq!((copy.len(), copy[997], copy[998], copy[999]), (1000, 997, 7, 8));
            assert_eq!(linux::node_of(&copy[0]).unwrap(), node);
        }
        assert_eq!(replicated.on(NodeId(u32::MAX)).len(), 1000);
        assert_eq!(replicated.nodes(), nodes);
    }

    #[test]
    fn writes_beyond_the_end_and_copies_of_nothing_are_refused() {
        let Ok(nodes) = allowed_memory_nodes() else {
            return test_tools::skipped("memory policies may not be read here");
        };
        let mut replicated = Replicated::new(&[1_u32, 2, 3], &nodes).unwrap();
        for (index, count) in [(2, 2), (4, 0), (usize::MAX, 1), (usize::MAX, 2)] {
            let error = replicated.write(index, &vec![9; count]).unwrap_err();
            assert!(error.to_string().ends_with("there are 3"), "{error}");
        }
        replicated.write(3, &[]).unwrap();
        assert_eq!(replicated.read(), [1, 2, 3]);
        assert!(Replicated::<u8>::new(&[], &nodes).is_err());
        assert!(Replicated::new(&[1_u8], &NodeSet::new()).is_err());
        assert!(Replicated::new(&[1_u8], &[NodeId(1000)].into_iter().collect()).is_err());
    }
}
