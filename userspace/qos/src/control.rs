// SPDX-License-Identifier: GPL-2.0-only
//! Admission: who is a tenant, and what it is granted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::account::Terms;
use crate::feedback::{Advice, Feedback, SAMPLES_MIN, WHOLE, Worst};
use crate::model::{DeviceModel, ModelError};
use crate::refusal::{Refusal, millions};
use crate::shared::{Shared, TenantTokens};
use crate::sync::Acquire;
use crate::tenant::{Class, MAX_WEIGHT, Nanos, Slo, TenantId};

mod plan;

use plan::Plan;

/// A tenant as it was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub class: Class,
}

/// Decides who is admitted to one device; the caller keeps it behind a lock.
pub struct Control {
    shared: Arc<Shared>,
    tenants: Vec<Option<Tenant>>,
    /// Removed, oldest first: used again when no thread holds anything of them.
    removed: VecDeque<u32>,
    /// Indexes from here on were never used.
    fresh: usize,
    feedback: Feedback,
    plan: Plan,
    /// Tokens a second of the device that the bucket and the active tenants have.
    granted: i64,
}

impl Control {
    /// Control of a device with this model, for up to `capacity` tenants.
    ///
    /// # Errors
    ///
    /// The model's, if it is not one to work with.
    pub fn new(model: DeviceModel, capacity: usize) -> Result<Control, ModelError> {
        model.check()?;
        let plan = Plan::empty(&model);
        let mut control = Control {
            shared: Arc::new(Shared::new(model, capacity)),
            tenants: vec![None; capacity],
            removed: VecDeque::new(),
            fresh: 0,
            feedback: Feedback::new(),
            plan: plan.clone(),
            granted: 0,
        };
        control.put(plan);
        Ok(control)
    }

    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Those who were admitted, by index.
    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> + Clone {
        self.tenants.iter().flatten()
    }

    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&Tenant> {
        self.tenants.get(id.index())?.as_ref()
    }

    /// Admits a tenant.
    ///
    /// # Errors
    ///
    /// Why not, and what would fit. Nothing has changed then.
    pub fn add(&mut self, name: &str, class: Class) -> Result<TenantId, Refusal> {
        if self.tenants().any(|tenant| tenant.name == name) {
            return Err(Refusal::NameTaken {
                name: name.to_owned(),
            });
        }
        let plan = self.admit(None, name, class)?;
        let index = self.vacancy().ok_or(Refusal::Full {
            capacity: self.tenants.len(),
        })?;
        let id = TenantId(index);
        if let Some(place) = self.tenants.get_mut(id.index()) {
            *place = Some(Tenant {
                id,
                name: name.to_owned(),
                class,
            });
        }
        self.put(plan);
        Ok(id)
    }

    /// Changes what a tenant was promised, at once and as a whole; requests that
    /// wait stay, and what it owes or has saved remains.
    ///
    /// # Errors
    ///
    /// Why not, and what would fit. The old promise holds then.
    pub fn set(&mut self, id: TenantId, class: Class) -> Result<(), Refusal> {
        let name = match self.tenant(id) {
            Some(tenant) => tenant.name.clone(),
            None => return Err(Refusal::Unknown { tenant: id.0 }),
        };
        let plan = self.admit(Some(id), &name, class)?;
        if let Some(Some(tenant)) = self.tenants.get_mut(id.index()) {
            tenant.class = class;
        }
        self.put(plan);
        Ok(())
    }

    /// Takes the promise back. Requests that still wait are served as best
    /// effort of the smallest weight.
    pub fn remove(&mut self, id: TenantId) {
        let Some(place) = self.tenants.get_mut(id.index()) else {
            return;
        };
        if place.take().is_none() {
            return;
        }
        self.removed.push_back(id.0);
        self.grant(id, Terms::BestEffort { weight: 1 });
        let plan = Plan::of(self.shared.model(), self.classes(None));
        self.put(plan);
    }

    /// An index for a new tenant: one never used or the one longest unused.
    fn vacancy(&mut self) -> Option<u32> {
        if self.fresh < self.tenants.len() {
            let index = u32::try_from(self.fresh).ok()?;
            self.fresh += 1;
            return Some(index);
        }
        let gone = |&index: &u32| {
            let account = self.shared.account(TenantId(index));
            account.is_some_and(|account| account.holders.load(Acquire) == 0)
        };
        let place = self.removed.iter().position(gone)?;
        let index = self.removed.remove(place)?;
        let account = self.shared.account(TenantId(index))?;
        account.change(&self.shared.bucket, Terms::Vacant);
        account.clear(&self.shared.bucket);
        Some(index)
    }

    fn classes(&self, without: Option<TenantId>) -> impl Iterator<Item = Class> + Clone {
        let others = self
            .tenants()
            .filter(move |tenant| Some(tenant.id) != without);
        others.map(|tenant| tenant.class)
    }

    /// The plan with this tenant in it, if it can be kept.
    fn admit(&self, id: Option<TenantId>, name: &str, class: Class) -> Result<Plan, Refusal> {
        check(name, class)?;
        let model = self.shared.model();
        let others = self.classes(id);
        if let Class::BestEffort { weight } = class {
            plan::check_weights(name, weight, others.clone())?;
        }
        plan::admit(model, name, class, others)
    }

    /// Puts a plan into force.
    fn put(&mut self, plan: Plan) {
        let shared = Arc::clone(&self.shared);
        shared.set_read_only(plan.read_only);
        for tenant in self.tenants.iter().flatten() {
            let terms = plan.terms(shared.model(), tenant.class);
            let account = shared.account(tenant.id);
            if let Some(account) = account.filter(|account| account.terms() != terms) {
                account.change(&shared.bucket, terms);
            }
        }
        self.plan = plan;
        self.put_rate();
    }

    fn grant(&self, id: TenantId, terms: Terms) {
        if let Some(account) = self.shared.account(id) {
            account.change(&self.shared.bucket, terms);
        }
    }

    /// Puts the device's rate into force, as the feedback has it.
    fn put_rate(&mut self) {
        let rate = self.device_rate();
        let bucket = &self.shared.bucket;
        bucket.set_limit(self.plan.bucket_limit(rate));
        let rate = i64::try_from(rate).unwrap_or(i64::MAX);
        bucket.change_rate(rate - self.granted);
        self.granted = rate;
    }

    /// Tokens a second of the device now: the model's at the strictest promise,
    /// less what the feedback took, and never less than was promised.
    #[must_use]
    pub fn device_rate(&self) -> u64 {
        let rate = self.plan.rate * u64::from(self.feedback.share()) / u64::from(WHOLE);
        rate.max(self.plan.promised)
    }

    /// Tells what p95 latency, in µs, the device had for reads of these tenants
    /// since the last time, and of how many reads: from when their tokens were
    /// taken to when they were done, since waiting for tokens says nothing about
    /// the device. To be called some times a second.
    pub fn feedback(&mut self, now: Nanos, observed: &[(TenantId, u32, u64)]) -> Vec<Advice> {
        let worst = observed.iter().filter_map(|&(id, observed_us, samples)| {
            let tenant = self.tenant(id).filter(|_| samples >= SAMPLES_MIN)?;
            match tenant.class {
                Class::LatencyCritical(slo) => Some((tenant, observed_us, slo.p95_us)),
                Class::BestEffort { .. } => None,
            }
        });
        let late = |observed: u32, promised: u32| {
            u64::from(observed) * 1_000_000 / u64::from(promised.max(1))
        };
        let Some((tenant, observed_us, promised_us)) =
            worst.max_by_key(|&(_, seen, due)| late(seen, due))
        else {
            return Vec::new();
        };
        let worst = Worst {
            tenant: tenant.name.clone(),
            observed_us,
            promised_us,
        };
        let promised = self.plan.promised * u64::from(WHOLE) / self.plan.rate.max(1);
        let promised = u32::try_from(promised).unwrap_or(WHOLE);
        let advice = self
            .feedback
            .step(now, &worst, promised, &self.shared.model().name);
        self.put_rate();
        advice
    }

    /// What a tenant was granted, why, and what became of its tokens.
    #[must_use]
    pub fn explain(&self, id: TenantId) -> Option<Explanation> {
        let tenant = self.tenant(id)?.clone();
        let rate = match tenant.class {
            Class::LatencyCritical(slo) => self.plan.tokens_for(self.shared.model(), &slo),
            Class::BestEffort { weight } => self.plan.share(self.device_rate(), weight),
        };
        Some(Explanation {
            rate,
            device_rate: self.device_rate(),
            model_rate: self.plan.rate,
            promised: self.plan.promised,
            p95_us: self.plan.p95_us,
            read_only: self.plan.read_only,
            tokens: self.shared.tokens(id)?,
            tenant,
        })
    }
}

/// Are these values that a tenant can have at all?
fn check(name: &str, class: Class) -> Result<(), Refusal> {
    let values = match class {
        Class::LatencyCritical(Slo {
            p95_us,
            iops,
            read_pct,
            block,
        }) => [
            ("p95 in µs", p95_us, 1, crate::model::P95_MAX_US),
            ("IOPS", iops, 1, u32::MAX),
            ("read percentage", u32::from(read_pct), 0, 100),
            ("block size", block, 1, 1 << 30),
        ],
        Class::BestEffort { weight } => [("weight", weight, 1, MAX_WEIGHT); 4],
    };
    for (what, value, least, most) in values {
        if value < least || value > most {
            let (value, least, most) = (value.into(), least.into(), most.into());
            return Err(Refusal::Value {
                name: name.to_owned(),
                what,
                value,
                least,
                most,
            });
        }
    }
    Ok(())
}

/// What a tenant was granted and why; the sentences by [`fmt::Display`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub tenant: Tenant,
    /// Tokens a second: promised to a latency-critical tenant; a best-effort
    /// one's share when all tenants want all they can have.
    pub rate: u64,
    /// Tokens a second of the device now.
    pub device_rate: u64,
    /// Those the model has at the strictest promise.
    pub model_rate: u64,
    /// Promised to all latency-critical tenants together.
    pub promised: u64,
    /// The strictest promise, if any.
    pub p95_us: Option<u32>,
    /// Nobody may write.
    pub read_only: bool,
    pub tokens: TenantTokens,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.tenant.name;
        match self.tenant.class {
            Class::LatencyCritical(slo) => writeln!(
                f,
                "{name} is latency-critical: {} IOPS of {} bytes, {} % reads, 95 % of them within {} µs. That is {} M tokens/s, which it has whatever others do.",
                slo.iops,
                slo.block,
                slo.read_pct,
                slo.p95_us,
                millions(self.rate)
            )?,
            Class::BestEffort { weight } => writeln!(
                f,
                "{name} is best effort with weight {weight}: at least {} M tokens/s, and its share of what others leave.",
                millions(self.rate)
            )?,
        }
        let load = if self.read_only { "read-only" } else { "mixed" };
        match self.p95_us {
            Some(p95) => write!(
                f,
                "The strictest promise is {p95} µs; the model bears {} M tokens/s of {load} load there",
                millions(self.model_rate)
            )?,
            None => write!(
                f,
                "Nobody was promised a latency; the model bears {} M tokens/s",
                millions(self.model_rate)
            )?,
        }
        writeln!(
            f,
            ", the feedback allows {} M, and {} M are promised.",
            millions(self.device_rate),
            millions(self.promised)
        )?;
        let tokens = &self.tokens;
        write!(
            f,
            "Tokens: {} earned, {} from the bucket, {} spent ({} of them borrowed), {} donated, {} expired, {} at hand; {} requests waited for tokens.",
            tokens.earned,
            tokens.taken,
            tokens.spent,
            tokens.borrowed,
            tokens.donated,
            tokens.expired,
            tokens.credit,
            tokens.waits
        )
    }
}
