// SPDX-License-Identifier: GPL-2.0-only
//! What all threads share: atomics only, nobody waits for anybody.

use crate::account::{Account, Terms};
use crate::bucket::Bucket;
use crate::model::DeviceModel;
use crate::sync::{AtomicI64, Relaxed};
use crate::tenant::{Op, TenantId, Tokens};
use crate::ticks::tokens;

/// The tenants' accounts and the bucket of one device. [`Control`](crate::Control)
/// makes it and changes terms, [`Scheduler`](crate::Scheduler)s earn and spend.
pub struct Shared {
    model: DeviceModel,
    /// Of a page; depends on whether anybody may write.
    read_cost: AtomicI64,
    accounts: Vec<Account>,
    pub(crate) bucket: Bucket,
}

/// A tenant's tokens since it was added. `earned + taken = spent + donated +
/// expired + credit`; what threads hold at hand, some requests' worth for at
/// most two rounds, counts as spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantTokens {
    pub tenant: u32,
    /// At the promised rate, while it was in use.
    pub earned: Tokens,
    /// For requests.
    pub spent: Tokens,
    /// Spent before it was earned.
    pub borrowed: Tokens,
    /// Given to the bucket: surplus, and what was left when nothing waited.
    pub donated: Tokens,
    /// Lost, since its thread was too late to use it.
    pub expired: Tokens,
    /// Got from the bucket.
    pub taken: Tokens,
    /// On the account now; below zero it is in debt.
    pub credit: Tokens,
    /// Requests that had to wait for tokens.
    pub waits: u64,
}

/// All tokens of the device since it began. What was earned was spent, or is
/// held here or by a scheduler, or expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    pub earned: Tokens,
    pub expired: Tokens,
    /// On accounts, in the bucket and on the way from one to another.
    pub held: Tokens,
    /// In the bucket, of what is held.
    pub bucket: Tokens,
}

impl Shared {
    pub(crate) fn new(model: DeviceModel, capacity: usize) -> Shared {
        Shared {
            read_cost: AtomicI64::new(model.read),
            accounts: (0..capacity).map(|_| Account::new()).collect(),
            bucket: Bucket::new(),
            model,
        }
    }

    #[must_use]
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Most tenants at a time.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.accounts.len()
    }

    /// Tokens of a request now: reads may cost less while nobody may write.
    #[inline]
    #[must_use]
    pub fn cost(&self, op: Op, bytes: u64) -> Tokens {
        match op {
            Op::Read if bytes <= u64::from(self.model.page) => self.read_cost.load(Relaxed),
            Op::Read if self.read_cost.load(Relaxed) != self.model.read => {
                self.model.read_only_cost(bytes)
            }
            _ => self.model.cost(op, bytes),
        }
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        let cost = if read_only {
            self.model.read_only_read
        } else {
            self.model.read
        };
        self.read_cost.store(cost, Relaxed);
    }

    pub(crate) fn account(&self, tenant: TenantId) -> Option<&Account> {
        self.accounts.get(tenant.index())
    }

    /// The tokens of every tenant there is.
    #[must_use]
    pub fn snapshot(&self) -> Vec<TenantTokens> {
        let there = self.accounts.iter().enumerate();
        let there = there.filter(|(_, account)| account.terms() != Terms::Vacant);
        there
            .map(|(index, account)| tally(index, account))
            .collect()
    }

    /// The tokens of one tenant.
    #[must_use]
    pub fn tokens(&self, tenant: TenantId) -> Option<TenantTokens> {
        let account = self.account(tenant)?;
        (account.terms() != Terms::Vacant).then(|| tally(tenant.index(), account))
    }

    /// The books of the device; exact while no thread is at work.
    #[must_use]
    pub fn books(&self) -> Books {
        let (mut earned, mut expired) = (self.bucket.earned(), self.bucket.expired());
        let bucket = self.bucket.level();
        let mut held = bucket;
        for account in &self.accounts {
            earned = earned.wrapping_add(account.counters.earned.load(Relaxed));
            expired = expired.wrapping_add(account.counters.expired.load(Relaxed));
            held += account.credit() + account.unclaimed(&self.bucket);
        }
        Books {
            earned: tokens(earned as i64),
            expired: tokens(expired as i64),
            held: tokens(held),
            bucket: tokens(bucket),
        }
    }

    /// Tenants that take part now: a round costs time for these only.
    #[must_use]
    pub fn active(&self) -> usize {
        self.accounts
            .iter()
            .filter(|account| account.is_in())
            .count()
    }
}

fn tally(index: usize, account: &Account) -> TenantTokens {
    let counters = &account.counters;
    let earned = counters.earned.load(Relaxed) as i64;
    let donated = counters.donated.load(Relaxed) as i64;
    let expired = counters.expired.load(Relaxed) as i64;
    let taken = counters.taken.load(Relaxed);
    let credit = account.credit();
    TenantTokens {
        tenant: u32::try_from(index).unwrap_or(u32::MAX),
        earned: tokens(earned),
        // Not counted per request: it is what is missing.
        spent: tokens(earned + taken - donated - expired - credit),
        borrowed: tokens(counters.borrowed.load(Relaxed) as i64),
        donated: tokens(donated),
        expired: tokens(expired),
        taken: tokens(taken),
        credit: tokens(credit),
        waits: counters.waits.load(Relaxed),
    }
}
