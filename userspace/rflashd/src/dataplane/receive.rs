// SPDX-License-Identifier: GPL-2.0-only
//! From the socket to commands.
//!
//! Bytes are received into the core's one large buffer and parsed there. What
//! remains of a PDU that is not complete is stashed in the connection and put
//! in front of what comes next. Data of H2CData goes straight into its
//! request's buffer once its header has been seen.
#![allow(unsafe_code)]

use nvme_wire::WireError;
use nvme_wire::command::Sqe;
use nvme_wire::digest;
use nvme_wire::error::Want;
use nvme_wire::pdu::{self, CmdPdu, Data, Frame, IcReq, IcResp, Pdu, PduType, Side};
use nvme_wire::status::Status;
use zerocopy::FromBytes;

use super::buffer;
use super::clock;
use super::connection::{Connection, Payload, Phase};
use super::engine::{Engine, RECEIVE};
use super::fault::{End, Fault};
use super::request::State;
use super::socket::{self, Moved};
use crate::subsystem::Standing;

/// Status of a command whose data digest was wrong: Transient Transport Error.
const TRANSPORT_ERROR: Status = Status(0x022);
/// Bytes to receive at once while H2CData is expected, so that little of its
/// data takes the way through the core's buffer.
const RECEIVE_ASKED: usize = 16 << 10;
/// The common header of a command without data in its capsule, on a connection
/// without header digest: nothing is left to be checked about it.
const BARE_COMMAND: [u8; 8] = [
    PduType::CapsuleCmd as u8,
    0,
    BARE as u8,
    0,
    BARE as u8,
    0,
    0,
    0,
];
const BARE: usize = size_of::<CmdPdu>();
/// Greatest stash that is kept for another connection.
const STASH_KEPT: usize = 16 << 10;

/// What a look at a socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Nothing,
    Something,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Taken,
    /// There is no slot: leave it where it is.
    Starved,
}

fn bad(what: &'static str, field: &'static str, value: u64, want: Want) -> WireError {
    WireError::Field {
        what,
        field,
        value,
        want,
    }
}

impl Engine {
    /// Receive once and serve what came.
    pub fn receive(&mut self, conn: &mut Connection) -> Result<Received, End> {
        if conn.backlog.is_some() || conn.starved {
            return Ok(Received::Nothing);
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        let result = self.receive_into(conn, &mut bytes);
        self.buffer = bytes;
        result
    }

    fn receive_into(&mut self, conn: &mut Connection, bytes: &mut [u8]) -> Result<Received, End> {
        let kept = conn.stash.len();
        if let Some(front) = bytes.get_mut(..kept) {
            front.copy_from_slice(&conn.stash);
        }
        let most = if conn.asked > 0 {
            RECEIVE_ASKED
        } else {
            RECEIVE
        };
        let room = bytes
            .get_mut(kept..(kept + most).min(RECEIVE))
            .unwrap_or_default();
        let (moved, direct) = self.fetch(conn, room)?;
        let n = match moved {
            Moved::Later => return Ok(Received::Nothing),
            Moved::End => return Err(End::Closed),
            Moved::Bytes(n) => n,
        };
        self.metrics.core.receives.add(1);
        self.metrics.core.received_bytes.add(n as u64);
        conn.since = self.now;
        conn.traffic = true;
        conn.stash.clear();
        self.refresh(conn)?;
        let got = bytes.get(..kept + n - direct).unwrap_or_default();
        self.serve(conn, got)?;
        Ok(Received::Something)
    }

    /// Catch up with the controller; not while replies point into what may be
    /// exchanged.
    pub fn refresh(&mut self, conn: &mut Connection) -> Result<(), End> {
        let Some(association) = &mut conn.association else {
            return Ok(());
        };
        match association.refresh() {
            Standing::Same => Ok(()),
            Standing::Changed => {
                self.moves.push(conn.index);
                Ok(())
            }
            Standing::Closed => Err(End::Ours("its controller is gone")),
        }
    }

    /// Receive: how many bytes, and how many of them went to a request's buffer.
    fn fetch(&mut self, conn: &mut Connection, room: &mut [u8]) -> Result<(Moved, usize), End> {
        let fd = conn.fd();
        let Some(payload) = conn.payload.as_mut().filter(|p| p.left > 0) else {
            return Ok((socket::receive(fd, room)?, 0));
        };
        let buffer = self.slots.get(payload.slot).and_then(|r| r.buffer);
        let Some(buffer) = buffer else {
            return Err(End::Ours("a request without buffer"));
        };
        // SAFETY: the slot is in State::Data, so the buffer is ours; the range
        // was checked against the request, which fits its buffer.
        let moved = unsafe { socket::receive_two(fd, buffer, payload.at, payload.left, room) }?;
        let Moved::Bytes(n) = moved else {
            return Ok((moved, 0));
        };
        let direct = n.min(payload.left);
        if payload.digest {
            // SAFETY: as above; received just now.
            let all = unsafe { buffer::bytes_mut(buffer, payload.at + direct) };
            payload.crc = digest::append(payload.crc, all.get(payload.at..).unwrap_or_default());
        }
        payload.at += direct;
        payload.left -= direct;
        Ok((moved, direct))
    }

    /// Serve complete PDUs, stash the rest, send the replies.
    fn serve(&mut self, conn: &mut Connection, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        let result = self.parse(conn, &mut rest);
        match result {
            Ok(()) => {
                if !rest.is_empty() {
                    if conn.stash.capacity() == 0 {
                        conn.stash = self.stashes.pop().unwrap_or_default();
                    }
                    conn.stash.extend_from_slice(rest);
                }
                self.flush(conn)?;
                // What stopped the parser may be over already.
                if conn.starved && conn.backlog.is_none() {
                    self.touch(conn);
                }
                Ok(())
            }
            Err(End::Fault(fault)) => {
                self.flush(conn)?;
                if conn.backlog.is_none() {
                    let head = rest.get(..rest.len().min(24)).unwrap_or_default();
                    let term = fault.term(head.first().copied().unwrap_or(0xff));
                    self.terminate(conn, &term, head);
                    self.flush(conn)?;
                }
                Err(End::Fault(fault))
            }
            Err(end) => Err(end),
        }
    }

    /// Serve the commands that a connection had to leave lying.
    pub fn resume(&mut self, conn: &mut Connection) -> Result<(), End> {
        conn.starved = false;
        let stash = std::mem::take(&mut conn.stash);
        self.serve(conn, &stash)?;
        self.keep_stash(stash);
        Ok(())
    }

    /// A connection goes quiet: it keeps no memory.
    pub fn rest(&mut self, conn: &mut Connection) {
        if conn.stash.is_empty() && conn.stash.capacity() > 0 {
            let stash = std::mem::take(&mut conn.stash);
            self.keep_stash(stash);
        }
    }

    pub fn keep_stash(&mut self, mut stash: Vec<u8>) {
        if self.stashes.len() < self.stashes.capacity()
            && (1..=STASH_KEPT).contains(&stash.capacity())
        {
            stash.clear();
            self.stashes.push(stash);
        }
    }

    /// Serve PDUs from the front of `rest` until one is not complete, or the
    /// connection has to wait.
    fn parse(&mut self, conn: &mut Connection, rest: &mut &[u8]) -> Result<(), End> {
        loop {
            if conn.payload.is_some() && !self.take_payload(conn, rest)? {
                return Ok(());
            }
            if !self.outbox.has_room() {
                self.flush(conn)?;
            }
            if conn.backlog.is_some() {
                // Nothing is served until the replies so far have left; the
                // rest is looked at again then.
                conn.starved = !rest.is_empty();
                return Ok(());
            }
            let bytes = *rest;
            if bytes.len() < size_of::<pdu::CommonHeader>() {
                return Ok(());
            }
            if conn.phase == Phase::Ending {
                *rest = &[];
                return Ok(());
            }
            if let Some(sqe) = bare_command(conn, bytes) {
                if self.command(conn, sqe, Ok(&[]))? == Step::Starved {
                    conn.starved = true;
                    self.starved.push(conn.index);
                    return Ok(());
                }
                *rest = bytes.get(BARE..).unwrap_or_default();
                continue;
            }
            let header = pdu::common_header(bytes).map_err(Fault::from)?;
            let frame = pdu::frame(header, Side::Controller, &conn.link).map_err(Fault::from)?;
            let needed = match frame.kind {
                PduType::H2cData => frame.data_offset,
                _ => frame.pdu_len,
            };
            if bytes.len() < needed {
                return Ok(());
            }
            match pdu::decode(&frame, bytes).map_err(Fault::from)? {
                Pdu::CapsuleCmd(sqe) => {
                    let data = capsule_data(&frame, bytes);
                    if self.command(conn, sqe, data)? == Step::Starved {
                        conn.starved = true;
                        self.starved.push(conn.index);
                        return Ok(());
                    }
                }
                Pdu::H2cData(data) => self.h2c_data(conn, &data, frame.data_digest)?,
                Pdu::IcReq(asked) => self.open(conn, &asked),
                Pdu::Term(term) => return Err(End::Terminated(term)),
                _ => return Err(Fault::Sequence("a PDU that only a controller sends").into()),
            }
            *rest = bytes.get(needed..).unwrap_or_default();
        }
    }

    /// Answer ICReq: both digests are granted when asked for.
    fn open(&mut self, conn: &mut Connection, asked: &IcReq) {
        let granted = IcResp {
            hdr_digest: asked.hdr_digest,
            data_digest: asked.data_digest,
            align: 4,
            max_h2c_data: self.settings.max_h2c_data,
        };
        self.outbox.head(&granted.pdu(), &conn.link);
        conn.link.open = true;
        conn.link.hdr_digest = asked.hdr_digest;
        conn.link.data_digest = asked.data_digest;
        conn.link.send_align = asked.align;
        conn.phase = Phase::Connecting;
        conn.since = self.now;
    }

    /// Check an H2CData header against the R2T it answers.
    fn h2c_data(&mut self, conn: &mut Connection, data: &Data, digest: bool) -> Result<(), Fault> {
        let what = PduType::H2cData.name();
        let slot = u32::from(data.ttag);
        let request = self
            .slots
            .get(slot)
            .filter(|r| r.connection == conn.index && r.state == State::Data && !r.orphan);
        let Some(request) = request else {
            let want = Want::Words("the tag of an R2T whose data is not complete");
            return Err(bad(what, "ttag", data.ttag.into(), want).into());
        };
        let cid = request.sqe.cid.get();
        if data.cid != cid {
            let want = Want::Is(cid.into());
            return Err(bad(what, "cccid", data.cid.into(), want).into());
        }
        if data.offset != request.received {
            let want = Want::Is(request.received.into());
            return Err(Fault::Range(bad(what, "datao", data.offset.into(), want)));
        }
        let left = request.len - request.received;
        if data.length > left {
            let want = Want::AtMost(left.into());
            return Err(Fault::Range(bad(what, "datal", data.length.into(), want)));
        }
        let most = conn.link.max_h2c_data;
        if data.length > most {
            let want = Want::AtMost(most.into());
            return Err(Fault::Limit(bad(what, "datal", data.length.into(), want)));
        }
        if data.last != (data.length == left) {
            let want = Want::Words("LAST with the last of the data, and only there");
            return Err(bad(what, "flags", u64::from(data.last) << 2, want).into());
        }
        conn.payload = Some(Payload {
            slot,
            at: request.received as usize,
            left: data.length as usize,
            digest,
            crc: 0,
        });
        Ok(())
    }

    /// Take payload from the front of `rest`; `true` when it is complete.
    fn take_payload(&mut self, conn: &mut Connection, rest: &mut &[u8]) -> Result<bool, End> {
        let Some(payload) = &mut conn.payload else {
            return Ok(true);
        };
        let n = payload.left.min(rest.len());
        let (now, later) = rest.split_at_checked(n).unwrap_or((&[], rest));
        let Some(request) = self.slots.get_mut(payload.slot) else {
            return Err(End::Ours("a payload without request"));
        };
        if let (Some(buffer), false) = (request.buffer, now.is_empty()) {
            // SAFETY: the slot is in State::Data, so the buffer is ours.
            let all = unsafe { buffer::bytes_mut(buffer, payload.at + n) };
            if let Some(place) = all.get_mut(payload.at..) {
                place.copy_from_slice(now);
            }
            if payload.digest {
                payload.crc = digest::append(payload.crc, now);
            }
        }
        payload.at += n;
        payload.left -= n;
        *rest = later;
        if payload.left > 0 {
            return Ok(false);
        }
        if payload.digest {
            let Some((wire, later)) = rest.split_at_checked(digest::LEN) else {
                return Ok(false);
            };
            if digest::compare("data", payload.crc, wire).is_err() {
                request.status = TRANSPORT_ERROR;
            }
            *rest = later;
        }
        let slot = payload.slot;
        request.received = payload.at as u32;
        conn.payload = None;
        if request.received == request.len {
            conn.asked -= 1;
            self.now = clock::now();
            if request.status.is_success() {
                self.submit(conn, slot);
            } else {
                let status = request.status;
                self.complain(conn, &"a data digest was wrong");
                self.finish(conn, slot, status);
            }
        }
        Ok(true)
    }

    pub fn complain(&mut self, conn: &Connection, what: &dyn std::fmt::Display) {
        self.complaints.say(self.now, &conn.peer, conn.qid(), what);
    }
}

/// The command at the front of `bytes`, if its header is that of most commands.
#[inline]
fn bare_command<'a>(conn: &Connection, bytes: &'a [u8]) -> Option<&'a Sqe> {
    if !conn.link.open || conn.link.hdr_digest || bytes.first_chunk()? != &BARE_COMMAND {
        return None;
    }
    let (pdu, _) = CmdPdu::ref_from_prefix(bytes).ok()?;
    Some(&pdu.sqe)
}

/// Data of a command capsule; `Err`: its digest is wrong.
pub type CapsuleData<'a> = Result<&'a [u8], Status>;

#[inline]
fn capsule_data<'a>(frame: &Frame, bytes: &'a [u8]) -> CapsuleData<'a> {
    if frame.data_len == 0 {
        return Ok(&[]);
    }
    let end = frame.data_offset + frame.data_len;
    let data = bytes.get(frame.data_offset..end).unwrap_or_default();
    if frame.data_digest {
        let wire = bytes.get(end..).unwrap_or_default();
        digest::check("data", data, wire).map_err(|_| TRANSPORT_ERROR)?;
    }
    Ok(data)
}
