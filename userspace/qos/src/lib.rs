// SPDX-License-Identifier: GPL-2.0-only
//! Tenants, tokens, cost model, admission, scheduler: no I/O, time is an argument.
//!
//! A flash device serves so many *tokens* a second before its reads become
//! late; [`DeviceModel`] says how many, and what a request costs. [`Control`]
//! admits tenants against that, one per device, behind a lock. [`Shared`] is
//! the state that all threads use, made of atomics only. Each thread has a
//! [`Scheduler`], which asks [`Shared`] for tokens and holds what must wait.
//!
//! The algorithm is that of ReFlex (Klimovic, Litz, Kozyrakis: "ReFlex: Remote
//! Flash ≈ Local Flash", ASPLOS 2017, section 3.2). What is done otherwise, and
//! why, is in `Documentation/scheduler.rst`.

mod account;
mod bucket;
mod control;
mod feedback;
mod model;
mod refusal;
mod scheduler;
mod shared;
mod sync;
mod tenant;
mod ticks;

#[cfg(test)]
mod loom_tests;

pub use control::{Control, Explanation, Tenant};
pub use feedback::Advice;
pub use model::{DeviceModel, ModelError, Point, TextError};
pub use refusal::Refusal;
pub use scheduler::{Entry, Scheduler};
pub use shared::{Books, Shared, TenantTokens};
pub use tenant::{Class, DEFAULT_WEIGHT, MAX_WEIGHT, Nanos, Op, Slo, TenantId, Tokens};
