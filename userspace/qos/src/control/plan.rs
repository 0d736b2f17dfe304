// SPDX-License-Identifier: GPL-2.0-only
//! The device's rate and everybody's terms, computed from who the tenants are.

use crate::account::Terms;
use crate::bucket::WEIGHTS_MAX;
use crate::model::{DeviceModel, RATE_MAX};
use crate::refusal::Refusal;
use crate::tenant::{Class, Nanos, Op, Slo};
use crate::ticks::over;

/// Of the device's rate, in percent, what may be promised. The rest is best
/// effort's, so that it never comes to a halt.
const PROMISES_PCT: u64 = 99;
/// What a latency-critical tenant's rate is of the one it asks for, in percent.
/// A queue that is fed at just the rate at which it is served grows without
/// bound; what isn't needed flows into the bucket.
const HEADROOM_PCT: u64 = 105;
/// Requests, of the dearest kind it may send, that a latency-critical tenant may
/// have run before it has earned their tokens, beyond one p95 of its rate.
/// Arrivals that are only on average as many as promised come in clusters.
const AHEAD: u64 = 32;
/// The longest time of a slow tenant's rate that these may be: less than a
/// twentieth of a second, so that 95 % of a second's reads are in time even if
/// all tenants are slow ones and send all they may at once.
const AHEAD_US: u64 = 40_000;
/// How much the bucket may gather while nobody waits: half of the strictest
/// p95, for it may be spent at once, within bounds.
const GATHER_MIN: Nanos = 300_000;
const GATHER_MAX: Nanos = 2_000_000;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Tokens a second of the device at the strictest promise, by the model.
    pub(super) rate: u64,
    /// Those that are promised.
    pub(super) promised: u64,
    /// The strictest promise.
    pub(super) p95_us: Option<u32>,
    /// Nobody may write.
    pub(super) read_only: bool,
    /// Sum of the weights.
    weights: u64,
}

impl Plan {
    pub(super) fn empty(model: &DeviceModel) -> Plan {
        Plan::of(model, std::iter::empty())
    }

    pub(super) fn of(model: &DeviceModel, classes: impl Iterator<Item = Class> + Clone) -> Plan {
        let mut plan = Plan {
            rate: model.max,
            promised: 0,
            p95_us: None,
            read_only: true,
            weights: 0,
        };
        for class in classes.clone() {
            match class {
                Class::LatencyCritical(slo) => {
                    plan.p95_us = Some(plan.p95_us.map_or(slo.p95_us, |p95| p95.min(slo.p95_us)));
                    plan.read_only &= slo.read_pct == 100;
                }
                Class::BestEffort { weight } => {
                    plan.read_only = false;
                    plan.weights += u64::from(weight);
                }
            }
        }
        plan.read_only &= plan.p95_us.is_some();
        if let Some(p95_us) = plan.p95_us {
            plan.rate = model.rate(p95_us, plan.read_only).unwrap_or(0);
        }
        let promised = classes.map(|class| match class {
            Class::LatencyCritical(slo) => plan.tokens_for(model, &slo),
            Class::BestEffort { .. } => 0,
        });
        plan.promised = promised.sum();
        plan
    }

    /// Tokens a second that this promise needs.
    pub(super) fn tokens_for(&self, model: &DeviceModel, slo: &Slo) -> u64 {
        let block = u64::from(slo.block);
        let read = if self.read_only {
            model.read_only_cost(block)
        } else {
            model.cost(Op::Read, block)
        };
        let reads = u64::from(slo.read_pct.min(100));
        let hundred = reads * to_u64(read) + (100 - reads) * to_u64(model.cost(Op::Write, block));
        let tokens = u128::from(slo.iops) * u128::from(hundred * HEADROOM_PCT);
        u64::try_from(tokens.div_ceil(100 * 100))
            .unwrap_or(u64::MAX)
            .min(1 << 48)
    }

    /// Tokens a second for promises.
    fn available(&self) -> u64 {
        self.rate * PROMISES_PCT / 100
    }

    fn holds(&self) -> bool {
        self.promised <= self.available()
    }

    pub(super) fn terms(&self, model: &DeviceModel, class: Class) -> Terms {
        match class {
            Class::BestEffort { weight } => Terms::BestEffort { weight },
            Class::LatencyCritical(slo) => {
                let rate = self.tokens_for(model, &slo).min(RATE_MAX);
                let dearest = if slo.read_pct == 100 {
                    Op::Read
                } else {
                    Op::Write
                };
                let ahead = AHEAD * to_u64(model.cost(dearest, u64::from(slo.block)));
                let ahead = ahead.min(rate * AHEAD_US / 1_000_000);
                let deficit = rate * u64::from(slo.p95_us) / 1_000_000 + ahead;
                Terms::LatencyCritical {
                    rate: u32::try_from(rate).unwrap_or(u32::MAX),
                    deficit: u32::try_from(deficit)
                        .unwrap_or(u32::MAX)
                        .min(Terms::DEFICIT_MAX),
                }
            }
        }
    }

    /// Grains that the bucket may gather.
    pub(super) fn bucket_limit(&self, rate: u64) -> i64 {
        let half = self.p95_us.map_or(GATHER_MAX, |p95| Nanos::from(p95) * 500);
        over(rate, half.clamp(GATHER_MIN, GATHER_MAX))
    }

    /// Tokens a second of a weight when everybody wants everything.
    pub(super) fn share(&self, rate: u64, weight: u32) -> u64 {
        rate.saturating_sub(self.promised) * u64::from(weight) / self.weights.max(1)
    }
}

/// The plan with one more tenant.
///
/// # Errors
///
/// Why it can't be kept, and what could.
pub(super) fn admit(
    model: &DeviceModel,
    name: &str,
    class: Class,
    others: impl Iterator<Item = Class> + Clone,
) -> Result<Plan, Refusal> {
    let with = |class: Class| Plan::of(model, others.clone().chain([class]));
    let plan = with(class);
    let Class::LatencyCritical(slo) = class else {
        return if plan.holds() {
            Ok(plan)
        } else {
            Err(ends_read_only(name, &plan))
        };
    };
    let least_us = model.curve.first().map_or(0, |point| point.p95_us);
    if slo.p95_us < least_us {
        return Err(Refusal::TooStrict {
            name: name.to_owned(),
            p95_us: slo.p95_us,
            least_us,
        });
    }
    if plan.holds() {
        return Ok(plan);
    }
    let try_slo = |slo: Slo| with(Class::LatencyCritical(slo)).holds();
    let fits_iops = greatest(slo.iops, |iops| iops > 0 && try_slo(Slo { iops, ..slo }));
    let needed = plan.promised;
    let alone = Plan::of(model, others.clone());
    if fits_iops == 0 && alone.read_only && !plan.read_only {
        return Err(ends_read_only(name, &with(Class::BestEffort { weight: 1 })));
    }
    let loose = model.latency(
        needed.saturating_mul(100).div_ceil(PROMISES_PCT),
        plan.read_only,
    );
    let fits_p95_us = loose.filter(|&p95_us| p95_us > slo.p95_us && try_slo(Slo { p95_us, ..slo }));
    Err(Refusal::TooMuch {
        name: name.to_owned(),
        needed,
        available: plan.available(),
        p95_us: plan.p95_us.unwrap_or(slo.p95_us),
        fits_iops,
        fits_p95_us,
    })
}

fn ends_read_only(name: &str, plan: &Plan) -> Refusal {
    Refusal::EndsReadOnly {
        name: name.to_owned(),
        needed: plan.promised,
        available: plan.available(),
    }
}

/// Is there room for one more weight?
pub(super) fn check_weights(
    name: &str,
    weight: u32,
    others: impl Iterator<Item = Class>,
) -> Result<(), Refusal> {
    let sum: u64 = others
        .map(|class| match class {
            Class::BestEffort { weight } => u64::from(weight),
            Class::LatencyCritical(_) => 0,
        })
        .sum();
    let left = WEIGHTS_MAX.saturating_sub(sum);
    if u64::from(weight) > left {
        Err(Refusal::Weights {
            name: name.to_owned(),
            left,
        })
    } else {
        Ok(())
    }
}

/// Greatest number below `most` that fits, when all below it fit too; 0 if none.
fn greatest(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, most);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn to_u64(tokens: i64) -> u64 {
    u64::try_from(tokens).unwrap_or(0)
}
