// SPDX-License-Identifier: GPL-2.0-only
//! I/O commands: checks, the fast path, and the way into a slot.
//!
//! The fast path takes a command from the receive buffer to the outbox at once
//! and without a slot: it exists where the data is in memory and the tenant has
//! the tokens.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use nvme_wire::command::{DsmRange, FUA, Sqe, io, sgl};
use nvme_wire::fabrics;
use nvme_wire::status::Status;

use crate::backend::{Backends, Buffer, Io, IoOp, Submit, Ticket};
use crate::subsystem::{MAX_TRANSFER, Namespace};

use super::connection::Connection;
use super::engine::Engine;
use super::fault::{End, Fault};
use super::gate::Charge;
use super::receive::{CapsuleData, Step};
use super::request::{Kind, State};

/// Status codes of NVMe base 2.0, figure 94, that only this file needs.
const SGL_LENGTH: Status = Status(0x00f);
const SGL_TYPE: Status = Status(0x011);
const SGL_OFFSET: Status = Status(0x016);
const WRITE_PROTECTED: Status = Status(0x020);
/// The host tries again.
const INTERRUPTED: Status = Status(0x021);

/// Deallocate, in CDW12 of Write Zeroes.
const DEAC: u32 = 1 << 25;
const DSM_RANGE: usize = size_of::<DsmRange>();

/// An I/O command that was found good.
#[derive(Clone, Copy)]
pub struct Job {
    pub kind: Kind,
    pub offset: u64,
    /// Bytes the backend is asked for; for Dataset Management those of the
    /// ranges.
    pub len: u64,
    /// Bytes the host sends.
    pub from_host: u32,
    /// The scheduler charges it as that.
    pub charge: Charge,
}

/// The range a command names, if it lies inside the namespace.
fn range(sqe: &Sqe, namespace: &Namespace) -> Result<(u64, u64), Status> {
    let blocks = u64::from(sqe.blocks());
    let inside = sqe
        .lba()
        .checked_add(blocks)
        .is_some_and(|end| end <= namespace.blocks);
    if !inside {
        return Err(Status::LBA_RANGE.with_do_not_retry());
    }
    Ok((
        sqe.lba() << namespace.block_shift,
        blocks << namespace.block_shift,
    ))
}

/// The host's data must be exactly what the command moves, in the capsule or by
/// the transport.
fn check_sgl(sqe: &Sqe, len: u64, in_capsule: usize) -> Result<(), Status> {
    let dnr = |status: Status| Err(status.with_do_not_retry());
    if u64::from(sqe.sgl.length.get()) != len {
        return dnr(SGL_LENGTH);
    }
    match sqe.sgl.kind {
        sgl::TRANSPORT if in_capsule == 0 => Ok(()),
        sgl::IN_CAPSULE if sqe.sgl.address.get() != 0 => dnr(SGL_OFFSET),
        sgl::IN_CAPSULE if in_capsule as u64 == len => Ok(()),
        sgl::IN_CAPSULE => dnr(SGL_LENGTH),
        _ => dnr(SGL_TYPE),
    }
}

#[inline]
fn check(sqe: &Sqe, namespace: &Namespace, in_capsule: usize) -> Result<Job, Status> {
    let dnr = |status: Status| Err(status.with_do_not_retry());
    let fua = sqe.cdw12.get() & FUA != 0;
    let job = match sqe.opcode {
        io::READ => {
            let (offset, len) = range(sqe, namespace)?;
            if sqe.sgl.kind != sgl::TRANSPORT {
                return dnr(SGL_TYPE);
            }
            check_sgl(sqe, len, in_capsule)?;
            Job {
                kind: Kind::Io(IoOp::Read),
                offset,
                len,
                from_host: 0,
                charge: Charge::Read,
            }
        }
        io::WRITE => {
            let (offset, len) = range(sqe, namespace)?;
            check_sgl(sqe, len, in_capsule)?;
            Job {
                kind: Kind::Io(IoOp::Write { fua }),
                offset,
                len,
                from_host: len.min(u32::MAX.into()) as u32,
                charge: Charge::Write,
            }
        }
        io::FLUSH => Job {
            kind: Kind::Io(IoOp::Flush),
            offset: 0,
            len: 0,
            from_host: 0,
            charge: Charge::Flush,
        },
        io::WRITE_ZEROES => {
            let (offset, len) = range(sqe, namespace)?;
            let deallocate = sqe.cdw12.get() & DEAC != 0;
            Job {
                kind: Kind::Io(IoOp::WriteZeroes { deallocate, fua }),
                offset,
                len,
                from_host: 0,
                charge: Charge::Discard,
            }
        }
        io::DATASET_MANAGEMENT => {
            let count = (sqe.cdw10.get() & 0xff) as u16 + 1;
            let bytes = u32::from(count) * DSM_RANGE as u32;
            check_sgl(sqe, bytes.into(), in_capsule)?;
            Job {
                kind: Kind::Ranges { count, next: 0 },
                offset: 0,
                len: 0,
                from_host: bytes,
                charge: Charge::Discard,
            }
        }
        _ => return dnr(Status::INVALID_OPCODE),
    };
    let changes = matches!(job.charge, Charge::Write | Charge::Discard);
    if changes && namespace.read_only {
        return dnr(WRITE_PROTECTED);
    }
    let moves = matches!(job.kind, Kind::Io(IoOp::Read | IoOp::Write { .. }));
    if moves && job.len > MAX_TRANSFER.into() {
        return dnr(Status::INVALID_FIELD);
    }
    Ok(job)
}

impl Engine {
    /// Serve a command.
    #[inline]
    pub fn command(
        &mut self,
        conn: &mut Connection,
        sqe: &Sqe,
        data: CapsuleData<'_>,
    ) -> Result<Step, End> {
        let Some(association) = &conn.association else {
            return self.admin_command(conn, sqe, data);
        };
        if conn.request_count >= association.entries {
            return Err(Fault::Sequence("more commands than the queue has entries").into());
        }
        let entries = association.entries;
        let admin = association.qid == 0 || sqe.opcode == fabrics::OPCODE;
        let before = conn.sq_head;
        let head = u32::from(before) + 1;
        conn.sq_head = if head == entries { 0 } else { head as u16 };
        let step = if admin {
            self.admin_command(conn, sqe, data)?
        } else {
            self.io_command(conn, sqe, data)
        };
        if step == Step::Starved {
            conn.sq_head = before;
        }
        Ok(step)
    }

    /// A slot is needed and there is none. Who has no data under way waits;
    /// others must not, since their data stands behind this command: the host
    /// tries again.
    pub fn no_slot(&mut self, conn: &Connection, cid: u16) -> Step {
        if conn.asked == 0 {
            return Step::Starved;
        }
        self.refuse(conn, cid, INTERRUPTED);
        Step::Taken
    }

    #[inline]
    fn io_command(&mut self, conn: &mut Connection, sqe: &Sqe, data: CapsuleData<'_>) -> Step {
        let cid = sqe.cid.get();
        let Some(association) = &conn.association else {
            return Step::Taken;
        };
        let data = match data {
            Ok(data) => data,
            Err(status) => {
                self.complain(conn, &"a data digest was wrong");
                self.refuse(conn, cid, status);
                return Step::Taken;
            }
        };
        let Some(namespace) = association.namespaces.get(sqe.nsid.get()) else {
            self.refuse(conn, cid, Status::INVALID_NAMESPACE.with_do_not_retry());
            return Step::Taken;
        };
        let job = match check(sqe, namespace, data.len()) {
            Ok(job) => job,
            Err(status) => {
                self.refuse(conn, cid, status);
                return Step::Taken;
            }
        };
        if self.slots.left() == 0 {
            return self.no_slot(conn, cid);
        }
        let device = namespace.volume.device();
        let tenant = association.tenant.0;
        let admitted = self
            .gate
            .admit(device, tenant, job.charge, job.len, self.now);
        if admitted && self.fast(conn, sqe, &job, data) {
            return Step::Taken;
        }
        let Some(slot) = self.take_slot(conn) else {
            return self.no_slot(conn, cid);
        };
        if let Some(request) = self.slots.get_mut(slot) {
            request.sqe = *sqe;
            request.kind = job.kind;
            request.offset = job.offset;
            request.len = if job.from_host > 0 {
                job.from_host
            } else {
                job.len.min(u32::MAX.into()) as u32
            };
            request.device = device;
            request.tenant = tenant;
        }
        if !data.is_empty() {
            self.keep_data(conn, slot, data);
        }
        if admitted {
            self.start(conn, slot);
        } else {
            if let Some(request) = self.slots.get_mut(slot) {
                request.state = State::Tokens;
            }
            self.gate.enqueue(device, tenant, job.charge, job.len, slot);
        }
        Step::Taken
    }

    /// Answer at once, if the data is in memory.
    #[inline]
    fn fast(&mut self, conn: &Connection, sqe: &Sqe, job: &Job, data: &[u8]) -> bool {
        let Some(association) = &conn.association else {
            return false;
        };
        let Some(namespace) = association.namespaces.get(sqe.nsid.get()) else {
            return false;
        };
        let volume = &namespace.volume;
        let cid = sqe.cid.get();
        let Kind::Io(op) = job.kind else {
            return false;
        };
        if !volume.immediate() {
            return false;
        }
        if op == IoOp::Read {
            // With a digest the data must not change between digest and send.
            if conn.link.data_digest {
                return false;
            }
            let len = job.len as u32;
            let Some(ptr) = Backends::read_in_place(volume, job.offset, len) else {
                return false;
            };
            // SAFETY: in the volume's memory, which the connection's namespace
            // table holds.
            unsafe { self.respond_data(conn, cid, ptr, len, 0) };
            self.batch.reads += 1;
            self.batch.read_bytes += job.len;
            self.batch.device = volume.device();
            return true;
        }
        if job.from_host > 0 && data.is_empty() {
            return false;
        }
        let io = Io {
            ticket: Ticket(u32::MAX),
            op,
            offset: job.offset,
            len: job.len,
            buffer: Buffer {
                ptr: NonNull::from(data).cast(),
                len: data.len() as u32,
            },
        };
        // SAFETY: the data stays in the receive buffer during the call, and a
        // volume that is immediate keeps no pointer.
        let Submit::Done(status) = (unsafe { self.backends.submit(self.now, volume, io) }) else {
            return false;
        };
        self.batch.device = volume.device();
        if !status.is_success() {
            self.batch.errors += 1;
        } else if job.from_host > 0 {
            self.batch.writes += 1;
            self.batch.write_bytes += job.len;
        } else {
            self.batch.others += 1;
        }
        self.respond(conn, cid, status);
        true
    }
}
