//! Accesses by node of the CPU and of the memory.

use crate::costs::Costs;

/// Accesses, by index of the CPU's node (rows) and of the memory's (columns).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    nodes: usize,
    cells: Vec<f64>,
}

impl Matrix {
    /// All zeros.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, cells: vec![0.0; nodes * nodes] }
    }

    pub fn add(&mut self, from: usize, to: usize, accesses: f64) {
        self.cells[from * self.nodes + to] += accesses;
    }

    pub fn row(&self, from: usize) -> &[f64] {
        &self.cells[from * self.nodes..(from + 1) * self.nodes]
    }

    /// Sums of the rows.
    pub fn by_row(&self) -> Vec<f64> {
        (0..self.nodes).map(|from| self.row(from).iter().sum()).collect()
    }

    /// Sum of all.
    pub fn all(&self) -> f64 {
        self.cells.iter().sum()
    }

    /// Mean latency without load, ns. None without accesses, or if a latency is not known.
    pub fn mean_idle_ns(&self, costs: &Costs) -> Option<f64> {
        let mut sum = 0.0;
        for (at, accesses) in self.cells.iter().enumerate().filter(|(_, accesses)| **accesses > 0.0) {
            let [from, to] = [at / self.nodes, at % self.nodes].map(|index| costs.nodes()[index].id);
            sum += accesses * costs.distances().idle_ns(from, to)?;
        }
        Some(sum / self.all()).filter(|mean| mean.is_finite())
    }

    /// Sum of what is local.
    pub fn local(&self) -> f64 {
        (0..self.nodes).map(|node| self.row(node)[node]).sum()
    }

    /// Sums of the columns.
    pub fn by_column(&self) -> Vec<f64> {
        let column = |to: usize| self.cells.iter().skip(to).step_by(self.nodes.max(1)).sum();
        (0..self.nodes).map(column).collect()
    }

    /// Adds another, times a factor.
    pub fn join(&mut self, other: &Self, factor: f64) {
        for (cell, other) in self.cells.iter_mut().zip(&other.cells) {
            *cell += other * factor;
        }
    }

    /// Adds these accesses of each node, spread over memory with these weights.
    pub fn spread(&mut self, by_row: &[f64], weights: &[f64]) {
        for (from, accesses) in by_row.iter().enumerate() {
            for (to, weight) in weights.iter().enumerate() {
                self.add(from, to, accesses * weight);
            }
        }
    }

    /// Each row times a factor.
    pub fn with_rows(&self, factors: &[f64]) -> Self {
        let cells = self.cells.iter().enumerate().map(|(at, cell)| cell * factors[at / self.nodes]);
        Self { nodes: self.nodes, cells: cells.collect() }
    }

    /// Each column times a factor.
    pub fn with_columns(&self, factors: &[f64]) -> Self {
        let cells = self.cells.iter().enumerate().map(|(at, cell)| cell * factors[at % self.nodes]);
        Self { nodes: self.nodes, cells: cells.collect() }
    }

    /// This, and of `all` the rows without any samples.
    pub fn or_of(mut self, all: &Self, seen: &Self) -> Self {
        for from in (0..self.nodes).filter(|&from| seen.row(from).iter().all(|&samples| samples <= 0.0)) {
            let row = from * self.nodes..(from + 1) * self.nodes;
            self.cells[row.clone()].copy_from_slice(&all.cells[row]);
        }
        self
    }
}
