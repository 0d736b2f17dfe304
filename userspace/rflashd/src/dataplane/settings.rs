// SPDX-License-Identifier: GPL-2.0-only
//! What the dataplane can be told.

use std::time::Duration;

use super::clock::{MICROSECOND, SECOND};
use crate::backend::Nanos;

/// Settings of the dataplane.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPUs, one core (thread) each; empty: one core on any CPU.
    pub cpus: Vec<u32>,
    /// Priority of the cores' threads as SCHED_RR, 1..=99; `None`: as started.
    pub priority: Option<u8>,
    /// Bytes of buffers per core, a multiple of 1 MiB.
    pub buffer_bytes: usize,
    /// Most commands per core that wait for something, 1..=65536.
    pub slots: usize,
    /// Most I/Os per core at its backends.
    pub io_depth: u32,
    /// Most connections of the server.
    pub connections: usize,
    /// MAXH2CDATA, bytes: a multiple of 4, at least 4096.
    pub max_h2c_data: u32,
    /// How long a core looks for work before it sleeps, at most. 0: never
    /// looks, always sleeps.
    pub spin: Nanos,
    /// Time for ICReq and for Connect, each.
    pub handshake: Nanos,
    /// How long a peer may owe the rest of a PDU, data, or room for replies
    /// without moving a byte.
    pub stuck: Nanos,
    /// How long a graceful stop waits for requests in flight.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cpus: Vec::new(),
            priority: None,
            buffer_bytes: 64 << 20,
            slots: 1 << 16,
            io_depth: 1024,
            connections: 65536,
            max_h2c_data: 256 << 10,
            spin: 50 * MICROSECOND,
            handshake: 10 * SECOND,
            stuck: 30 * SECOND,
            grace: Duration::from_secs(5),
        }
    }
}
