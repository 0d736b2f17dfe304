// SPDX-License-Identifier: GPL-2.0-only
//! A modelled flash device, in real time.
#![allow(unsafe_code)]

use std::sync::Arc;

use nvme_wire::status::Status;

use super::{Io, Nanos, Submit, Ticket};

/// A modelled device, shared by all cores.
#[derive(Debug)]
pub struct ModelDisk {
    bytes: u64,
}

impl ModelDisk {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// One core's I/Os on modelled devices that are not over yet.
#[derive(Default)]
pub struct Completions {}

impl Completions {
    pub fn new() -> Completions {
        Completions::default()
    }

    /// Start an I/O whose offset counts from the start of the device.
    ///
    /// # Safety
    /// The buffer must stay valid, and nobody else may touch it, until the
    /// ticket comes out of `poll`.
    pub unsafe fn submit(&mut self, _now: Nanos, _disk: &Arc<ModelDisk>, _io: Io) -> Submit {
        Submit::Done(Status::INTERNAL)
    }

    /// Append what is over by `now`.
    pub fn poll(&mut self, _now: Nanos, _done: &mut Vec<(Ticket, Status)>) {}

    pub fn busy(&self) -> bool {
        false
    }

    /// When the next one is over.
    pub fn next_event(&self) -> Option<Nanos> {
        None
    }
}
