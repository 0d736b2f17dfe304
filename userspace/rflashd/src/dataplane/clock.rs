// SPDX-License-Identifier: GPL-2.0-only
//! The one clock.
#![allow(unsafe_code)]

use crate::backend::Nanos;

pub const MICROSECOND: Nanos = 1_000;
pub const MILLISECOND: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC`. By libc, which finds the vDSO under
/// valgrind, too.
#[inline]
pub fn now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is good during the call. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64) * SECOND + time.tv_nsec as u64
}
