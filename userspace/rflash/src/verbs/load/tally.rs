// SPDX-License-Identifier: GPL-2.0-only
//! What was done in a stretch of time.

use super::histogram::Histogram;

/// Reads or writes.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// From the intended start to the completion, ns.
    pub latency: Histogram,
}

/// Both.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub reads: Direction,
    pub writes: Direction,
}

impl Tally {
    #[inline]
    pub fn record(&mut self, write: bool, ns: u64) {
        let direction = if write {
            &mut self.writes
        } else {
            &mut self.reads
        };
        direction.latency.record(ns);
    }

    pub fn merge(&mut self, other: &Tally) {
        self.reads.latency.merge(&other.reads.latency);
        self.writes.latency.merge(&other.writes.latency);
    }

    pub fn count(&self) -> u64 {
        self.reads.latency.count() + self.writes.latency.count()
    }
}
