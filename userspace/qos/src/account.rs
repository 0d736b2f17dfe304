// SPDX-License-Identifier: GPL-2.0-only
//! A tenant's account: one, whatever threads serve it.
//!
//! An account takes part ("is in") while a thread has use for it: a
//! latency-critical tenant's from its first request until it has been quiet for
//! some rounds, a best-effort tenant's while requests wait or are still to be
//! paid for. While it is in, it earns; while it is out, its rate flows into the
//! bucket and nobody looks at it.
//!
//! Hazards. `word` is state, version, number of threads for which it is in,
//! and the position up to which it was settled: a moment for latency-critical
//! tenants, the bucket's flow for best effort. Who moves the position from a to
//! b credits what lies between; nobody else does. Going in or out takes two
//! steps, one here and one in the bucket. Who begins sets MOVING and finishes,
//! also on behalf of those who came or went meanwhile; they never wait. Nobody
//! earns in between, but the balance can be spent. `terms` change only under
//! MOVING, and every return from it has another version, so a thread that
//! counted with the old terms fails to move the position.

use crate::bucket::{Bucket, FLOW_BITS};
use crate::sync::{AcqRel, Acquire, AtomicI64, AtomicU32, AtomicU64, Relaxed, Release, pause};
use crate::ticks::{earned, grains, mask, over, since};

/// A round, in nanoseconds: how often a thread looks after its tenants.
pub(crate) const ROUND: u64 = 50_000;
/// How much a latency-critical tenant may keep when it needs nothing, in time
/// of its rate: three rounds, as ReFlex.
const SURPLUS: u64 = 3 * ROUND;
/// How much it may gather while its threads don't come round to it.
const HOARD: u64 = 10_000_000;

const POSITION_BITS: u32 = 48;
const MEMBER: u64 = 1 << POSITION_BITS;
const MEMBERS: u64 = mask(10) << POSITION_BITS;
const VERSION: u64 = 1 << 58;
const VERSIONS: u64 = 0xf << 58;
const STATES: u64 = 3 << 62;
const OUT: u64 = 0;
const IN: u64 = 1 << 62;
const MOVING: u64 = 2 << 62;

/// What a tenant was granted, in one word: it changes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// No tenant.
    Vacant,
    /// Tokens a second, and how many it may owe.
    LatencyCritical {
        rate: u32,
        deficit: u32,
    },
    BestEffort {
        weight: u32,
    },
}

const DEFICIT_BITS: u32 = 30;

impl Terms {
    pub(crate) const DEFICIT_MAX: u32 = mask(DEFICIT_BITS) as u32;

    fn pack(self) -> u64 {
        match self {
            Terms::Vacant => 0,
            Terms::LatencyCritical { rate, deficit } => {
                (1 << 62) | (u64::from(deficit.min(Terms::DEFICIT_MAX)) << 32) | u64::from(rate)
            }
            Terms::BestEffort { weight } => (2 << 62) | u64::from(weight),
        }
    }

    fn unpack(word: u64) -> Terms {
        let low = word as u32;
        match word >> 62 {
            1 => Terms::LatencyCritical {
                rate: low,
                deficit: (word >> 32) as u32 & Terms::DEFICIT_MAX,
            },
            2 => Terms::BestEffort { weight: low },
            _ => Terms::Vacant,
        }
    }

    /// Balance above which a request may run. Its whole cost is charged, so the
    /// balance ends at most one request below.
    pub(crate) fn floor(self) -> i64 {
        match self {
            Terms::LatencyCritical { deficit, .. } => -grains(i64::from(deficit)),
            _ => 0,
        }
    }

    pub(crate) fn rate(self) -> u64 {
        match self {
            Terms::LatencyCritical { rate, .. } => u64::from(rate),
            _ => 0,
        }
    }
}

#[repr(align(128))]
pub(crate) struct Account {
    word: AtomicU64,
    terms: AtomicU64,
    /// Grains.
    credit: AtomicI64,
    /// Threads that have requests, tokens or a membership of this tenant.
    pub(crate) holders: AtomicU32,
    pub(crate) counters: Counters,
}

/// Grains since the tenant was added; written rarely, never per request.
pub(crate) struct Counters {
    pub(crate) earned: AtomicU64,
    /// Got from the bucket, less what went back unused.
    pub(crate) taken: AtomicI64,
    pub(crate) donated: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) borrowed: AtomicU64,
    /// Requests, not grains.
    pub(crate) waits: AtomicU64,
}

impl Counters {
    fn new() -> Counters {
        Counters {
            earned: AtomicU64::new(0),
            taken: AtomicI64::new(0),
            donated: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            borrowed: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }
}

impl Account {
    pub(crate) fn new() -> Account {
        Account {
            word: AtomicU64::new(OUT),
            terms: AtomicU64::new(Terms::Vacant.pack()),
            credit: AtomicI64::new(0),
            holders: AtomicU32::new(0),
            counters: Counters::new(),
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms::unpack(self.terms.load(Acquire))
    }

    pub(crate) fn credit(&self) -> i64 {
        self.credit.load(Acquire)
    }

    pub(crate) fn deposit(&self, grains: i64) {
        self.credit.fetch_add(grains, AcqRel);
    }

    /// One more thread has use for the account.
    pub(crate) fn join(&self, bucket: &Bucket, now: u64) {
        let mut word = self.word.load(Acquire);
        loop {
            let begin = word & STATES == OUT;
            let state = if begin { MOVING } else { word & STATES };
            let next = (word & !STATES | state) + MEMBER;
            match self.word.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) if begin => return self.finish(bucket, now, None),
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }

    /// One less. Whoever calls it has called [`Account::join`] before.
    pub(crate) fn leave(&self, bucket: &Bucket, now: u64) {
        let mut word = self.word.load(Acquire);
        loop {
            let last = word & STATES == IN && word & MEMBERS == MEMBER;
            let state = if last { MOVING } else { word & STATES };
            let next = (word & !STATES | state) - MEMBER;
            match self.word.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) if last => return self.finish(bucket, now, Some(word & mask(POSITION_BITS))),
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }

    /// Replaces the terms; the caller is alone in doing so. What was earned up
    /// to the bucket's time is earned by the old ones.
    pub(crate) fn change(&self, bucket: &Bucket, terms: Terms) {
        let mut word = self.word.load(Acquire);
        loop {
            if word & STATES == MOVING {
                pause();
                word = self.word.load(Acquire);
                continue;
            }
            let next = word & !STATES | MOVING;
            match self.word.compare_exchange(word, next, AcqRel, Acquire) {
                Ok(_) => break,
                Err(current) => word = current,
            }
        }
        if word & STATES == IN {
            self.exit(bucket, 0, word & mask(POSITION_BITS));
        }
        self.terms.store(terms.pack(), Release);
        self.finish(bucket, 0, None);
    }

    /// Ends MOVING, with the account in or out as the number of threads wants it.
    fn finish(&self, bucket: &Bucket, now: u64, mut position: Option<u64>) {
        loop {
            let word = self.word.load(Acquire);
            let version = (word & VERSIONS).wrapping_add(VERSION) & VERSIONS;
            let rest = word & MEMBERS | version;
            let next = match (word & MEMBERS != 0, position) {
                (true, None) => {
                    position = Some(self.enter(bucket, now));
                    continue;
                }
                (false, Some(from)) => {
                    self.exit(bucket, now, from);
                    position = None;
                    continue;
                }
                (true, Some(at)) => IN | rest | at & mask(POSITION_BITS),
                (false, None) => OUT | rest,
            };
            if self
                .word
                .compare_exchange(word, next, AcqRel, Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }

    fn enter(&self, bucket: &Bucket, now: u64) -> u64 {
        match self.terms() {
            Terms::LatencyCritical { rate, .. } => {
                bucket.settle(now);
                bucket.change_rate(-i64::from(rate))
            }
            Terms::BestEffort { weight } => {
                let flow = bucket.change_weights(i64::from(weight));
                bucket.pour();
                flow
            }
            Terms::Vacant => 0,
        }
    }

    fn exit(&self, bucket: &Bucket, now: u64, position: u64) {
        match self.terms() {
            Terms::LatencyCritical { rate, .. } => {
                bucket.settle(now);
                let moment = bucket.settle_to(position, POSITION_BITS);
                let elapsed = since(moment & mask(POSITION_BITS), position, POSITION_BITS);
                self.earn(bucket, u64::from(rate), over(u64::from(rate), elapsed));
                bucket.change_rate(i64::from(rate));
            }
            Terms::BestEffort { weight } => {
                let flow = bucket.change_weights(-i64::from(weight));
                self.claim(weight, flow, position);
                self.give_back(bucket, 0);
            }
            Terms::Vacant => {}
        }
    }

    /// Credits what the tenant earned since the last time.
    pub(crate) fn settle(&self, bucket: &Bucket, now: u64) {
        let word = self.word.load(Acquire);
        if word & STATES != IN {
            return;
        }
        let position = word & mask(POSITION_BITS);
        match self.terms() {
            Terms::LatencyCritical { rate, .. } => {
                let now = now & mask(POSITION_BITS);
                let (grains, rest) = earned(u64::from(rate), since(now, position, POSITION_BITS));
                if grains > 0 && self.advance(word, now.wrapping_sub(rest)) {
                    self.earn(bucket, u64::from(rate), grains);
                }
            }
            Terms::BestEffort { weight } => {
                let flow = bucket.flow();
                if flow != position && self.advance(word, flow) {
                    self.claim(weight, flow, position);
                    self.clip(bucket.limit());
                }
            }
            Terms::Vacant => {}
        }
    }

    fn advance(&self, word: u64, position: u64) -> bool {
        let next = word & !mask(POSITION_BITS) | position & mask(POSITION_BITS);
        self.word
            .compare_exchange(word, next, AcqRel, Relaxed)
            .is_ok()
    }

    fn earn(&self, bucket: &Bucket, rate: u64, grains: i64) {
        self.counters
            .earned
            .fetch_add(grains.unsigned_abs(), Relaxed);
        let credit = self.credit.fetch_add(grains, AcqRel) + grains;
        let most = over(rate, HOARD);
        if credit > most {
            self.give_back(bucket, most);
        }
    }

    fn claim(&self, weight: u32, flow: u64, position: u64) {
        let each = flow.wrapping_sub(position) & mask(FLOW_BITS);
        let grains = (each * u64::from(weight)) as i64;
        self.counters.taken.fetch_add(grains, Relaxed);
        self.credit.fetch_add(grains, AcqRel);
    }

    /// Gives what the tenant has above `keep` to the bucket.
    fn give_back(&self, bucket: &Bucket, keep: i64) {
        let surplus = self.lower(keep);
        if surplus > 0 {
            self.counters
                .donated
                .fetch_add(surplus.unsigned_abs(), Relaxed);
            bucket.add(surplus);
        }
    }

    /// What a tenant that waits cannot use, because no thread serves it in time, expires.
    fn clip(&self, most: i64) {
        let surplus = self.lower(most);
        if surplus > 0 {
            self.counters
                .expired
                .fetch_add(surplus.unsigned_abs(), Relaxed);
        }
    }

    /// Takes away what is above `most`.
    fn lower(&self, most: i64) -> i64 {
        let mut credit = self.credit.load(Acquire);
        while credit > most {
            match self.credit.compare_exchange(credit, most, AcqRel, Acquire) {
                Ok(_) => return credit - most,
                Err(current) => credit = current,
            }
        }
        0
    }

    /// Nothing of the tenant waits: what it has above three rounds is for others.
    pub(crate) fn donate_surplus(&self, bucket: &Bucket) {
        self.give_back(bucket, over(self.terms().rate(), SURPLUS));
    }

    /// Takes `need` grains if the balance is above the floor, and up to `want`
    /// more of what there is, leaving half for other threads.
    pub(crate) fn take(&self, need: i64, want: i64, floor: i64) -> Option<i64> {
        let mut credit = self.credit.load(Acquire);
        loop {
            if credit <= floor {
                return None;
            }
            let amount = need.max(want.min(credit / 2));
            let left = credit - amount;
            match self.credit.compare_exchange(credit, left, AcqRel, Acquire) {
                Ok(_) => {
                    if left < 0 {
                        let borrowed = amount.min(-left);
                        self.counters
                            .borrowed
                            .fetch_add(borrowed.unsigned_abs(), Relaxed);
                    }
                    return Some(amount);
                }
                Err(current) => credit = current,
            }
        }
    }

    /// What the flow has for the tenant that it hasn't claimed.
    pub(crate) fn unclaimed(&self, bucket: &Bucket) -> i64 {
        let word = self.word.load(Acquire);
        match self.terms() {
            Terms::BestEffort { weight } if word & STATES == IN => {
                let each = bucket.flow().wrapping_sub(word) & mask(FLOW_BITS);
                (each * u64::from(weight)) as i64
            }
            _ => 0,
        }
    }

    pub(crate) fn is_in(&self) -> bool {
        self.word.load(Acquire) & STATES == IN
    }

    /// Begins anew for another tenant; what the old one left, debts included,
    /// goes to the bucket.
    pub(crate) fn clear(&self, bucket: &Bucket) {
        let counters = &self.counters;
        bucket.inherit(
            self.credit.swap(0, AcqRel),
            counters.earned.swap(0, Relaxed),
            counters.expired.swap(0, Relaxed),
        );
        counters.taken.store(0, Relaxed);
        for counter in [&counters.donated, &counters.borrowed, &counters.waits] {
            counter.store(0, Relaxed);
        }
    }
}
