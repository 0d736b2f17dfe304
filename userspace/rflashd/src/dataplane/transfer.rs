// SPDX-License-Identifier: GPL-2.0-only
//! Requests in slots: buffers, R2T, backends.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use nvme_wire::command::DsmRange;
use nvme_wire::status::Status;
use zerocopy::FromBytes;

use crate::backend::{Buffer, Io, IoOp, Submit, Ticket};

use super::buffer;
use super::connection::Connection;
use super::engine::Engine;
use super::request::{Kind, State};

/// Deallocate, in CDW11 of Dataset Management.
const DSM_DEALLOCATE: u32 = 1 << 2;
/// Requests that are looked at when buffers have become free.
const LOOK: usize = 64;

impl Engine {
    /// Data that came in the capsule: into a buffer or, when there is none,
    /// into memory of its own. It can't wait: what stands behind it in the
    /// stream may be what frees buffers. The queue's entries bound it.
    pub fn keep_data(&mut self, conn: &mut Connection, slot: u32, data: &[u8]) {
        let buffered = self.take_buffer(conn, slot, data.len());
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        request.received = data.len() as u32;
        match request.buffer {
            Some(buffer) if buffered => {
                // SAFETY: the buffer was taken just now.
                let place = unsafe { buffer::bytes_mut(buffer, data.len()) };
                place.copy_from_slice(data);
            }
            _ => {
                request.own.clear();
                request.own.extend_from_slice(data);
            }
        }
    }

    /// The tenant has paid: go on as far as possible.
    pub fn start(&mut self, conn: &mut Connection, slot: u32) {
        let now = self.now;
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        request.granted = now;
        let from_host = match request.kind {
            Kind::Io(IoOp::Read) => {
                let in_place = !conn.link.data_digest && immediate(conn, request.sqe.nsid.get());
                if in_place {
                    self.finish(conn, slot, Status::SUCCESS);
                    return;
                }
                false
            }
            Kind::Io(IoOp::Write { .. }) | Kind::Ranges { .. } | Kind::Admin => {
                if request.received == request.len {
                    if self.align_data(conn, slot) {
                        self.submit(conn, slot);
                    }
                    return;
                }
                true
            }
            Kind::Io(_) => {
                self.submit(conn, slot);
                return;
            }
        };
        let len = request.len as usize;
        if !self.take_buffer(conn, slot, len) {
            if let Some(request) = self.slots.get_mut(slot) {
                request.state = State::Buffer;
            }
            self.want_buffer.push_back(slot);
            return;
        }
        if from_host {
            if let Some(request) = self.slots.get_mut(slot) {
                request.state = State::Asking;
            }
            conn.asked += 1;
            self.push_out(conn, slot);
        } else {
            self.submit(conn, slot);
        }
    }

    /// Backends that do I/O take aligned memory only: data that a request keeps
    /// itself moves to a buffer. `false`: it waits for one.
    fn align_data(&mut self, conn: &mut Connection, slot: u32) -> bool {
        let Some(request) = self.slots.get(slot) else {
            return false;
        };
        let moves = matches!(request.kind, Kind::Io(IoOp::Write { .. }))
            && request.buffer.is_none()
            && !immediate(conn, request.sqe.nsid.get());
        if !moves {
            return true;
        }
        let len = request.len as usize;
        let buffered = self.take_buffer(conn, slot, len);
        let Some(request) = self.slots.get_mut(slot) else {
            return false;
        };
        let Some(buffer) = request.buffer.filter(|_| buffered) else {
            request.state = State::Buffer;
            self.want_buffer.push_back(slot);
            return false;
        };
        // SAFETY: the buffer was taken just now.
        let place = unsafe { buffer::bytes_mut(buffer, len) };
        for (to, from) in place.iter_mut().zip(&request.own) {
            *to = *from;
        }
        request.own.clear();
        true
    }

    /// Take the requests that waited for a buffer and may have one now.
    /// Returns those whose turn it is, by connection, to be started again.
    pub fn retry_buffers(&mut self, again: &mut Vec<u32>) {
        for _ in 0..self.want_buffer.len().min(LOOK) {
            let Some(slot) = self.want_buffer.pop_front() else {
                return;
            };
            if self
                .slots
                .get(slot)
                .is_some_and(|r| r.state == State::Buffer)
            {
                again.push(slot);
            }
        }
    }

    /// Hand a request with its data to its backend.
    pub fn submit(&mut self, conn: &mut Connection, slot: u32) {
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        let op = match request.kind {
            Kind::Io(op) => op,
            Kind::Ranges { .. } => return self.discard_ranges(conn, slot),
            Kind::Admin => return self.run_admin_slot(conn, slot),
        };
        let (offset, len) = (request.offset, u64::from(request.len));
        if let Some(status) = self.issue(conn, slot, op, offset, len) {
            self.finish(conn, slot, status);
        }
    }

    /// Submit one I/O of a request; a status when it is over already.
    fn issue(
        &mut self,
        conn: &Connection,
        slot: u32,
        op: IoOp,
        offset: u64,
        len: u64,
    ) -> Option<Status> {
        let gone = Some(Status::INVALID_NAMESPACE.with_do_not_retry());
        let Some(request) = self.slots.get_mut(slot) else {
            return gone;
        };
        let namespaces = conn.association.as_ref().map(|a| &a.namespaces);
        let Some(namespace) = namespaces.and_then(|n| n.get(request.sqe.nsid.get())) else {
            return gone;
        };
        let buffer = match request.buffer {
            Some(buffer) => buffer,
            None => Buffer {
                ptr: NonNull::new(request.own.as_mut_ptr()).unwrap_or(NonNull::dangling()),
                len: request.own.len() as u32,
            },
        };
        let io = Io {
            ticket: Ticket(slot),
            op,
            offset,
            len,
            buffer,
        };
        // SAFETY: the buffer, or the bytes the request owns, stay until the
        // ticket comes back: in State::Backend a slot is never freed.
        match unsafe { self.backends.submit(self.now, &namespace.volume, io) } {
            Submit::Done(status) => Some(status),
            Submit::Pending => {
                request.state = State::Backend;
                None
            }
            Submit::Full => {
                request.state = State::Queued;
                self.want_backend.push_back(slot);
                None
            }
        }
    }

    /// Discard the ranges of a Dataset Management command that are left. A hint
    /// only: without the deallocate attribute nothing is to be done.
    fn discard_ranges(&mut self, conn: &mut Connection, slot: u32) {
        loop {
            match self.next_range(conn, slot) {
                Ok(Some((offset, len))) => {
                    match self.issue(conn, slot, IoOp::Discard, offset, len) {
                        None => return,
                        Some(status) if status.is_success() => self.range_done(slot),
                        Some(status) => return self.finish(conn, slot, status),
                    }
                }
                Ok(None) => return self.finish(conn, slot, Status::SUCCESS),
                Err(status) => return self.finish(conn, slot, status),
            }
        }
    }

    fn range_done(&mut self, slot: u32) {
        if let Some(request) = self.slots.get_mut(slot) {
            if let Kind::Ranges { next, .. } = &mut request.kind {
                *next += 1;
            }
        }
    }

    /// The next range that is not empty, in bytes.
    fn next_range(&mut self, conn: &Connection, slot: u32) -> Result<Option<(u64, u64)>, Status> {
        let gone = Status::INVALID_NAMESPACE.with_do_not_retry();
        let Some(request) = self.slots.get_mut(slot) else {
            return Ok(None);
        };
        let namespaces = conn.association.as_ref().map(|a| &a.namespaces);
        let nsid = request.sqe.nsid.get();
        let namespace = namespaces.and_then(|n| n.get(nsid)).ok_or(gone)?;
        if request.sqe.cdw11.get() & DSM_DEALLOCATE == 0 {
            return Ok(None);
        }
        let bytes: &[u8] = match request.buffer {
            // SAFETY: between two I/Os the buffer is the request's.
            Some(buffer) => unsafe { buffer::bytes_mut(buffer, request.len as usize) },
            None => &request.own,
        };
        let Kind::Ranges { count, next } = &mut request.kind else {
            return Ok(None);
        };
        while next < count {
            let at = usize::from(*next) * size_of::<DsmRange>();
            let range = bytes.get(at..).map(DsmRange::read_from_prefix);
            let Some(Ok((range, _))) = range else {
                return Ok(None);
            };
            let (lba, blocks) = (range.lba.get(), u64::from(range.blocks.get()));
            let inside = lba
                .checked_add(blocks)
                .is_some_and(|end| end <= namespace.blocks);
            if !inside {
                return Err(Status::LBA_RANGE.with_do_not_retry());
            }
            if blocks > 0 {
                let shift = namespace.block_shift;
                return Ok(Some((lba << shift, blocks << shift)));
            }
            *next += 1;
        }
        Ok(None)
    }

    /// A backend is done with a request.
    pub fn complete(&mut self, conn: &mut Connection, slot: u32, status: Status) {
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        request.state = State::Done;
        if matches!(request.kind, Kind::Ranges { .. }) && status.is_success() {
            self.range_done(slot);
            self.discard_ranges(conn, slot);
            return;
        }
        self.finish(conn, slot, status);
    }

    /// A request has its status: reply.
    pub fn finish(&mut self, conn: &mut Connection, slot: u32, status: Status) {
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        request.status = status;
        request.state = State::Done;
        request.done = self.now;
        // Errors of the backend go to the controller's error log.
        let media = matches!(request.kind, Kind::Io(_)) && !status.is_success();
        let sqe = media.then_some(request.sqe);
        if let (Some(sqe), Some(association)) = (sqe, &conn.association) {
            association
                .controller
                .record_error(association.qid, &sqe, status);
        }
        self.push_out(conn, slot);
    }
}

/// I/O on the namespace is over when it is submitted.
fn immediate(conn: &Connection, nsid: u32) -> bool {
    let namespaces = conn.association.as_ref().map(|a| &a.namespaces);
    namespaces
        .and_then(|n| n.get(nsid))
        .is_some_and(|n| n.volume.immediate())
}
