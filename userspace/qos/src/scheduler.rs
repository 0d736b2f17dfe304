// SPDX-License-Identifier: GPL-2.0-only
//! A thread's part: who may run now, who waits, in which order.
//!
//! A tenant's queue is its thread's own; its tokens are on its account. Tokens
//! are fetched for several requests at once and kept at hand, so that the usual
//! request costs a subtraction and touches nothing that other threads use. What
//! isn't used for two rounds goes back. While requests of a tenant wait here,
//! nothing of it is at hand, so none overtakes them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::account::{Account, ROUND, Terms};
use crate::bucket::Bucket;
use crate::shared::Shared;
use crate::sync::{AcqRel, Relaxed};
use crate::tenant::{Nanos, TenantId, Tokens};
use crate::ticks::{grains, over, time_for, tokens};

/// Best-effort tenants that one round visits; the next goes on behind them.
const VISITS: usize = 256;
/// Tenants that one sweep looks after, so that it is short.
const SWEEP: usize = 64;
/// Sweeps after which what is at hand goes back.
const STALE: u8 = 2;
/// Sweeps after which a latency-critical tenant is quiet: its rate then flows
/// into the bucket. Its account is full by then, with three rounds' surplus.
const QUIET: u8 = 4;
/// Part of a round's budget that latency-critical tenants leave to best effort.
const BEST_EFFORT_PART: usize = 8;
/// The longest time for which [`Scheduler::next_wakeup`] trusts the rates.
const LOOK_AHEAD: Nanos = 10_000_000;
/// How long to wait where nothing comes in for those who wait.
const RETRY: Nanos = 1_000_000;
/// Queues that grew beyond this give their memory back when they are empty.
const QUEUE_KEPT: usize = 64;

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The caller's name for it.
    pub handle: u32,
    pub cost: Tokens,
}

#[derive(Default)]
struct Slot {
    /// Grains at hand; zero while requests wait.
    at_hand: i64,
    /// Sweeps since the last request.
    quiet: u8,
    /// The account is in for this thread.
    member: bool,
    /// This thread is one of the account's holders.
    holder: bool,
    /// In one of the lanes.
    queued: bool,
    queue: VecDeque<Entry>,
}

/// One per thread.
pub struct Scheduler {
    shared: Arc<Shared>,
    slots: Vec<Slot>,
    /// Tenants that this thread holds something of.
    held: Vec<u32>,
    sweep_at: usize,
    next_sweep: Nanos,
    /// Tenants with waiting requests, in turn.
    critical: VecDeque<u32>,
    best_effort: VecDeque<u32>,
}

/// Which lanes' turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    Critical,
    BestEffort,
}

impl Scheduler {
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Scheduler {
        let slots = std::iter::repeat_with(Slot::default)
            .take(shared.capacity())
            .collect();
        Scheduler {
            shared,
            slots,
            held: Vec::new(),
            sweep_at: 0,
            next_sweep: 0,
            critical: VecDeque::new(),
            best_effort: VecDeque::new(),
        }
    }

    /// May this request run at once? Then its tokens are taken. Otherwise
    /// [`Scheduler::enqueue`] it.
    #[inline]
    pub fn admit(&mut self, tenant: TenantId, cost: Tokens, now: Nanos) -> bool {
        let need = grains(cost);
        match self.slots.get_mut(tenant.index()) {
            Some(slot) if slot.at_hand >= need => {
                slot.at_hand -= need;
                slot.quiet = 0;
                true
            }
            Some(_) => self.fetch(tenant, need, now),
            None => false,
        }
    }

    /// Fetches tokens for this request, and for some of the next if there are any.
    #[inline(never)]
    fn fetch(&mut self, tenant: TenantId, need: i64, now: Nanos) -> bool {
        let shared = &*self.shared;
        let (Some(slot), Some(account)) =
            (self.slots.get_mut(tenant.index()), shared.account(tenant))
        else {
            return false;
        };
        if !slot.queue.is_empty() {
            return false;
        }
        hold(slot, account, &mut self.held, tenant);
        let missing = need - slot.at_hand;
        let bucket = &shared.bucket;
        let terms = account.terms();
        let got = match terms {
            Terms::LatencyCritical { rate, .. } => {
                join(slot, account, bucket, now);
                account.settle(bucket, now);
                let want = over(u64::from(rate), ROUND);
                account.take(missing, want, terms.floor())
            }
            // It waits for what it still owes.
            Terms::BestEffort { .. } if slot.member => return false,
            _ => None,
        };
        match got.or_else(|| spare(account, bucket, missing, i64::MAX, now)) {
            Some(got) => {
                slot.at_hand += got - need;
                true
            }
            None => false,
        }
    }

    /// Lets a request wait that [`Scheduler::admit`] turned away. The caller
    /// bounds how many there are.
    pub fn enqueue(&mut self, tenant: TenantId, entry: Entry) {
        let shared = &*self.shared;
        let (Some(slot), Some(account)) =
            (self.slots.get_mut(tenant.index()), shared.account(tenant))
        else {
            return;
        };
        hold(slot, account, &mut self.held, tenant);
        hand_back(slot, account, &shared.bucket);
        slot.queue.push_back(entry);
        account.counters.waits.fetch_add(1, Relaxed);
        if !slot.queued {
            slot.queued = true;
            match lane_of(account) {
                Lane::Critical => self.critical.push_back(tenant.0),
                Lane::BestEffort => self.best_effort.push_back(tenant.0),
            }
        }
    }

    /// One round: serves those who wait and have tokens, latency-critical ones
    /// first, each lane in turn, at most `budget` requests.
    pub fn run(&mut self, now: Nanos, budget: usize, serve: &mut dyn FnMut(TenantId, u32)) {
        if !(self.critical.is_empty() && self.best_effort.is_empty()) {
            self.shared.bucket.settle(now);
            self.shared.bucket.pour();
            let kept = if self.best_effort.is_empty() {
                0
            } else {
                budget / BEST_EFFORT_PART
            };
            let left = self.run_lane(Lane::Critical, now, budget - kept, serve);
            self.run_lane(Lane::BestEffort, now, left + kept, serve);
        }
        // After those who came since the last round had their turn: what is
        // still on an account is not needed.
        if now >= self.next_sweep {
            self.next_sweep = now + ROUND;
            self.sweep(now, SWEEP);
        }
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<u32> {
        match lane {
            Lane::Critical => &mut self.critical,
            Lane::BestEffort => &mut self.best_effort,
        }
    }

    fn run_lane(
        &mut self,
        lane: Lane,
        now: Nanos,
        budget: usize,
        serve: &mut dyn FnMut(TenantId, u32),
    ) -> usize {
        let mut left = budget;
        for _ in 0..self.lane(lane).len().min(VISITS) {
            if left == 0 {
                break;
            }
            let Some(index) = self.lane(lane).pop_front() else {
                break;
            };
            let tenant = TenantId(index);
            let emptied = self.serve(tenant, now, &mut left, serve);
            let Some(account) = self.shared.account(tenant) else {
                continue;
            };
            let next = lane_of(account);
            match (emptied, left) {
                (true, _) => {}
                // It keeps its turn for what it has still tokens for.
                (false, 0) => self.lane(next).push_front(index),
                (false, _) => self.lane(next).push_back(index),
            }
        }
        left
    }

    /// Serves one tenant as far as its tokens go; true when nothing waits any more.
    fn serve(
        &mut self,
        tenant: TenantId,
        now: Nanos,
        left: &mut usize,
        serve: &mut dyn FnMut(TenantId, u32),
    ) -> bool {
        let shared = &*self.shared;
        let (Some(slot), Some(account)) =
            (self.slots.get_mut(tenant.index()), shared.account(tenant))
        else {
            return true;
        };
        let bucket = &shared.bucket;
        slot.quiet = 0;
        if !slot.queue.is_empty() {
            join(slot, account, bucket, now);
            account.settle(bucket, now);
        }
        let terms = account.terms();
        while let Some(entry) = slot.queue.front() {
            let need = grains(entry.cost);
            let paid = *left > 0
                && (terms == Terms::Vacant
                    || account.take(need, need, terms.floor()).is_some()
                    || spare(account, bucket, need, need, now).is_some());
            if !paid {
                return false;
            }
            *left -= 1;
            serve(tenant, entry.handle);
            slot.queue.pop_front();
        }
        slot.queued = false;
        if slot.queue.capacity() > QUEUE_KEPT {
            slot.queue = VecDeque::new();
        }
        if terms.rate() == 0 {
            part(slot, account, bucket, now);
        }
        true
    }

    /// Forgets a waiting request, whose connection is gone. No tokens were taken.
    pub fn cancel(&mut self, tenant: TenantId, handle: u32) -> bool {
        let Some(slot) = self.slots.get_mut(tenant.index()) else {
            return false;
        };
        // An empty queue's tenant leaves its lane at its next turn.
        let place = slot.queue.iter().position(|entry| entry.handle == handle);
        place.and_then(|place| slot.queue.remove(place)).is_some()
    }

    /// When to call [`Scheduler::run`] again, though nothing happens until then:
    /// the first waiting request may run, or an account is to be closed. `None`:
    /// there is nothing to wait for.
    #[must_use]
    pub fn next_wakeup(&self, now: Nanos) -> Option<Nanos> {
        let waits = self.held.iter().filter_map(|&index| {
            let slot = self.slots.get(index as usize)?;
            if slot.queue.is_empty() && !slot.member {
                return None;
            }
            let account = self.shared.account(TenantId(index))?;
            Some(self.time_until_due(slot, account))
        });
        waits.min().map(|wait| now + wait.min(LOOK_AHEAD))
    }

    fn time_until_due(&self, slot: &Slot, account: &Account) -> Nanos {
        let bucket = &self.shared.bucket;
        let terms = account.terms();
        let credit = account.credit();
        let goal = if slot.queue.is_empty() {
            0
        } else {
            terms.floor() + 1
        };
        let missing = (goal - credit).max(0);
        if missing == 0 && slot.queue.is_empty() {
            return ROUND * Nanos::from(QUIET);
        }
        match terms {
            Terms::LatencyCritical { rate, .. } => {
                time_for(missing, u64::from(rate)).unwrap_or(RETRY)
            }
            Terms::BestEffort { weight } if missing > 0 => {
                let others = bucket.weights().max(u64::from(weight));
                let of_all = i128::from(missing) * i128::from(others) / i128::from(weight.max(1));
                let of_all = of_all - i128::from(bucket.level());
                let income = u64::try_from(bucket.rate()).unwrap_or(0);
                let wait = i64::try_from(of_all)
                    .ok()
                    .and_then(|grains| time_for(grains.max(1), income));
                wait.unwrap_or(RETRY)
            }
            _ => 0,
        }
    }

    /// The thread has nothing to do and will sleep: what it holds goes back, and
    /// tenants that owe nothing leave. Who still owes something stays;
    /// [`Scheduler::next_wakeup`] says until when.
    pub fn idle(&mut self, now: Nanos) {
        for &index in &self.held {
            if let Some(slot) = self.slots.get_mut(index as usize) {
                slot.quiet = QUIET;
            }
        }
        self.sweep_at = 0;
        self.sweep(now, self.held.len());
    }

    /// Looks after up to `count` of the tenants held here.
    fn sweep(&mut self, now: Nanos, count: usize) {
        self.shared.bucket.settle(now);
        for _ in 0..count.min(self.held.len()) {
            if self.sweep_at >= self.held.len() {
                self.sweep_at = 0;
            }
            let Some(&index) = self.held.get(self.sweep_at) else {
                return;
            };
            if self.look_after(TenantId(index), now) {
                self.sweep_at += 1;
            } else {
                self.held.swap_remove(self.sweep_at);
            }
        }
    }

    /// False when this thread has nothing more to do with the tenant.
    fn look_after(&mut self, tenant: TenantId, now: Nanos) -> bool {
        let shared = &*self.shared;
        let (Some(slot), Some(account)) =
            (self.slots.get_mut(tenant.index()), shared.account(tenant))
        else {
            return false;
        };
        let bucket = &shared.bucket;
        slot.quiet = slot.quiet.saturating_add(1);
        if slot.quiet >= STALE {
            hand_back(slot, account, bucket);
        }
        if slot.member {
            account.settle(bucket, now);
        }
        if !slot.queue.is_empty() || slot.queued {
            return true;
        }
        let critical = lane_of(account) == Lane::Critical;
        if critical && slot.member {
            account.donate_surplus(bucket);
        }
        if slot.member && (!critical || slot.quiet >= QUIET) {
            part(slot, account, bucket, now);
        }
        if slot.member || slot.at_hand > 0 || slot.quiet < QUIET {
            return true;
        }
        slot.holder = false;
        account.holders.fetch_sub(1, AcqRel);
        false
    }

    /// Tokens of the tenant at hand here.
    #[must_use]
    pub fn at_hand(&self, tenant: TenantId) -> Tokens {
        self.slots
            .get(tenant.index())
            .map_or(0, |slot| tokens(slot.at_hand))
    }

    /// Requests of the tenant that wait here.
    #[must_use]
    pub fn waiting(&self, tenant: TenantId) -> usize {
        self.slots
            .get(tenant.index())
            .map_or(0, |slot| slot.queue.len())
    }
}

fn lane_of(account: &Account) -> Lane {
    match account.terms() {
        Terms::LatencyCritical { .. } => Lane::Critical,
        _ => Lane::BestEffort,
    }
}

fn hold(slot: &mut Slot, account: &Account, held: &mut Vec<u32>, tenant: TenantId) {
    slot.quiet = 0;
    if !slot.holder {
        slot.holder = true;
        account.holders.fetch_add(1, AcqRel);
        held.push(tenant.0);
    }
}

fn join(slot: &mut Slot, account: &Account, bucket: &Bucket, now: Nanos) {
    if !slot.member {
        slot.member = true;
        account.join(bucket, now);
    }
}

/// Takes no part any more, unless something is still to be paid for.
fn part(slot: &mut Slot, account: &Account, bucket: &Bucket, now: Nanos) {
    if slot.member && account.credit() >= 0 {
        slot.member = false;
        account.leave(bucket, now);
    }
}

/// Puts back what is at hand.
fn hand_back(slot: &mut Slot, account: &Account, bucket: &Bucket) {
    let grains = std::mem::take(&mut slot.at_hand);
    if grains <= 0 {
        return;
    }
    if account.terms().rate() > 0 {
        account.deposit(grains);
    } else {
        account.counters.taken.fetch_sub(grains, Relaxed);
        bucket.add(grains);
    }
}

/// Tokens of the bucket that no best-effort tenant waits for: for best effort
/// without waiting, and for latency-critical tenants beyond what they were promised.
fn spare(account: &Account, bucket: &Bucket, need: i64, want: i64, now: Nanos) -> Option<i64> {
    if bucket.weights() > 0 {
        return None;
    }
    bucket.settle(now);
    let got = bucket.take(need, want)?;
    account.counters.taken.fetch_add(got, Relaxed);
    Some(got)
}
