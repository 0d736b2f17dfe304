// SPDX-License-Identifier: GPL-2.0-only
//! Latency feedback: the device's rate follows what is seen.
//!
//! The curve was fitted some time ago; the device ages, fills and warms up.
//! When reads of a latency-critical tenant become later than was promised, the
//! device's rate is made smaller, at best effort's expense and never below what
//! was promised; when all are in time again it grows back, slowly.

use std::cmp::Ordering;
use std::fmt;

use crate::tenant::Nanos;

/// Parts in which the share of the model's rate is counted.
pub(crate) const WHOLE: u32 = 1000;
/// The smallest share: a model that is wrong by more is to be replaced.
const LEAST: u32 = 500;
/// Fewer reads than these say nothing about a p95.
pub(crate) const SAMPLES_MIN: u64 = 100;
/// Between two changes, for the first to show.
const INTERVAL: Nanos = 100_000_000;
/// Smallest and greatest step down, and the step up.
const DOWN: std::ops::RangeInclusive<u32> = 20..=200;
const UP: u32 = 10;
/// Latencies below this part of the promised ones let the rate grow.
const EASY_PCT: u64 = 90;
/// A share below this for so long means that the model doesn't describe the device.
const DRIFTED: u32 = 900;
const RECOVERED: u32 = 950;
const DRIFT_TIME: Nanos = 10_000_000_000;

/// What the feedback did, or what somebody should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Reads of this tenant were late; the device's rate was lowered.
    Tightened {
        tenant: String,
        observed_us: u32,
        promised_us: u32,
        from_permille: u32,
        to_permille: u32,
    },
    /// All reads are in time; the device's rate was raised.
    Loosened {
        from_permille: u32,
        to_permille: u32,
    },
    /// The model doesn't describe the device any more.
    Recalibrate {
        model: String,
        permille: u32,
        still_late: Option<String>,
    },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Tightened {
                tenant,
                observed_us,
                promised_us,
                from_permille,
                to_permille,
            } => write!(
                f,
                "tenant {tenant:?} sees a p95 of {observed_us} µs and was promised {promised_us} µs: the device's token rate goes from {} % to {} % of the model's",
                percent(*from_permille),
                percent(*to_permille)
            ),
            Advice::Loosened {
                from_permille,
                to_permille,
            } => write!(
                f,
                "all latencies are kept: the device's token rate goes from {} % to {} % of the model's",
                percent(*from_permille),
                percent(*to_permille)
            ),
            Advice::Recalibrate {
                model,
                permille,
                still_late,
            } => {
                write!(
                    f,
                    "the device bears {} % of the token rate of its model {model:?}",
                    percent(*permille)
                )?;
                if let Some(tenant) = still_late {
                    write!(f, ", and tenant {tenant:?} is late even so")?;
                }
                write!(f, ": calibrate it again")
            }
        }
    }
}

fn percent(permille: u32) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}

/// The worst of the observations.
pub(crate) struct Worst {
    pub(crate) tenant: String,
    pub(crate) observed_us: u32,
    pub(crate) promised_us: u32,
}

pub(crate) struct Feedback {
    share: u32,
    changed: Option<Nanos>,
    drifted: Option<Nanos>,
    advised: bool,
}

impl Feedback {
    pub(crate) fn new() -> Feedback {
        Feedback {
            share: WHOLE,
            changed: None,
            drifted: None,
            advised: false,
        }
    }

    /// Share of the model's rate, of 1000.
    pub(crate) fn share(&self) -> u32 {
        self.share
    }

    /// One step; `promised` is the share that promises need.
    pub(crate) fn step(
        &mut self,
        now: Nanos,
        worst: &Worst,
        promised: u32,
        model: &str,
    ) -> Vec<Advice> {
        let mut advice = Vec::new();
        if self
            .changed
            .is_some_and(|at| now.saturating_sub(at) < INTERVAL)
        {
            return advice;
        }
        let (observed, allowed) = (
            u64::from(worst.observed_us),
            u64::from(worst.promised_us).max(1),
        );
        let from = self.share;
        self.follow(observed, allowed, promised.clamp(LEAST, WHOLE));
        let to = self.share;
        match to.cmp(&from) {
            Ordering::Less => advice.push(Advice::Tightened {
                tenant: worst.tenant.clone(),
                observed_us: worst.observed_us,
                promised_us: worst.promised_us,
                from_permille: from,
                to_permille: to,
            }),
            Ordering::Greater => advice.push(Advice::Loosened {
                from_permille: from,
                to_permille: to,
            }),
            Ordering::Equal => {}
        }
        if to != from {
            self.changed = Some(now);
        }
        let late = (observed > allowed && to == from).then(|| worst.tenant.clone());
        advice.extend(self.drift(now, late, model));
        advice
    }

    /// The lateness decides how much smaller, ease makes a little larger.
    fn follow(&mut self, observed: u64, allowed: u64, least: u32) {
        let from = self.share;
        if observed > allowed {
            let half = u64::from(WHOLE) / 2;
            let over = u32::try_from((observed - allowed) * half / allowed).unwrap_or(u32::MAX);
            let step = over.clamp(*DOWN.start(), *DOWN.end());
            self.share = (from - from * step / WHOLE).max(least).min(from);
        } else if observed * 100 < allowed * EASY_PCT {
            self.share = (from + UP).min(WHOLE);
        }
    }

    /// Advises once per drift.
    fn drift(&mut self, now: Nanos, still_late: Option<String>, model: &str) -> Option<Advice> {
        if self.share >= RECOVERED && still_late.is_none() {
            self.drifted = None;
            self.advised = false;
            return None;
        }
        if self.share >= DRIFTED && still_late.is_none() {
            return None;
        }
        let since = *self.drifted.get_or_insert(now);
        if self.advised || now.saturating_sub(since) < DRIFT_TIME {
            return None;
        }
        self.advised = true;
        Some(Advice::Recalibrate {
            model: model.to_owned(),
            permille: self.share,
            still_late,
        })
    }
}
