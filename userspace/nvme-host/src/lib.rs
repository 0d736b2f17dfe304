// SPDX-License-Identifier: GPL-2.0-only
//! A small blocking NVMe/TCP initiator in user space.
//!
//! [`Connection`] is one queue: it opens a TCP connection, agrees on its
//! parameters, and carries commands with their data. [`Admin`] is an admin
//! queue with an enabled controller behind it. [`discover`] stands on both.
//! [`IoQueue`] is a pipelined I/O queue that never blocks.
//!
//! What waits is bounded by a [`Deadline`]: no peer, however slow, holds a
//! caller for longer. No peer, however broken, makes this panic or allocate
//! more than the caller asked for.

mod admin;
mod connection;
mod discovery;
mod error;
mod queue;

pub use admin::{Admin, HostIdentity};
pub use connection::{Connection, Options, Request};
pub use discovery::{DiscoveryLog, discover};
pub use error::{Deadline, HostError, Stage};
pub use queue::{DEPTH_MAX, Done, Events, IoQueue, QueueSetup, SCRATCH_LEN};
