// SPDX-License-Identifier: GPL-2.0-only
//! What the server counts, and how it is read while it is being counted.
//!
//! Every number has one writer, the thread of its core, and any number of
//! readers. A writer loads and stores with relaxed order, so that counting
//! costs no locked instruction. A reader may see one number of a request and
//! not yet the other; it never sees a torn one.
//!
//! Hazard: two threads that write the same [`Counter`] or [`Histogram`] lose
//! counts. [`CoreMetrics`] belongs to one thread, whoever else may read it.

mod histogram;
mod registry;
mod stats;

pub use histogram::{Histogram, Snapshot};
pub use registry::{CoreMetrics, Registry, TenantSnapshot};
pub use stats::{CoreStats, Counter, Gauge, Kind, Stages, TenantStats};
