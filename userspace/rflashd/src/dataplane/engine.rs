// SPDX-License-Identifier: GPL-2.0-only
//! What a core serves its connections with: everything but the connections.
//!
//! The methods take the connection as an argument and are spread over the
//! files by subject: `receive`, `command`, `admin`, `transfer`, `reply`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use nvme_wire::pdu::Link;
use nvme_wire::status::Status;

use crate::backend::{Backends, Nanos, Ticket};
use crate::metrics::{CoreMetrics, Kind as StatKind, Stages};
use crate::subsystem::Target;

use super::Letter;
use super::buffer::Pool;
use super::complaint::Complaints;
use super::connection::Connection;
use super::gate::Gate;
use super::mailbox::Mailbox;
use super::outbox::Outbox;
use super::request::{NONE, Slots, State};
use super::settings::Settings;

/// Bytes received at once: a full queue of small writes.
pub const RECEIVE: usize = 512 << 10;
/// Greatest part of the buffers that one connection may hold, as a divisor.
const SHARE: usize = 4;

/// Fast-path commands since the outbox was last sent.
#[derive(Default)]
pub struct Batch {
    pub reads: u32,
    pub read_bytes: u64,
    pub writes: u32,
    pub write_bytes: u64,
    pub others: u32,
    pub errors: u32,
    pub device: u16,
}

/// An Abort whose victim may be on another connection.
pub struct Abort {
    /// The connection and slot of the Abort itself.
    pub connection: u32,
    pub slot: u32,
    pub sqid: u16,
    pub cid: u16,
}

pub struct Engine {
    /// Time of this round.
    pub now: Nanos,
    /// Index of the core.
    pub core: usize,
    pub settings: Arc<Settings>,
    pub target: Arc<Target>,
    pub metrics: Arc<CoreMetrics>,
    pub mailbox: Arc<Mailbox<Letter>>,
    pub gate: Gate,
    pub backends: Backends,
    pub pool: Pool,
    pub slots: Slots,
    pub outbox: Outbox,
    pub batch: Batch,
    /// What is received goes here first.
    pub buffer: Vec<u8>,
    /// Stashes of connections that need none now.
    pub stashes: Vec<Vec<u8>>,
    pub complaints: Complaints,
    /// Connections with something to send.
    pub touched: Vec<u32>,
    /// Slots that may run.
    pub granted: Vec<u32>,
    /// Slots that the backends are done with.
    pub done: Vec<(Ticket, Status)>,
    /// Slots whose replies have been sent.
    pub released: Vec<u32>,
    /// Slots that wait for a buffer, and for room at a backend. An entry whose
    /// slot is in another state by now means nothing.
    pub want_buffer: VecDeque<u32>,
    pub want_backend: VecDeque<u32>,
    /// Connections that wait for a slot.
    pub starved: Vec<u32>,
    pub aborts: Vec<Abort>,
    /// Connections that belong on other CPUs.
    pub moves: Vec<u32>,
}

impl Engine {
    pub fn new(
        core: usize,
        settings: Arc<Settings>,
        target: Arc<Target>,
        metrics: Arc<CoreMetrics>,
        mailbox: Arc<Mailbox<Letter>>,
        gate: Gate,
    ) -> io::Result<Engine> {
        let pool = Pool::new(settings.buffer_bytes)?;
        let backends = Backends::new(pool.region(), settings.io_depth);
        Ok(Engine {
            now: super::clock::now(),
            core,
            slots: Slots::new(settings.slots.min(1024), settings.slots),
            settings,
            target,
            metrics,
            mailbox,
            gate,
            backends,
            pool,
            outbox: Outbox::new(),
            batch: Batch::default(),
            buffer: vec![0; RECEIVE],
            stashes: Vec::with_capacity(64),
            complaints: Complaints::default(),
            touched: Vec::with_capacity(1024),
            granted: Vec::with_capacity(1024),
            done: Vec::with_capacity(1024),
            released: Vec::with_capacity(1024),
            want_buffer: VecDeque::with_capacity(1024),
            want_backend: VecDeque::with_capacity(1024),
            starved: Vec::new(),
            aborts: Vec::new(),
            moves: Vec::new(),
        })
    }

    /// What a new connection is told and held to.
    pub fn link(&self) -> Link {
        Link {
            max_capsule_data: crate::subsystem::IN_CAPSULE,
            max_h2c_data: self.settings.max_h2c_data,
            ..Link::default()
        }
    }

    /// Most bytes of buffers that one connection may hold.
    pub fn share(&self) -> usize {
        (self.pool.bytes() / SHARE).max(super::buffer::GREATEST)
    }

    /// The connection has something to send.
    #[inline]
    pub fn touch(&mut self, conn: &mut Connection) {
        if !conn.touched {
            conn.touched = true;
            self.touched.push(conn.index);
        }
    }

    /// Put a slot at the end of what the connection has to send.
    pub fn push_out(&mut self, conn: &mut Connection, slot: u32) {
        if let Some(request) = self.slots.get_mut(slot) {
            request.next_out = NONE;
        }
        match self.slots.get_mut(conn.out_last) {
            Some(last) => last.next_out = slot,
            None => conn.out_first = slot,
        }
        conn.out_last = slot;
        self.touch(conn);
    }

    pub fn pop_out(&mut self, conn: &mut Connection) -> Option<u32> {
        let slot = conn.out_first;
        let request = self.slots.get(slot)?;
        conn.out_first = request.next_out;
        if conn.out_first == NONE {
            conn.out_last = NONE;
        }
        Some(slot)
    }

    /// Take a slot for a command of `conn`.
    pub fn take_slot(&mut self, conn: &mut Connection) -> Option<u32> {
        let (slot, request) = self.slots.take()?;
        request.connection = conn.index;
        request.next = conn.requests;
        request.arrived = self.now;
        request.state = State::Done;
        if let Some(next) = self.slots.get_mut(conn.requests) {
            next.previous = slot;
        }
        conn.requests = slot;
        conn.request_count += 1;
        Some(slot)
    }

    fn unlink(&mut self, conn: &mut Connection, slot: u32) {
        let Some(request) = self.slots.get(slot) else {
            return;
        };
        let (previous, next) = (request.previous, request.next);
        if let Some(request) = self.slots.get_mut(next) {
            request.previous = previous;
        }
        match self.slots.get_mut(previous) {
            Some(request) => request.next = next,
            None => conn.requests = next,
        }
        conn.request_count -= 1;
    }

    /// A request is over.
    pub fn free_slot(&mut self, conn: &mut Connection, slot: u32) {
        self.unlink(conn, slot);
        if let Some(request) = self.slots.get_mut(slot) {
            if let Some(buffer) = request.buffer.take() {
                conn.pinned -= buffer.len as usize;
                self.pool.free(buffer);
            }
            self.slots.give(slot);
        }
    }

    /// An orphan's ticket has come back.
    pub fn free_orphan(&mut self, slot: u32) {
        if let Some(request) = self.slots.get_mut(slot) {
            if let Some(buffer) = request.buffer.take() {
                self.pool.free(buffer);
            }
            self.slots.give(slot);
        }
    }

    /// Free the slots whose replies have been sent.
    pub fn free_released(&mut self, conn: &mut Connection) {
        while let Some(slot) = self.released.pop() {
            self.free_slot(conn, slot);
        }
    }

    /// A buffer for `slot`, which must fit the connection's share.
    pub fn take_buffer(&mut self, conn: &mut Connection, slot: u32, len: usize) -> bool {
        if conn.pinned > 0 && conn.pinned + len > self.share() {
            return false;
        }
        let Some(buffer) = self.pool.alloc(len) else {
            return false;
        };
        let Some(request) = self.slots.get_mut(slot) else {
            self.pool.free(buffer);
            return false;
        };
        conn.pinned += buffer.len as usize;
        request.buffer = Some(buffer);
        true
    }

    /// Drop the requests of a connection that ends. Those whose replies are
    /// being sent stay while `sending`; those at the backend become orphans.
    pub fn drop_requests(&mut self, conn: &mut Connection, sending: bool) {
        conn.payload = None;
        conn.out_first = NONE;
        conn.out_last = NONE;
        conn.asked = 0;
        let mut slot = conn.requests;
        while let Some(request) = self.slots.get_mut(slot) {
            let next = request.next;
            match request.state {
                State::Sending if sending => {}
                State::Backend => {
                    request.orphan = true;
                    if let Some(buffer) = request.buffer {
                        conn.pinned -= buffer.len as usize;
                    }
                    self.unlink(conn, slot);
                }
                State::Tokens => {
                    let (device, tenant) = (request.device, request.tenant);
                    self.gate.cancel(device, tenant, slot);
                    self.free_slot(conn, slot);
                }
                _ => self.free_slot(conn, slot),
            }
            slot = next;
        }
    }

    /// How many of a connection's requests are kept for events.
    pub fn held(&self, conn: &Connection) -> u32 {
        let mut held = 0;
        let mut slot = conn.requests;
        while let Some(request) = self.slots.get(slot) {
            held += u32::from(request.state == State::Held);
            slot = request.next;
        }
        held
    }

    /// Account for the fast-path commands of the outbox that was just sent.
    pub fn settle_batch(&mut self, conn: &Connection, arrived: Nanos, now: Nanos) {
        let batch = std::mem::take(&mut self.batch);
        let all = batch.reads + batch.writes + batch.others + batch.errors;
        if all == 0 {
            return;
        }
        self.metrics.core.commands.add(all.into());
        let tenant = conn.association.as_ref().map_or(0, |a| a.tenant.0);
        let device = usize::from(batch.device);
        let Some(stats) = self.metrics.tenant(device, tenant as usize) else {
            return;
        };
        let stages = Stages {
            service: now.saturating_sub(arrived),
            ..Stages::default()
        };
        for (kind, n, bytes) in [
            (StatKind::Read, batch.reads, batch.read_bytes),
            (StatKind::Write, batch.writes, batch.write_bytes),
            (StatKind::Other, batch.others, 0),
        ] {
            if n > 0 {
                stats.done_n(kind, n.into(), bytes, stages);
            }
        }
        stats.errors.add(batch.errors.into());
    }
}
