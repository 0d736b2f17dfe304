// SPDX-License-Identifier: GPL-2.0-only
//! Admin and fabrics commands: how they reach the controller and come back.

use std::sync::Arc;

use nvme_wire::command::{Sqe, sgl};
use nvme_wire::fabrics::{self, ConnectCmd, ConnectData, fctype};
use nvme_wire::status::Status;

use crate::subsystem::{ADMIN_IN_CAPSULE, Outcome};

use super::Letter;
use super::buffer;
use super::connection::{Connection, Phase};
use super::engine::{Abort, Engine};
use super::fault::{End, Fault};
use super::receive::{CapsuleData, Step};
use super::request::{Kind, NONE, State};

/// Bytes that the host is to send for a command.
fn from_host(sqe: &Sqe) -> u32 {
    let code = if sqe.opcode == fabrics::OPCODE {
        // FCTYPE is the first byte of what is NSID elsewhere.
        sqe.nsid.get() as u8
    } else {
        sqe.opcode
    };
    // Bits 1:0 are the direction of the data (NVMe base 2.0, figure 88).
    if code & 3 == 1 {
        sqe.sgl.length.get()
    } else {
        0
    }
}

fn is_connect(sqe: &Sqe) -> bool {
    sqe.opcode == fabrics::OPCODE && sqe.nsid.get() as u8 == fctype::CONNECT
}

impl Engine {
    /// Serve a command of the admin queue, or a fabrics command of any.
    pub fn admin_command(
        &mut self,
        conn: &mut Connection,
        sqe: &Sqe,
        data: CapsuleData<'_>,
    ) -> Result<Step, End> {
        if conn.association.is_none() && !is_connect(sqe) {
            return Err(Fault::Sequence("a command before Connect").into());
        }
        // Before Connect there is no queue whose entries bound what a peer may
        // have outstanding.
        if conn.association.is_none() && conn.request_count > 0 {
            return Err(Fault::Sequence("a second Connect before the first was answered").into());
        }
        let cid = sqe.cid.get();
        let Some(slot) = self.take_slot(conn) else {
            return Ok(self.no_slot(conn, cid));
        };
        if let Some(request) = self.slots.get_mut(slot) {
            request.sqe = *sqe;
            request.kind = Kind::Admin;
        }
        let wanted = from_host(sqe);
        let data = match data {
            Ok(data) => data,
            Err(status) => {
                self.finish(conn, slot, status);
                return Ok(Step::Taken);
            }
        };
        let asked = wanted > 0 && sqe.sgl.kind == sgl::TRANSPORT && data.is_empty();
        if asked && wanted > ADMIN_IN_CAPSULE {
            let status = Status::INVALID_FIELD.with_do_not_retry();
            self.finish(conn, slot, status);
        } else if asked {
            if let Some(request) = self.slots.get_mut(slot) {
                request.len = wanted;
            }
            self.start(conn, slot);
        } else {
            self.run_admin(conn, slot, sqe, data);
        }
        Ok(Step::Taken)
    }

    /// An admin command whose data has come by R2T.
    pub fn run_admin_slot(&mut self, conn: &mut Connection, slot: u32) {
        let Some(request) = self.slots.get(slot) else {
            return;
        };
        let (sqe, len) = (request.sqe, request.len as usize);
        let data = request.buffer.map(|buffer| {
            #[allow(unsafe_code)]
            // SAFETY: all data has come; the slot holds the buffer until the
            // reply has been sent.
            unsafe { buffer::bytes_mut(buffer, len) }.to_vec()
        });
        self.run_admin(conn, slot, &sqe, &data.unwrap_or_default());
    }

    fn run_admin(&mut self, conn: &mut Connection, slot: u32, sqe: &Sqe, data: &[u8]) {
        let Some(association) = &conn.association else {
            self.connect(conn, slot, sqe, data);
            return;
        };
        if is_connect(sqe) {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
            self.finish(conn, slot, status);
            return;
        }
        let controller = Arc::clone(&association.controller);
        match controller.admin(sqe, data, association.qid, self.now) {
            Outcome::Reply {
                status,
                result,
                data,
            } => {
                if let Some(request) = self.slots.get_mut(slot) {
                    request.result = result;
                    request.own = data;
                }
                self.finish(conn, slot, status);
            }
            Outcome::Hold => {
                if let Some(request) = self.slots.get_mut(slot) {
                    request.state = State::Held;
                }
                // What happened before the host asked.
                self.events(conn);
            }
            Outcome::Abort { sqid, cid } => self.aborts.push(Abort {
                connection: conn.index,
                slot,
                sqid,
                cid,
            }),
            Outcome::Close => {
                self.finish(conn, slot, Status::INTERNAL);
                conn.phase = Phase::Ending;
            }
        }
    }

    fn connect(&mut self, conn: &mut Connection, slot: u32, sqe: &Sqe, data: &[u8]) {
        let parsed = ConnectCmd::of(sqe).and_then(|cmd| Ok((cmd, ConnectData::of(data)?)));
        let (cmd, data) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => {
                self.complain(conn, &error);
                let status = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
                self.finish(conn, slot, status);
                return;
            }
        };
        let target = Arc::clone(&self.target);
        match target.connect(cmd, data, &conn.peer) {
            Ok(association) => {
                self.set_notify(conn, &association);
                if let Some(request) = self.slots.get_mut(slot) {
                    request.result = association.connect_result().into();
                }
                conn.association = Some(association);
                conn.phase = Phase::Live;
                conn.since = self.now;
                // The command in hand is counted here: `command` saw no queue.
                conn.sq_head = 1;
                self.moves.push(conn.index);
                self.finish(conn, slot, Status::SUCCESS);
            }
            Err(error) => {
                self.complain(conn, &error);
                if let Some(request) = self.slots.get_mut(slot) {
                    request.result = error.result.into();
                }
                self.finish(conn, slot, error.status);
            }
        }
    }

    /// Let the controller wake this core. To be called anew when the
    /// connection has come to another core.
    pub fn set_notify(&self, conn: &Connection, association: &crate::subsystem::Association) {
        let mailbox = Arc::clone(&self.mailbox);
        let (index, generation) = (conn.index, conn.generation);
        association.controller.set_notify(
            association.qid,
            Arc::new(move || mailbox.post(Letter::Notify { index, generation })),
        );
    }

    /// Complete the Asynchronous Event Requests that the controller has events
    /// for.
    pub fn events(&mut self, conn: &mut Connection) {
        let Some(association) = conn.association.as_ref().filter(|a| a.qid == 0) else {
            return;
        };
        for (cid, result) in association.controller.events() {
            if let Some(slot) = self.find(conn, cid, &[State::Held]) {
                if let Some(request) = self.slots.get_mut(slot) {
                    request.result = result;
                }
                self.finish(conn, slot, Status::SUCCESS);
            }
        }
    }

    /// Abort command `cid` if it has not begun; whether that was done.
    pub fn abort(&mut self, conn: &mut Connection, cid: u16) -> bool {
        let waiting = [State::Tokens, State::Buffer, State::Queued];
        let Some(slot) = self.find(conn, cid, &waiting) else {
            return false;
        };
        if let Some(request) = self.slots.get(slot) {
            if request.state == State::Tokens {
                let (device, tenant) = (request.device, request.tenant);
                self.gate.cancel(device, tenant, slot);
            }
        }
        self.finish(conn, slot, Status::ABORT_REQUESTED);
        true
    }

    fn find(&self, conn: &Connection, cid: u16, states: &[State]) -> Option<u32> {
        let mut slot = conn.requests;
        while slot != NONE {
            let request = self.slots.get(slot)?;
            if request.sqe.cid.get() == cid && states.contains(&request.state) {
                return Some(slot);
            }
            slot = request.next;
        }
        None
    }
}
