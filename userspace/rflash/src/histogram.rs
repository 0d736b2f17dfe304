// SPDX-License-Identifier: GPL-2.0-only
//! The driver's latency histogram and what is read out of it.
//!
//! The layout is log-linear, see the control ABI: a bucket is at most 1/16 as
//! wide as the values in it. A percentile is the upper bound of the bucket in
//! which it lies, and never more than the maximum: it is not below the true
//! value and at most 6.25 % above.

use crate::netlink::NetlinkError;
use crate::uapi::{HIST_BUCKETS, HIST_SUB_BITS};

const SUB: usize = 1 << HIST_SUB_BITS;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty until something is counted.
    counts: Vec<u64>,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// Bucket of a latency.
pub fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let e = ns.ilog2();
    let index = (e as usize - 3) * SUB + ((ns >> (e - HIST_SUB_BITS)) as usize & (SUB - 1));
    index.min(HIST_BUCKETS - 1)
}

/// First latency of a bucket.
pub fn lower_bound(index: usize) -> u64 {
    if index < SUB {
        index as u64
    } else {
        ((SUB + index % SUB) as u64) << (index / SUB - 1)
    }
}

/// Last latency of a bucket; the last bucket holds everything beyond it too.
pub fn upper_bound(index: usize) -> u64 {
    if index + 1 >= HIST_BUCKETS {
        u64::MAX
    } else {
        lower_bound(index + 1) - 1
    }
}

impl Histogram {
    pub fn add(&mut self, index: usize, count: u64) -> Result<(), NetlinkError> {
        if self.counts.is_empty() {
            self.counts = vec![0; HIST_BUCKETS];
        }
        let slot = self.counts.get_mut(index).ok_or(NetlinkError::Malformed(
            "a histogram bucket beyond the last",
        ))?;
        *slot = slot.saturating_add(count);
        Ok(())
    }

    /// Requests in the histogram.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &c| sum.saturating_add(c))
    }

    /// Add the buckets of another, not its sum and maximum.
    pub fn join_buckets(&mut self, other: &Histogram) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
            return;
        }
        for (to, from) in self.counts.iter_mut().zip(&other.counts) {
            *to = to.saturating_add(*from);
        }
    }

    /// Add another.
    pub fn merge(&mut self, other: &Histogram) {
        self.join_buckets(other);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted since `before`. The maximum of the interval is not
    /// known: it is at most the upper bound of the last bucket in use.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let mut counts = self.counts.clone();
        for (now, then) in counts.iter_mut().zip(&before.counts) {
            *now = now.saturating_sub(*then);
        }
        let last = counts.iter().rposition(|&c| c > 0);
        Histogram {
            max_ns: last.map_or(0, |i| upper_bound(i).min(self.max_ns)),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            counts,
        }
    }

    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    pub fn max(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.max_ns)
    }

    /// The latency that `per_mille` of 1000 requests do not exceed.
    pub fn percentile_ns(&self, per_mille: u64) -> Option<u64> {
        let count = u128::from(self.count());
        if count == 0 {
            return None;
        }
        let rank = (count * u128::from(per_mille.min(1000)))
            .div_ceil(1000)
            .max(1);
        let mut seen = 0_u128;
        for (index, &here) in self.counts.iter().enumerate() {
            seen += u128::from(here);
            if seen >= rank {
                return Some(upper_bound(index).min(self.max_ns));
            }
        }
        Some(self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::default();
        for &v in values {
            h.add(bucket(v), 1).unwrap();
            h.sum_ns += v;
            h.max_ns = h.max_ns.max(v);
        }
        h
    }

    #[test]
    fn documented_examples() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(15), 15);
        assert_eq!(bucket(16), 16);
        assert_eq!(bucket(31), 31);
        assert_eq!(bucket(32), 32);
        assert_eq!(bucket(33), 32);
        assert_eq!(bucket((1 << 40) - 1), HIST_BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), HIST_BUCKETS - 1);
        assert_eq!(lower_bound(16), 16);
        assert_eq!(lower_bound(32), 32);
        assert_eq!(lower_bound(33), 34);
    }

    #[test]
    fn every_bucket_begins_where_the_last_ended() {
        for i in 0..HIST_BUCKETS - 1 {
            assert_eq!(bucket(lower_bound(i)), i);
            assert_eq!(bucket(upper_bound(i)), i);
            assert_eq!(upper_bound(i) + 1, lower_bound(i + 1));
        }
    }

    #[test]
    fn empty() {
        let h = Histogram::default();
        assert_eq!(
            (h.mean_ns(), h.percentile_ns(500), h.max()),
            (None, None, None)
        );
    }

    #[test]
    fn percentiles_of_few() {
        let h = of(&[100, 200, 300, 400]);
        assert_eq!(h.mean_ns(), Some(250.0));
        assert_eq!(h.percentile_ns(1000), Some(400));
        assert_eq!(h.percentile_ns(999), Some(400));
        assert_eq!(h.percentile_ns(500), Some(upper_bound(bucket(200))));
        assert_eq!(h.percentile_ns(0), Some(upper_bound(bucket(100))));
    }

    #[test]
    fn beyond_the_last_bucket_is_the_maximum() {
        let h = of(&[1 << 41, 3 << 40]);
        assert_eq!(h.percentile_ns(500), Some(3 << 40));
        assert!(Histogram::default().add(HIST_BUCKETS, 1).is_err());
    }

    proptest! {
        #[test]
        fn percentile_is_close_above(mut values in prop::collection::vec(0u64..1 << 40, 1..200),
                                     per_mille in 1u64..=1000) {
            let h = of(&values);
            values.sort_unstable();
            let rank = (values.len() as u64 * per_mille).div_ceil(1000) as usize;
            let truth = values[rank - 1];
            let got = h.percentile_ns(per_mille).unwrap();
            prop_assert!(got >= truth);
            prop_assert!(got as f64 <= truth as f64 * 1.0625 + 1.0, "{} for {}", got, truth);
            prop_assert!(got <= *values.last().unwrap());
        }

        #[test]
        fn merged_is_all(a in prop::collection::vec(0u64..1 << 40, 0..50),
                         b in prop::collection::vec(0u64..1 << 40, 0..50)) {
            let mut joined = of(&a);
            joined.merge(&of(&b));
            let all = of(&[a.clone(), b.clone()].concat());
            prop_assert_eq!(joined.count(), all.count());
            prop_assert_eq!(joined.percentile_ns(990), all.percentile_ns(990));
            let rest = all.since(&of(&a));
            prop_assert_eq!(rest.count(), b.len() as u64);
            prop_assert_eq!(rest.percentile_ns(500).is_some(), !b.is_empty());
        }
    }
}
