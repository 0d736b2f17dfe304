// SPDX-License-Identifier: GPL-2.0-only
//! What a controller answers to admin and fabrics commands.

use std::mem::offset_of;

use nvme_wire::command::{FLAGS_MASK, FLAGS_SGL, Sqe, admin, sgl};
use nvme_wire::fabrics::{self, PropertyCmd, fctype, property};
use nvme_wire::status::Status;
use nvme_wire::tenant::opcode;

use super::controller::Controller;
use super::model::{Nanos, Outcome};
use super::property::Effect;

pub(super) type Answer = Result<Outcome, Fault>;

/// Why a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    status: Status,
    /// Byte of the command that is to blame.
    location: Option<u16>,
}

impl Fault {
    /// Trying again would not help.
    pub fn of(status: Status) -> Fault {
        Fault {
            status: status.with_do_not_retry(),
            location: None,
        }
    }

    pub fn at(status: Status, location: usize) -> Fault {
        Fault {
            location: Some(location as u16),
            ..Fault::of(status)
        }
    }
}

pub(super) fn reply(result: u64) -> Answer {
    Ok(Outcome::Reply {
        status: Status::SUCCESS,
        result,
        data: Vec::new(),
    })
}

pub(super) fn reply_data(data: Vec<u8>) -> Answer {
    Ok(Outcome::Reply {
        status: Status::SUCCESS,
        result: 0,
        data,
    })
}

/// The SGL must take exactly what there is to send: longer ones would need
/// SGLS bit 17.
pub(super) fn expects_reply(sqe: &Sqe, len: usize) -> Result<(), Fault> {
    if sqe.sgl.kind != sgl::TRANSPORT {
        return Err(Fault::at(Status::SGL_TYPE, offset_of!(Sqe, sgl) + 15));
    }
    expects_length(sqe, len)
}

pub(super) fn expects_nothing(sqe: &Sqe) -> Result<(), Fault> {
    expects_length(sqe, 0)
}

fn expects_length(sqe: &Sqe, len: usize) -> Result<(), Fault> {
    if sqe.sgl.length.get() as usize == len {
        return Ok(());
    }
    Err(Fault::at(Status::SGL_DATA_LENGTH, offset_of!(Sqe, sgl) + 8))
}

impl Controller {
    /// Answer an admin command (`qid` 0) or a fabrics command (any queue).
    /// `data` is what came with it, whole: in the capsule or by R2T, at most
    /// [`super::ADMIN_IN_CAPSULE`] bytes. Never panics and always answers.
    pub fn admin(&self, sqe: &Sqe, data: &[u8], qid: u16, now: Nanos) -> Outcome {
        self.touch(now);
        if self.is_closed() {
            return Outcome::Close;
        }
        self.dispatch(sqe, data, qid, now)
            .unwrap_or_else(|fault| self.fail(sqe, qid, fault))
    }

    /// As the standard wants it: an entry in the error log, and More.
    fn fail(&self, sqe: &Sqe, qid: u16, fault: Fault) -> Outcome {
        let status = fault.status.with_more();
        log::debug!(
            "controller {} of \"{}\": command {:#04x} on queue {qid} fails: {status}",
            self.cntlid(),
            self.subsys_nqn(),
            sqe.opcode
        );
        self.lock().errors.record(qid, sqe, status, fault.location);
        Outcome::Reply {
            status,
            result: 0,
            data: Vec::new(),
        }
    }

    fn dispatch(&self, sqe: &Sqe, data: &[u8], qid: u16, now: Nanos) -> Answer {
        if sqe.flags & FLAGS_MASK != FLAGS_SGL {
            let flags = offset_of!(Sqe, flags);
            return Err(Fault::at(Status::INVALID_FIELD, flags));
        }
        let unknown = Err(Fault::at(Status::INVALID_OPCODE, 0));
        if sqe.opcode == fabrics::OPCODE {
            return self.fabrics(sqe, qid);
        }
        if qid != 0 {
            return unknown;
        }
        if !self.is_ready() {
            return Err(Fault::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        let io = !self.is_discovery();
        match sqe.opcode {
            admin::IDENTIFY => self.identify(sqe),
            admin::GET_LOG_PAGE => self.get_log_page(sqe, now),
            admin::GET_FEATURES => self.get_features(sqe),
            admin::SET_FEATURES => self.set_features(sqe, now),
            admin::KEEP_ALIVE => expects_nothing(sqe).and_then(|()| reply(0)),
            admin::ASYNC_EVENT => self.async_event(sqe),
            admin::ABORT if io => abort(sqe),
            opcode::TENANT_SET if io => self.tenant_set(sqe, data),
            opcode::TENANT_GET if io => self.tenant_get(sqe),
            _ => unknown,
        }
    }

    fn async_event(&self, sqe: &Sqe) -> Answer {
        expects_nothing(sqe)?;
        match self.request_event(sqe.cid.get()) {
            Ok(Some(result)) => reply(result.into()),
            Ok(None) => Ok(Outcome::Hold),
            Err(status) => Err(Fault::of(status)),
        }
    }

    fn fabrics(&self, sqe: &Sqe, qid: u16) -> Answer {
        // The bytes of any command are those of this view.
        let cmd = PropertyCmd::of(sqe).map_err(|_| Fault::of(Status::INTERNAL))?;
        let kind = offset_of!(PropertyCmd, fctype);
        match cmd.fctype {
            // A queue is connected once.
            fctype::CONNECT => Err(Fault::of(Status::COMMAND_SEQUENCE_ERROR)),
            fctype::PROPERTY_GET if qid == 0 => self.property_get(sqe, cmd),
            fctype::PROPERTY_SET if qid == 0 => self.property_set(sqe, cmd),
            // Properties belong to the admin queue.
            fctype::PROPERTY_GET | fctype::PROPERTY_SET => {
                Err(Fault::at(Status::INVALID_FIELD, kind))
            }
            _ => Err(Fault::at(Status::INVALID_OPCODE, kind)),
        }
    }

    fn property_get(&self, sqe: &Sqe, cmd: &PropertyCmd) -> Answer {
        expects_nothing(sqe)?;
        let attrib = offset_of!(PropertyCmd, attrib);
        let wide = match cmd.attrib & 7 {
            0 => false,
            1 => true,
            _ => return Err(Fault::at(Status::INVALID_FIELD, attrib)),
        };
        let offset = offset_of!(PropertyCmd, offset);
        match self.lock().registers.get(cmd.offset.get(), wide) {
            Some(value) => reply(value),
            None => Err(Fault::at(Status::INVALID_FIELD, offset)),
        }
    }

    fn property_set(&self, sqe: &Sqe, cmd: &PropertyCmd) -> Answer {
        expects_nothing(sqe)?;
        if cmd.attrib & 7 != 0 {
            let attrib = offset_of!(PropertyCmd, attrib);
            return Err(Fault::at(Status::INVALID_FIELD, attrib));
        }
        if cmd.offset.get() != property::CC {
            let offset = offset_of!(PropertyCmd, offset);
            return Err(Fault::at(Status::INVALID_FIELD, offset));
        }
        let mut state = self.lock();
        let value = cmd.value.get() as u32;
        let effect = state.registers.set_cc(value, self.is_discovery());
        if effect == Effect::Reset {
            self.reset(&mut state);
        }
        drop(state);
        if effect != Effect::Nothing {
            self.changed();
        }
        reply(0)
    }
}

fn abort(sqe: &Sqe) -> Answer {
    expects_nothing(sqe)?;
    let (sqid, cid) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
    // The only admin commands that wait are event requests, and those wait on.
    if sqid == 0 {
        return reply(1);
    }
    Ok(Outcome::Abort { sqid, cid })
}
