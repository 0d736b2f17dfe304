// SPDX-License-Identifier: GPL-2.0-only
//! A histogram of latencies with one writer.
//!
//! The layout is log-linear: 32 buckets to each power of two, from 64 ns to
//! 137 s, one bucket below and everything beyond in the last. A bucket is at
//! most 3.2 % as wide as the values in it, and a histogram is 8 KiB.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets to a power of two, as a power of two.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// The first value with a bucket of its own is 2^FIRST_BITS ns.
const FIRST_BITS: u32 = 6;
/// The last power of two with buckets: up to 2^37 ns, 137 s.
const LAST_BITS: u32 = 36;
const BUCKETS: usize = 1 + (LAST_BITS - FIRST_BITS + 1) as usize * SUB;

/// Bucket of a latency in nanoseconds.
#[inline]
fn bucket(ns: u64) -> usize {
    if ns < 1 << FIRST_BITS {
        return 0;
    }
    let bits = ns.ilog2();
    let sub = (ns >> (bits - SUB_BITS)) as usize & (SUB - 1);
    (1 + (bits - FIRST_BITS) as usize * SUB + sub).min(BUCKETS - 1)
}

/// First latency beyond a bucket; the last bucket holds all that is beyond.
fn end(index: usize) -> u64 {
    match index.checked_sub(1) {
        None => 1 << FIRST_BITS,
        Some(i) => {
            let bits = FIRST_BITS + (i / SUB) as u32;
            ((SUB + i % SUB + 1) as u64) << (bits - SUB_BITS)
        }
    }
}

/// Latencies in nanoseconds: one thread records, any thread takes snapshots.
#[derive(Debug)]
pub struct Histogram {
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    counts: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

#[inline]
fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Histogram {
    /// Count one latency. Only the histogram's one writer calls this.
    #[inline]
    pub fn record(&self, ns: u64) {
        if let Some(count) = self.counts.get(bucket(ns)) {
            add(count, 1);
        }
        add(&self.sum_ns, ns);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(ns, Relaxed);
        }
    }

    /// Count `n` equal latencies, as of a batch. Only the one writer calls this.
    #[inline]
    pub fn record_n(&self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        if let Some(count) = self.counts.get(bucket(ns)) {
            add(count, n);
        }
        add(&self.sum_ns, ns.wrapping_mul(n));
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(ns, Relaxed);
        }
    }

    /// What has been counted so far. What is recorded meanwhile may be in it or
    /// not.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.merge_into(&mut snapshot);
        snapshot
    }

    /// Add what has been counted so far to `into`, without a copy of its own.
    pub fn merge_into(&self, into: &mut Snapshot) {
        into.counts.resize(BUCKETS, 0);
        for (to, from) in into.counts.iter_mut().zip(&self.counts) {
            *to = to.wrapping_add(from.load(Relaxed));
        }
        into.sum_ns = into.sum_ns.wrapping_add(self.sum_ns.load(Relaxed));
        into.max_ns = into.max_ns.max(self.max_ns.load(Relaxed));
    }
}

/// A histogram at one moment, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Empty until something is merged into it.
    counts: Vec<u64>,
    pub sum_ns: u64,
    /// The longest since the start; of a difference, the end of the last bucket
    /// in use.
    pub max_ns: u64,
}

impl Snapshot {
    /// Latencies in it.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Add another.
    pub fn merge(&mut self, other: &Snapshot) {
        self.counts.resize(BUCKETS, 0);
        for (to, from) in self.counts.iter_mut().zip(&other.counts) {
            *to = to.wrapping_add(*from);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted since `before`, an earlier snapshot of the same.
    pub fn since(&self, before: &Snapshot) -> Snapshot {
        let mut counts = self.counts.clone();
        for (now, then) in counts.iter_mut().zip(&before.counts) {
            *now = now.saturating_sub(*then);
        }
        let last = counts.iter().rposition(|&c| c > 0);
        Snapshot {
            max_ns: last.map_or(0, |i| end(i).min(self.max_ns)),
            sum_ns: self.sum_ns.wrapping_sub(before.sum_ns),
            counts,
        }
    }

    /// The latency in nanoseconds that the share `q` (0 to 1) does not exceed;
    /// nothing when nothing was counted. It is the end of a bucket: not below
    /// the true value and at most 3.2 % above it.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * q.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        for (index, here) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*here);
            if seen >= rank {
                return Some(end(index).min(self.max_ns));
            }
        }
        Some(self.max_ns)
    }

    /// Nothing when nothing was counted.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// Latencies above `ns`, to the resolution of a bucket: those whose bucket
    /// begins at or beyond it.
    pub fn above(&self, ns: u64) -> u64 {
        let first = bucket(ns) + 1;
        self.counts.iter().skip(first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_touch_and_are_narrow() {
        assert_eq!(BUCKETS, 993);
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(end(index) - 1), index);
            assert_eq!(bucket(end(index)), index + 1, "after bucket {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(bucket(100_000_000_000) < BUCKETS - 1);
        for index in 2..BUCKETS {
            let begin = end(index - 1);
            let width = end(index) - begin;
            assert!(width as f64 / begin as f64 <= 0.0313, "bucket {index}");
        }
    }

    #[test]
    fn quantiles() {
        let h = Histogram::default();
        assert_eq!(h.snapshot().quantile(0.5), None);
        assert_eq!(h.snapshot().mean_ns(), None);
        for us in 1..=1000 {
            h.record(us * 1000);
        }
        let s = h.snapshot();
        assert_eq!(s.count(), 1000);
        assert_eq!(s.mean_ns(), Some(500_500));
        assert_eq!(s.quantile(1.0), Some(1_000_000));
        for (q, want) in [(0.5, 500_000.0), (0.95, 950_000.0), (0.99, 990_000.0)] {
            let got = s.quantile(q).unwrap() as f64;
            assert!((want..=want * 1.032).contains(&got), "{q}: {got}");
        }
        assert!((480..=500).contains(&s.above(500_000)));
    }

    #[test]
    fn differences_and_sums() {
        let h = Histogram::default();
        h.record(1_000_000);
        let before = h.snapshot();
        h.record_n(5_000, 1);
        h.record_n(5_000, 0);
        let passed = h.snapshot().since(&before);
        assert_eq!((passed.count(), passed.sum_ns), (1, 5_000));
        assert!((5_000..5_160).contains(&passed.max_ns));
        let mut sum = passed.clone();
        sum.merge(&before);
        assert_eq!((sum.count(), sum.max_ns), (2, 1_000_000));
        assert_eq!(Snapshot::default().since(&Snapshot::default()).count(), 0);
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_below_and_hardly_above(
            mut values in prop::collection::vec(64_u64..1 << 37, 1..200),
            q in 0.0_f64..=1.0,
        ) {
            let h = Histogram::default();
            for v in &values {
                h.record(*v);
            }
            values.sort_unstable();
            let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len());
            let truth = values[rank - 1] as f64;
            let got = h.snapshot().quantile(q).unwrap() as f64;
            prop_assert!(got >= truth && got <= truth * 1.0313 + 1.0, "{got} for {truth}");
        }
    }
}
