// SPDX-License-Identifier: GPL-2.0-only
//! Atomics, which the crate's own unit tests replace by loom's: they work only
//! inside `loom::model` there. All other tests are in `tests/`.

#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

#[cfg(test)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Somebody else is in the middle of a change: let them get on with it.
pub(crate) fn pause() {
    #[cfg(not(test))]
    std::thread::yield_now();
    #[cfg(test)]
    loom::thread::yield_now();
}
