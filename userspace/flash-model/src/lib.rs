// SPDX-License-Identifier: GPL-2.0-only
//! A flash device in virtual time.
//!
//! [`Device::submit`] is given a time and a command and says when the command
//! completes. Nothing here sleeps, reads a clock or touches data: the caller
//! decides what "now" is, so that the same device serves a live server in real
//! time and a test in virtual time. The same parameters, seed and commands give
//! the same completions.
//!
//! What is modelled: a controller and a host link with a rate each, channels
//! and dies with queues, page read, program and erase times, a write buffer,
//! and a page-mapped translation layer with greedy garbage collection, scaled
//! down. Documentation/flash-model.rst states the assumptions and sources.
//!
//! Hazards:
//! * Times must not run backwards by much: an earlier "now" than the last one
//!   is served as if no time had passed.
//! * A write that waits for buffer space is given its time when it is
//!   submitted. Reads that arrive later may delay the programs it waits for;
//!   the next writes then wait longer, so rates are right on average.

mod device;
mod die;
mod ftl;
pub mod load;
mod params;
mod rng;

pub use device::{Device, Op, Precondition, Stats};
pub use params::{Params, ParamsError};
pub use rng::Rng;

/// Nanoseconds; the caller says since when.
pub type Nanos = u64;

/// Bytes of a logical page: what costs one page read when it is read alone.
pub const PAGE: u32 = 4096;
