// SPDX-License-Identifier: GPL-2.0-only
//! Arithmetic of time and tokens.
//!
//! Balances are kept in grains, 256 to a token, so that a token can be divided
//! among weights without a remainder that anybody would miss.

use crate::tenant::{Nanos, Tokens};

pub(crate) const GRAINS: i64 = 256;
const NANOS_PER_SEC: u64 = 1_000_000_000;
/// Below this many nanoseconds [`earned`] needs no 128 bits:
/// `RATE_MAX * GRAINS * SHORT < 2^64`.
const SHORT: u64 = 1 << 24;

pub(crate) fn grains(tokens: Tokens) -> i64 {
    tokens.saturating_mul(GRAINS)
}

pub(crate) fn tokens(grains: i64) -> Tokens {
    grains.div_euclid(GRAINS)
}

/// Grains of `rate` tokens a second over `elapsed`.
pub(crate) fn over(rate: u64, elapsed: Nanos) -> i64 {
    earned(rate, elapsed).0
}

/// Whole grains of `rate` tokens a second over `elapsed`, and how much of
/// `elapsed` made none: who settles an account leaves that for the next time.
/// Otherwise a slow tenant that is settled often would earn nothing.
pub(crate) fn earned(rate: u64, elapsed: Nanos) -> (i64, Nanos) {
    let per_second = rate * GRAINS as u64;
    if elapsed < SHORT {
        let product = per_second * elapsed;
        let rest = product % NANOS_PER_SEC;
        let rest = if rest < per_second {
            0
        } else {
            rest.checked_div(per_second).unwrap_or(0)
        };
        return ((product / NANOS_PER_SEC) as i64, rest);
    }
    let product = u128::from(per_second) * u128::from(elapsed);
    let grains = product / u128::from(NANOS_PER_SEC);
    (i64::try_from(grains).unwrap_or(i64::MAX), 0)
}

/// How long `rate` tokens a second take to make so many grains.
pub(crate) fn time_for(grains: i64, rate: u64) -> Option<Nanos> {
    let grains = u128::try_from(grains).ok()?;
    let per_second = u128::from(rate) * GRAINS as u128;
    let nanos = (grains * u128::from(NANOS_PER_SEC)).checked_div(per_second)?;
    u64::try_from(nanos).ok()?.checked_add(1)
}

/// From `from` to `to`, of which only the low `bits` are known; zero when `to`
/// is the earlier one.
pub(crate) fn since(to: u64, from: u64, bits: u32) -> u64 {
    let apart = to.wrapping_sub(from) & mask(bits);
    if apart >> (bits - 1) == 0 { apart } else { 0 }
}

pub(crate) const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}
