// SPDX-License-Identifier: GPL-2.0-only
//! Replies: from finished requests to the socket.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use nvme_wire::command::Cqe;
use nvme_wire::digest;
use nvme_wire::pdu::{self, Data, R2t, Side, Term};
use nvme_wire::status::Status;
use zerocopy::little_endian::U16;

use crate::backend::{Backends, IoOp};
use crate::metrics::{Kind as StatKind, Stages};

use super::clock;
use super::connection::Connection;
use super::engine::Engine;
use super::fault::End;
use super::outbox::{Drained, Sent};
use super::request::{Kind, State};

/// Bytes in the outbox at which it is sent while more replies are being made:
/// the peer takes the first while we make the next.
const SEND_AT: usize = 256 << 10;

fn cqe(conn: &Connection, cid: u16, status: Status, result: u64) -> Cqe {
    let mut cqe = Cqe::new(cid, status, result);
    if let Some(association) = &conn.association {
        cqe.sq_id = U16::new(association.qid);
        if !association.sq_flow_off {
            cqe.sq_head = U16::new(conn.sq_head);
        }
    }
    cqe
}

impl Engine {
    /// Complete a command that has no slot.
    #[inline]
    pub fn respond(&mut self, conn: &Connection, cid: u16, status: Status) {
        let cqe = cqe(conn, cid, status, 0);
        self.outbox
            .head(&pdu::rsp_pdu(&cqe, &conn.link), &conn.link);
    }

    /// Refuse a command that has no slot.
    pub fn refuse(&mut self, conn: &Connection, cid: u16, status: Status) {
        self.batch.errors += 1;
        self.respond(conn, cid, status);
    }

    /// Send data to the host and complete the command.
    ///
    /// # Safety
    /// As for [`super::outbox::Outbox::place`].
    #[inline]
    pub unsafe fn respond_data(
        &mut self,
        conn: &Connection,
        cid: u16,
        ptr: NonNull<u8>,
        len: u32,
        result: u64,
    ) {
        let flow_off = conn.association.as_ref().is_some_and(|a| a.sq_flow_off);
        let success = flow_off && result == 0;
        let data = Data {
            cid,
            ttag: 0,
            offset: 0,
            length: len,
            last: true,
            success,
        };
        let head = pdu::data_pdu(&data, Side::Host, &conn.link);
        self.outbox.head(&head, &conn.link);
        // SAFETY: the caller's promise.
        unsafe { self.outbox.place(ptr, len as usize) };
        if conn.link.data_digest {
            // SAFETY: readable, as promised; with digests the data is in a
            // buffer of ours and does not change.
            let bytes = unsafe { std::slice::from_raw_parts(ptr.as_ptr(), len as usize) };
            self.outbox.copy(&digest::to_wire(digest::of(bytes)));
        }
        if !success {
            let cqe = cqe(conn, cid, Status::SUCCESS, result);
            self.outbox
                .head(&pdu::rsp_pdu(&cqe, &conn.link), &conn.link);
        }
    }

    /// Send what the connection has to send, as far as its socket takes it.
    pub fn flush(&mut self, conn: &mut Connection) -> Result<(), End> {
        if !self.drain(conn)? {
            return Ok(());
        }
        loop {
            while self.outbox.has_room() && self.outbox.bytes() < SEND_AT {
                let Some(slot) = self.pop_out(conn) else {
                    break;
                };
                self.emit(conn, slot);
            }
            if self.outbox.is_empty() {
                return Ok(());
            }
            let bytes = self.outbox.bytes();
            let sent = self.outbox.send(conn.fd(), &mut self.released)?;
            self.metrics.core.sends.add(1);
            self.metrics.core.sent_bytes.add(bytes as u64);
            self.settle_batch(conn, self.now, clock::now());
            self.free_released(conn);
            if let Sent::Rest(rest) = sent {
                conn.backlog = Some(rest);
                conn.since = self.now;
                return Ok(());
            }
        }
    }

    /// Send the backlog; `true` when there is none any more.
    fn drain(&mut self, conn: &mut Connection) -> Result<bool, End> {
        let fd = conn.fd();
        let Some(backlog) = &mut conn.backlog else {
            return Ok(true);
        };
        let drained = backlog.send(fd, &mut self.released)?;
        self.metrics.core.sends.add(1);
        if drained != Drained::Nothing {
            conn.since = self.now;
        }
        if drained == Drained::All {
            conn.backlog = None;
        }
        self.free_released(conn);
        Ok(drained == Drained::All)
    }

    /// Put what a slot has to send into the outbox.
    fn emit(&mut self, conn: &mut Connection, slot: u32) {
        let Some(request) = self.slots.get_mut(slot) else {
            return;
        };
        let cid = request.sqe.cid.get();
        if request.state == State::Asking {
            request.state = State::Data;
            let r2t = R2t {
                cid,
                ttag: slot as u16,
                offset: 0,
                length: request.len,
            };
            conn.since = self.now;
            self.outbox
                .head(&pdu::r2t_pdu(&r2t, &conn.link), &conn.link);
            return;
        }
        if request.state != State::Done {
            return;
        }
        let (status, result) = (request.status, request.result);
        self.count(slot);
        if !status.is_success() {
            let cqe = cqe(conn, cid, status, result);
            self.outbox
                .head(&pdu::rsp_pdu(&cqe, &conn.link), &conn.link);
            self.free_slot(conn, slot);
            return;
        }
        match self.reply_data(conn, slot) {
            Ok(Some((ptr, len))) => {
                // SAFETY: in the slot's buffer or its own bytes, which stay
                // until the outbox releases the slot, or in a RAM disk.
                unsafe { self.respond_data(conn, cid, ptr, len, result) };
                self.outbox.release(slot);
                if let Some(request) = self.slots.get_mut(slot) {
                    request.state = State::Sending;
                }
            }
            Ok(None) => {
                let cqe = cqe(conn, cid, status, result);
                self.outbox
                    .head(&pdu::rsp_pdu(&cqe, &conn.link), &conn.link);
                self.free_slot(conn, slot);
            }
            Err(status) => {
                self.respond(conn, cid, status);
                self.free_slot(conn, slot);
            }
        }
    }

    /// Where the data of a successful reply stands; `None`: it has none.
    fn reply_data(
        &mut self,
        conn: &Connection,
        slot: u32,
    ) -> Result<Option<(NonNull<u8>, u32)>, Status> {
        let Some(request) = self.slots.get_mut(slot) else {
            return Ok(None);
        };
        match request.kind {
            Kind::Io(IoOp::Read) => {
                if let Some(buffer) = request.buffer {
                    return Ok(Some((buffer.ptr, request.len)));
                }
                let gone = Status::INVALID_NAMESPACE.with_do_not_retry();
                let namespaces = conn.association.as_ref().map(|a| &a.namespaces);
                let namespace = namespaces
                    .and_then(|n| n.get(request.sqe.nsid.get()))
                    .ok_or(gone)?;
                Backends::read_in_place(&namespace.volume, request.offset, request.len)
                    .map(|ptr| Some((ptr, request.len)))
                    .ok_or(gone)
            }
            Kind::Admin if !request.own.is_empty() => {
                let len = request.own.len() as u32;
                Ok(NonNull::new(request.own.as_mut_ptr()).map(|ptr| (ptr, len)))
            }
            _ => Ok(None),
        }
    }

    /// Account for a request that is over.
    fn count(&mut self, slot: u32) {
        let Some(request) = self.slots.get(slot) else {
            return;
        };
        self.metrics.core.commands.add(1);
        let kind = match request.kind {
            Kind::Io(IoOp::Read) => StatKind::Read,
            Kind::Io(IoOp::Write { .. }) => StatKind::Write,
            Kind::Admin => return,
            _ => StatKind::Other,
        };
        let Some(stats) = self
            .metrics
            .tenant(request.device.into(), request.tenant as usize)
        else {
            return;
        };
        let stages = Stages {
            wait: request.granted.saturating_sub(request.arrived),
            device: request.done.saturating_sub(request.granted),
            service: self.now.saturating_sub(request.arrived),
        };
        stats.done(
            kind,
            request.len.into(),
            request.status.is_success(),
            stages,
        );
    }

    /// Put a terminate request for the PDU that begins with `head` behind what
    /// is in the outbox.
    pub fn terminate(&mut self, conn: &Connection, term: &Term, head: &[u8]) {
        let head = head
            .get(..head.len().min(pdu::TERM_DATA_MAX))
            .unwrap_or_default();
        let term = pdu::term_pdu(term, Side::Host, head.len());
        self.outbox.head(&term, &conn.link);
        self.outbox.copy(head);
    }
}
