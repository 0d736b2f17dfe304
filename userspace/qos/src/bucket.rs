// SPDX-License-Identifier: GPL-2.0-only
//! The shared bucket: what nobody was promised or needs, for best effort.
//!
//! Tokens come in at `rate`, which is the device's less that of the active
//! latency-critical tenants, and from who has a surplus. While best-effort
//! tenants wait, all of it is poured out by weight at once: `flow` holds the sum
//! of their weights and how many grains one unit of weight has been given since
//! the beginning. A tenant's share since it last looked is its weight times the
//! difference, whoever else came and went: it costs nothing per tenant to pour,
//! and no order of threads changes who gets what. While nobody waits, the
//! bucket fills to its limit and the rest expires.
//!
//! Hazards. The interval of time between two values of `clock` belongs to the
//! thread that moved it, which alone credits its tokens. A rate is changed
//! first and `clock`'s version after, so that a thread that computed with the
//! old rate fails to move the clock past the change. Where two threads race
//! here, tokens of some nanoseconds are not made; none is ever made twice.

use crate::sync::{AcqRel, Acquire, AtomicI64, AtomicU64, Relaxed};
use crate::ticks::{earned, mask, since};

/// Bits of `clock` that count changes of the rate; the rest is nanoseconds.
const VERSION_BITS: u32 = 6;
const CLOCK_BITS: u32 = 64 - VERSION_BITS;
/// Bits of `flow` for grains per weight. They wrap, which nobody who settles
/// once a second notices; the sum of weights has the other 24.
pub(crate) const FLOW_BITS: u32 = 40;
/// Greatest sum of weights: half of what there is room for, since removed
/// tenants weigh something until their last request has run.
pub(crate) const WEIGHTS_MAX: u64 = mask(63 - FLOW_BITS);

#[repr(align(128))]
pub(crate) struct Bucket {
    clock: AtomicU64,
    flow: AtomicU64,
    level: AtomicI64,
    rate: AtomicI64,
    limit: AtomicI64,
    /// Grains that came in at the rate.
    earned: AtomicU64,
    expired: AtomicU64,
}

impl Bucket {
    pub(crate) fn new() -> Bucket {
        Bucket {
            clock: AtomicU64::new(0),
            flow: AtomicU64::new(0),
            level: AtomicI64::new(0),
            rate: AtomicI64::new(0),
            limit: AtomicI64::new(0),
            earned: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }

    pub(crate) fn level(&self) -> i64 {
        self.level.load(Relaxed)
    }

    pub(crate) fn limit(&self) -> i64 {
        self.limit.load(Relaxed)
    }

    pub(crate) fn set_limit(&self, grains: i64) {
        self.limit.store(grains, Relaxed);
    }

    /// Tokens a second that come in. It is below zero when the device's rate
    /// was made less than was promised; nothing comes in then.
    pub(crate) fn rate(&self) -> i64 {
        self.rate.load(Relaxed)
    }

    pub(crate) fn earned(&self) -> u64 {
        self.earned.load(Relaxed)
    }

    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    /// Sum of the weights of those who wait.
    pub(crate) fn weights(&self) -> u64 {
        self.flow.load(Acquire) >> FLOW_BITS
    }

    /// Grains given to one unit of weight, wrapping.
    pub(crate) fn flow(&self) -> u64 {
        self.flow.load(Acquire) & mask(FLOW_BITS)
    }

    /// Lets time pass up to `now`; returns up to when it has passed.
    pub(crate) fn settle(&self, now: u64) -> u64 {
        let now = now & mask(CLOCK_BITS);
        let mut word = self.clock.load(Acquire);
        loop {
            let from = word >> VERSION_BITS;
            let elapsed = since(now, from, CLOCK_BITS);
            if elapsed == 0 {
                return from;
            }
            let rate = self.rate.load(Acquire);
            let (grains, rest) = earned(u64::try_from(rate).unwrap_or(0), elapsed);
            if grains == 0 && rate > 0 {
                return from;
            }
            let to = now.wrapping_sub(rest) & mask(CLOCK_BITS);
            let next = (to << VERSION_BITS) | (word & mask(VERSION_BITS));
            match self.clock.compare_exchange(word, next, AcqRel, Acquire) {
                // The first time that is told begins the account.
                Ok(0) => return to,
                Ok(_) => {
                    self.earned.fetch_add(grains.unsigned_abs(), Relaxed);
                    self.add(grains);
                    return to;
                }
                Err(current) => word = current,
            }
        }
    }

    /// Lets time pass up to a moment of which only the low `bits` are known and
    /// which is not far from now.
    pub(crate) fn settle_to(&self, moment: u64, bits: u32) -> u64 {
        let clock = self.clock.load(Acquire) >> VERSION_BITS;
        self.settle(clock.wrapping_add(since(moment, clock, bits)))
    }

    /// Changes the rate by so many tokens a second; returns the moment from
    /// which on nobody counts with the old one.
    pub(crate) fn change_rate(&self, by: i64) -> u64 {
        self.rate.fetch_add(by, AcqRel);
        let mut word = self.clock.load(Acquire);
        loop {
            let moment = word >> VERSION_BITS;
            if moment == 0 {
                return 0;
            }
            let version = (word + 1) & mask(VERSION_BITS);
            let next = (moment << VERSION_BITS) | version;
            match self.clock.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) => return moment,
                Err(current) => word = current,
            }
        }
    }

    /// Puts grains in, for whoever comes.
    pub(crate) fn add(&self, grains: i64) {
        if grains > 0 {
            self.level.fetch_add(grains, AcqRel);
            self.pour();
        }
    }

    /// Takes over what a tenant left that is no more.
    pub(crate) fn inherit(&self, credit: i64, earned: u64, expired: u64) {
        self.level.fetch_add(credit, AcqRel);
        self.earned.fetch_add(earned, Relaxed);
        self.expired.fetch_add(expired, Relaxed);
        self.pour();
    }

    /// Gives what there is to those who wait; with nobody there, lets expire
    /// what is above the limit.
    pub(crate) fn pour(&self) {
        loop {
            let level = self.level.load(Acquire);
            let Ok(amount @ 1..) = u64::try_from(level) else {
                return;
            };
            let flow = self.flow.load(Acquire);
            let weights = flow >> FLOW_BITS;
            if weights == 0 {
                if self.trim(level) {
                    return;
                }
                continue;
            }
            let each = (amount / weights).min(mask(FLOW_BITS - 1));
            if each == 0 {
                return;
            }
            let given = (each * weights) as i64;
            let taken = self
                .level
                .compare_exchange(level, level - given, AcqRel, Relaxed);
            if taken.is_err() {
                continue;
            }
            if self.raise(flow, each) {
                return;
            }
            self.level.fetch_add(given, AcqRel);
        }
    }

    /// Gives every weight `each` grains, unless the weights are others by now.
    fn raise(&self, mut flow: u64, each: u64) -> bool {
        let weights = flow >> FLOW_BITS;
        while flow >> FLOW_BITS == weights {
            let next = (flow + each) & mask(FLOW_BITS) | (weights << FLOW_BITS);
            match self.flow.compare_exchange(flow, next, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(current) => flow = current,
            }
        }
        false
    }

    fn trim(&self, level: i64) -> bool {
        let limit = self.limit();
        if level <= limit {
            return true;
        }
        let trimmed = self
            .level
            .compare_exchange(level, limit, AcqRel, Relaxed)
            .is_ok();
        if trimmed {
            self.expired.fetch_add(level.abs_diff(limit), Relaxed);
        }
        trimmed
    }

    /// One more waits, or one less; returns the flow at that moment.
    pub(crate) fn change_weights(&self, by: i64) -> u64 {
        let by = (by as u64) << FLOW_BITS;
        self.flow.fetch_add(by, AcqRel) & mask(FLOW_BITS)
    }

    /// Takes `need` grains or, where there is plenty, up to `want`. Only while
    /// nobody waits, whose they would be. The last to get something may overdraw
    /// the bucket, else a large request would never run.
    pub(crate) fn take(&self, need: i64, want: i64) -> Option<i64> {
        let mut level = self.level.load(Acquire);
        loop {
            if level <= 0 || self.weights() > 0 {
                return None;
            }
            let amount = need.max(want.min(level / 4));
            match self
                .level
                .compare_exchange(level, level - amount, AcqRel, Acquire)
            {
                Ok(_) => return Some(amount),
                Err(current) => level = current,
            }
        }
    }
}
