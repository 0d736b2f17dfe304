// SPDX-License-Identifier: GPL-2.0-only
//! Latencies, counted in buckets at most 1/64 as wide as the values in them.
//!
//! A percentile is the upper bound of the bucket it lies in, never above the
//! maximum: not below the true value and at most 1.6 % above it.

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Values of 2^40 ns (18 minutes) and above share the last bucket.
const TOP_BITS: u32 = 40;
const BUCKETS: usize = (TOP_BITS - SUB_BITS + 1) as usize * SUB;

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS].into(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let e = ns.ilog2();
    let index = (e - SUB_BITS + 1) as usize * SUB + ((ns >> (e - SUB_BITS)) as usize & (SUB - 1));
    index.min(BUCKETS - 1)
}

/// Last value of a bucket.
fn upper_bound(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    if index + 1 >= BUCKETS {
        return u64::MAX;
    }
    let shift = index / SUB - 1;
    ((((SUB + index % SUB) as u64) + 1) << shift) - 1
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if let Some(slot) = self.counts.get_mut(bucket(ns)) {
            *slot += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (to, from) in self.counts.iter_mut().zip(&other.counts) {
            *to += from;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nanoseconds; `None` of nothing.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The value that `per_mille` of 1000 do not exceed.
    pub fn percentile(&self, per_mille: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(per_mille.min(1000))).div_ceil(1000);
        let mut seen = 0;
        for (index, &here) in self.counts.iter().enumerate() {
            seen += u128::from(here);
            if seen >= rank.max(1) {
                return Some(upper_bound(index).min(self.max));
            }
        }
        Some(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other() {
        for index in 0..BUCKETS - 1 {
            let last = upper_bound(index);
            assert_eq!(bucket(last), index);
            assert_eq!(bucket(last + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing() {
        let h = Histogram::default();
        assert_eq!((h.percentile(500), h.min(), h.max()), (None, None, None));
        assert_eq!(h.mean(), None);
    }

    proptest! {
        #[test]
        fn close_above(mut values in prop::collection::vec(0_u64..1 << 42, 1..200),
                       split in 0_usize..200, per_mille in 1_u64..=1000) {
            let split = split.min(values.len());
            let (mut a, mut b) = (Histogram::default(), Histogram::default());
            for &v in &values[..split] {
                a.record(v);
            }
            for &v in &values[split..] {
                b.record(v);
            }
            a.merge(&b);
            values.sort_unstable();
            let rank = (values.len() as u64 * per_mille).div_ceil(1000) as usize;
            let truth = values[rank - 1];
            let got = a.percentile(per_mille).unwrap();
            prop_assert!(got >= truth && got <= *values.last().unwrap());
            if truth < upper_bound(BUCKETS - 2) {
                prop_assert!(got as f64 <= truth as f64 * (1.0 + 1.0 / 64.0) + 1.0);
            }
            prop_assert_eq!(a.count(), values.len() as u64);
            prop_assert_eq!(a.min(), values.first().copied());
        }
    }
}
