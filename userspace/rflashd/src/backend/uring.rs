// SPDX-License-Identifier: GPL-2.0-only
//! Files and block devices by io_uring.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use nvme_wire::status::Status;

use super::{Io, Nanos, Submit, Ticket};

/// An open file or block device, shared by all cores.
#[derive(Debug)]
pub struct FileDisk {
    bytes: u64,
}

impl FileDisk {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// One core's ring.
pub struct Ring {}

impl Ring {
    /// A ring for `entries` I/Os at once, with `buffers` registered.
    pub fn new(_entries: u32, _buffers: &[u8]) -> io::Result<Ring> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Start an I/O whose offset counts from the start of the file.
    ///
    /// # Safety
    /// The buffer must stay valid, and nobody else may touch it, until the
    /// ticket comes out of `poll`.
    pub unsafe fn submit(&mut self, _now: Nanos, _disk: &Arc<FileDisk>, _io: Io) -> Submit {
        Submit::Done(Status::INTERNAL)
    }

    /// Hand over to the kernel what was submitted.
    pub fn kick(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Append what is over.
    pub fn poll(&mut self, _now: Nanos, _done: &mut Vec<(Ticket, Status)>) {}

    pub fn busy(&self) -> bool {
        false
    }

    /// When `poll` must be called although the descriptor says nothing, as for
    /// a ring that polls its device.
    pub fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Becomes readable when something is over.
    pub fn fd(&self) -> RawFd {
        -1
    }
}
