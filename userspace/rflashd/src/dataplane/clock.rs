// SPDX-License-Identifier: GPL-2.0-only
//! The one clock.

use rustix::time::{ClockId, clock_gettime};

use crate::backend::Nanos;

pub const MICROSECOND: Nanos = 1_000;
pub const MILLISECOND: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64) * SECOND + t.tv_nsec as u64
}
