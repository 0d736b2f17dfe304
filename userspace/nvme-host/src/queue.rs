// SPDX-License-Identifier: GPL-2.0-only
//! A pipelined I/O queue: many commands outstanding, many per send, replies
//! parsed where they were received.
//!
//! Nothing is allocated per command and nothing blocks: [`IoQueue::send`] and
//! [`IoQueue::receive`] do what the socket allows and return. The caller waits
//! on the socket ([`AsFd`]) or asks again.
//!
//! Hazards, each with its guard: a completion for a command that is not
//! outstanding (command ids carry a generation), data outside the command's
//! range or out of order (offset and length are checked against the command),
//! a command that is completed while its data still waits to be sent (its slot
//! stays taken until the data has left).

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use nvme_wire::command::{Cqe, FUA, Sqe, sgl};
use nvme_wire::digest;
use nvme_wire::fabrics::{CATTR_NO_SQ_FLOW, ConnectCmd, ConnectData};
use nvme_wire::pdu::{self, CmdPdu, Data, Frame, Link, Pdu, R2t, Side};
use nvme_wire::status::Status;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::admin::HostIdentity;
use crate::connection::{Connection, Options, Request};
use crate::error::{Deadline, HostError, Stage};

/// Most commands outstanding on one queue: a command id has 12 bits of slot and
/// 4 bits of generation.
pub const DEPTH_MAX: u32 = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;

/// A good size of the memory that [`IoQueue::receive`] receives into: over a
/// hundred replies of 4 KiB.
pub const SCRATCH_LEN: usize = 512 * 1024;
/// More than the head of any PDU.
const STASH: usize = pdu::HEAD_MAX + digest::LEN;
/// R2Ts taken at a time per command.
const MAX_R2T: u64 = 16;
/// Pieces per send: headers and data of 128 writes.
const PIECES: usize = 256;
/// Headers that were sent are dropped from the front once they are so many.
const COMPACT: usize = 64 * 1024;

const STAGE: Stage = Stage::Command("I/O");
const NOT_SENT: HostError = HostError::Protocol("it completed a command nobody sent");
const NO_DATA: HostError = HostError::Protocol("it sent data nobody asked for");
const NOT_THERE: HostError = HostError::Protocol("it asked for data there is not");

/// Which queue of which controller, and how large.
#[derive(Clone, Copy, Debug)]
pub struct QueueSetup<'a> {
    pub address: SocketAddr,
    pub options: Options,
    pub host: &'a HostIdentity,
    pub subsys_nqn: &'a str,
    /// The controller, as the Connect of its admin queue returned it.
    pub cntlid: u16,
    /// 1 to what the controller grants.
    pub qid: u16,
    /// Most commands outstanding: 1 to [`DEPTH_MAX`] and CAP.MQES.
    pub depth: u32,
    /// Bytes of the largest read or write.
    pub max_transfer: u32,
    /// Most bytes of a write that go in its capsule; see
    /// [`in_capsule_data`](nvme_wire::identify::Controller::in_capsule_data).
    pub in_capsule: u32,
    /// Each command has a buffer of its own: writes send what the caller puts
    /// there. Else all writes send the same bytes.
    pub own_buffers: bool,
}

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What the caller gave with the command.
    pub user: u64,
    /// Which of the queue's slots the command had: 0 to depth - 1.
    pub slot: u16,
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

/// Who is told of what was received.
pub trait Events {
    /// A piece of a read's data. Pieces come in order and without gaps.
    fn data(&mut self, slot: u16, offset: u32, bytes: &[u8]);
    /// A command ended. Its slot is free when `receive` returns.
    fn done(&mut self, done: Done);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Read,
    Write,
    /// Flush and the like: no data.
    Plain,
    /// Completed, but data of it still waits to be sent.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    user: u64,
    /// Bytes of its data.
    len: u32,
    /// Bytes of it that were received or asked for.
    moved: u32,
    /// Pieces of it that wait to be sent.
    unsent: u16,
    generation: u16,
    state: State,
}

/// What waits to be sent, in order; headers and digests stand in `heads`.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Head {
        len: usize,
    },
    Data {
        slot: u16,
        offset: usize,
        len: usize,
    },
}

/// A C2HData PDU whose data is being received.
#[derive(Clone, Copy, Debug)]
struct Body {
    slot: u16,
    offset: u32,
    left: usize,
    digest: Option<u32>,
    success: bool,
}

/// Data of writes.
enum Payload {
    Shared(Box<[u8]>),
    /// One after the other, `max_transfer` bytes each.
    Own(Box<[u8]>),
}

/// A pipelined I/O queue.
pub struct IoQueue {
    stream: TcpStream,
    link: Link,
    slots: Vec<Slot>,
    free: Vec<u16>,
    heads: Vec<u8>,
    /// First byte of `heads` that was not sent.
    head_at: usize,
    pieces: VecDeque<Piece>,
    payload: Payload,
    max_transfer: u32,
    in_capsule: u32,
    /// The head of a PDU that is not whole: the first `stashed` bytes.
    stash: [u8; STASH],
    stashed: usize,
    body: Option<Body>,
    /// Finished headers of a read, a write with its data and one without.
    read: CmdPdu,
    write_inline: CmdPdu,
    write: CmdPdu,
}

impl IoQueue {
    /// Open a connection, agree on its parameters and connect the queue, with
    /// submission queue flow control off.
    pub fn connect(setup: &QueueSetup<'_>, deadline: &Deadline) -> Result<IoQueue, HostError> {
        let mut connection = Connection::open_for(setup.address, setup.options, MAX_R2T, deadline)?;
        let depth = setup.depth.clamp(1, DEPTH_MAX);
        let sqe = ConnectCmd::new(setup.qid, depth + 1, 0, CATTR_NO_SQ_FLOW).sqe();
        let data = ConnectData::new(
            setup.host.id,
            setup.cntlid,
            setup.subsys_nqn,
            &setup.host.nqn,
        )?;
        let request = Request::in_capsule("Connect", sqe, data.as_bytes());
        connection.run(request, deadline)?;
        let (stream, link) = connection.into_parts();
        stream
            .set_nonblocking(true)
            .map_err(|e| HostError::io(Stage::Open, e, deadline))?;
        Ok(IoQueue::over(stream, link, setup, depth))
    }

    fn over(stream: TcpStream, link: Link, setup: &QueueSetup<'_>, depth: u32) -> IoQueue {
        let slot = Slot {
            user: 0,
            len: 0,
            moved: 0,
            unsent: 0,
            generation: 0,
            state: State::Free,
        };
        let buffer_len = setup.max_transfer as usize;
        let payload = match setup.own_buffers {
            true => Payload::Own(vec![0; buffer_len * depth as usize].into()),
            false => Payload::Shared(noise(buffer_len)),
        };
        let write = Sqe::write(0, 0, 1, 0);
        IoQueue {
            stream,
            link,
            slots: vec![slot; depth as usize],
            free: (0..depth as u16).rev().collect(),
            heads: Vec::with_capacity(COMPACT * 2),
            head_at: 0,
            pieces: VecDeque::with_capacity(PIECES),
            payload,
            max_transfer: setup.max_transfer,
            in_capsule: setup.in_capsule,
            stash: [0; STASH],
            stashed: 0,
            body: None,
            read: pdu::cmd_pdu(&Sqe::read(0, 0, 1, 0), 0, &link),
            write_inline: pdu::cmd_pdu(&write.in_capsule(), 1, &link),
            write: pdu::cmd_pdu(&write, 0, &link),
        }
    }

    /// Commands that can be submitted now.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Commands outstanding.
    pub fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Something waits to be sent.
    pub fn wants_send(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The slot the next command will have, if there is room.
    pub fn next_slot(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// The buffer of a slot; empty unless there are own buffers.
    pub fn buffer_mut(&mut self, slot: u16) -> &mut [u8] {
        let each = self.max_transfer as usize;
        match &mut self.payload {
            Payload::Own(all) => all
                .get_mut(each * usize::from(slot)..)
                .and_then(|rest| rest.get_mut(..each))
                .unwrap_or_default(),
            Payload::Shared(_) => &mut [],
        }
    }

    /// Queue a read of `blocks` blocks, `len` bytes in all. `false`: no room,
    /// or `len` is 0 or more than the largest transfer.
    #[inline]
    pub fn read(&mut self, user: u64, nsid: u32, lba: u64, blocks: u32, len: u32) -> bool {
        if len == 0 || len > self.max_transfer {
            return false;
        }
        let Some((_, cid)) = self.take(State::Read, user, len) else {
            return false;
        };
        let mut head = self.read;
        fill(&mut head.sqe, cid, nsid, lba, blocks, len);
        self.push_head(&head);
        true
    }

    /// Queue a write of `blocks` blocks, `len` bytes in all, of the buffer of
    /// [`next_slot`](IoQueue::next_slot) or of the bytes all writes share.
    /// `false` as for [`read`](IoQueue::read).
    #[inline]
    pub fn write(
        &mut self,
        user: u64,
        nsid: u32,
        lba: u64,
        blocks: u32,
        len: u32,
        fua: bool,
    ) -> bool {
        if len == 0 || len > self.max_transfer {
            return false;
        }
        let Some((slot, cid)) = self.take(State::Write, user, len) else {
            return false;
        };
        let inline = len <= self.in_capsule;
        let mut head = if inline {
            self.write_inline
        } else {
            self.write
        };
        fill(&mut head.sqe, cid, nsid, lba, blocks, len);
        if fua {
            head.sqe.cdw12 = U32::new(head.sqe.cdw12.get() | FUA);
        }
        if inline {
            debug_assert_eq!(head.sqe.sgl.kind, sgl::IN_CAPSULE);
            // The template was made for one byte of data.
            head.header.plen = U32::new(head.header.plen.get() + len - 1);
        }
        self.push_head(&head);
        if inline {
            if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
                slot.moved = len;
            }
            self.push_data(slot, 0, len as usize);
        }
        true
    }

    /// Queue a command without data.
    pub fn plain(&mut self, user: u64, mut sqe: Sqe) -> bool {
        let Some((_, cid)) = self.take(State::Plain, user, 0) else {
            return false;
        };
        sqe.cid = U16::new(cid);
        self.push_head(&pdu::cmd_pdu(&sqe, 0, &self.link));
        true
    }

    fn take(&mut self, state: State, user: u64, len: u32) -> Option<(u16, u16)> {
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(usize::from(index))?;
        let generation = slot.generation.wrapping_add(1) & 0xf;
        *slot = Slot {
            user,
            len,
            moved: 0,
            unsent: 0,
            generation,
            state,
        };
        Some((index, index | (generation << SLOT_BITS)))
    }

    #[inline]
    fn push_head(&mut self, head: &CmdPdu) {
        let before = self.heads.len();
        if self.link.hdr_digest || head.header.pdo as usize > size_of::<CmdPdu>() {
            pdu::head_bytes(head, &self.link, &mut self.heads);
        } else {
            self.heads.extend_from_slice(head.as_bytes());
        }
        self.grown(self.heads.len() - before);
    }

    /// `len` bytes were added to the headers.
    fn grown(&mut self, more: usize) {
        match self.pieces.back_mut() {
            Some(Piece::Head { len }) => *len += more,
            _ => self.pieces.push_back(Piece::Head { len: more }),
        }
    }

    /// Queue data of a write and its digest.
    fn push_data(&mut self, slot: u16, offset: usize, len: usize) {
        self.pieces.push_back(Piece::Data { slot, offset, len });
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.unsent = slot.unsent.saturating_add(1);
        }
        if self.link.data_digest {
            let digest = digest::of(self.payload.bytes(slot, self.max_transfer, offset, len));
            self.heads.extend_from_slice(&digest::to_wire(digest));
            self.grown(digest::LEN);
        }
    }

    /// Send what the socket takes. `Ok(true)`: nothing is left.
    pub fn send(&mut self) -> Result<bool, HostError> {
        loop {
            let sent = match (self.pieces.front(), self.pieces.len()) {
                (None, _) => {
                    self.heads.clear();
                    self.head_at = 0;
                    return Ok(true);
                }
                (Some(&Piece::Head { len }), 1) => {
                    let bytes = self.heads.get(self.head_at..self.head_at + len);
                    self.stream.write(bytes.unwrap_or_default())
                }
                _ => self.send_pieces(),
            };
            match sent {
                Ok(0) => return Err(HostError::Closed { stage: STAGE }),
                Ok(n) => self.sent(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        if self.head_at > COMPACT {
            self.heads.drain(..self.head_at);
            self.head_at = 0;
        }
        Ok(false)
    }

    fn send_pieces(&mut self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut at = self.head_at;
        let mut used = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let bytes = match *piece {
                Piece::Head { len } => {
                    let bytes = self.heads.get(at..at + len).unwrap_or_default();
                    at += len;
                    bytes
                }
                Piece::Data { slot, offset, len } => {
                    self.payload.bytes(slot, self.max_transfer, offset, len)
                }
            };
            *slice = IoSlice::new(bytes);
            used += 1;
        }
        self.stream
            .write_vectored(slices.get(..used).unwrap_or_default())
    }

    /// `n` bytes have left.
    fn sent(&mut self, mut n: usize) {
        while n > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                return;
            };
            let (len, slot) = match piece {
                Piece::Head { len } => {
                    self.head_at += n.min(*len);
                    (len, None)
                }
                Piece::Data { slot, offset, len } => {
                    *offset += n.min(*len);
                    (len, Some(*slot))
                }
            };
            if n < *len {
                *len -= n;
                return;
            }
            n -= *len;
            self.pieces.pop_front();
            if let Some(slot) = slot {
                self.data_left(slot);
            }
        }
    }

    /// A piece of a slot's data has left; a slot that only waited for that is
    /// free.
    fn data_left(&mut self, index: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.unsent = slot.unsent.saturating_sub(1);
            if slot.state == State::Leaving && slot.unsent == 0 {
                slot.state = State::Free;
                self.free.push(index);
            }
        }
    }

    /// Receive once and tell what came. `Ok(0)`: there was nothing; else the
    /// bytes received. `scratch` is where to, [`SCRATCH_LEN`] or so; it is of no
    /// use afterwards and serves all queues of a thread, so that it stays in the
    /// cache.
    pub fn receive<E: Events>(
        &mut self,
        scratch: &mut [u8],
        events: &mut E,
    ) -> Result<usize, HostError> {
        let Some((front, room)) = scratch.split_at_mut_checked(self.stashed) else {
            return Err(HostError::Protocol("there is no memory to receive into"));
        };
        let got = match self.stream.read(room) {
            Ok(0) => return Err(HostError::Closed { stage: STAGE }),
            Ok(n) => n,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(0);
            }
            Err(e) => return Err(failed(e)),
        };
        for (to, from) in front.iter_mut().zip(&self.stash) {
            *to = *from;
        }
        let all = scratch.get(..self.stashed + got).unwrap_or_default();
        let used = self.parse(all, events)?;
        let rest = all.get(used..).unwrap_or_default();
        for (to, from) in self.stash.iter_mut().zip(rest) {
            *to = *from;
        }
        // The head of one PDU at most, which fits.
        self.stashed = rest.len();
        Ok(got)
    }

    /// Parse as many bytes as make whole parts; their number.
    fn parse<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> Result<usize, HostError> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let used = match self.body {
                Some(body) => self.parse_body(body, rest, events)?,
                None => self.parse_head(rest, events)?,
            };
            let Some(used) = used else {
                return Ok(at);
            };
            at += used;
        }
    }

    /// Data of a C2HData PDU and its digest.
    fn parse_body<E: Events>(
        &mut self,
        mut body: Body,
        bytes: &[u8],
        events: &mut E,
    ) -> Result<Option<usize>, HostError> {
        if body.left > 0 {
            let len = body.left.min(bytes.len());
            if len == 0 {
                return Ok(None);
            }
            let part = bytes.get(..len).unwrap_or_default();
            if let Some(sum) = &mut body.digest {
                *sum = digest::append(*sum, part);
            }
            events.data(body.slot, body.offset, part);
            body.left -= len;
            body.offset = body.offset.wrapping_add(len as u32);
            self.body = Some(body);
            if body.left == 0 && body.digest.is_none() {
                self.body_ends(body, events)?;
            }
            return Ok(Some(len));
        }
        let Some(wire) = bytes.get(..digest::LEN) else {
            return Ok(None);
        };
        digest::compare("data", body.digest.unwrap_or_default(), wire)?;
        self.body_ends(body, events)?;
        Ok(Some(digest::LEN))
    }

    fn body_ends<E: Events>(&mut self, body: Body, events: &mut E) -> Result<(), HostError> {
        self.body = None;
        if body.success {
            self.complete(body.slot, Status::SUCCESS, 0, events)?;
        }
        Ok(())
    }

    fn parse_head<E: Events>(
        &mut self,
        bytes: &[u8],
        events: &mut E,
    ) -> Result<Option<usize>, HostError> {
        if bytes.len() < size_of::<pdu::CommonHeader>() {
            return Ok(None);
        }
        let frame = pdu::frame(pdu::common_header(bytes)?, Side::Host, &self.link)?;
        let head = match frame.kind {
            pdu::PduType::C2hData => frame.data_offset,
            _ => frame.head_len,
        };
        if bytes.len() < head {
            return Ok(None);
        }
        match pdu::decode(&frame, bytes)? {
            Pdu::C2hData(data) => self.data_begins(&frame, &data)?,
            Pdu::CapsuleResp(cqe) => self.response(cqe, events)?,
            Pdu::R2t(r2t) => self.answer(&r2t)?,
            Pdu::Term(term) => return Err(HostError::Terminated(term)),
            _ => {
                return Err(HostError::Protocol("it sent a PDU that has no place here"));
            }
        }
        Ok(Some(head))
    }

    /// The slot of a command that is outstanding.
    #[inline]
    fn slot_of(&mut self, cid: u16, none: HostError) -> Result<(u16, &mut Slot), HostError> {
        let index = cid & ((1 << SLOT_BITS) - 1);
        match self.slots.get_mut(usize::from(index)) {
            Some(slot)
                if slot.generation == cid >> SLOT_BITS
                    && !matches!(slot.state, State::Free | State::Leaving) =>
            {
                Ok((index, slot))
            }
            _ => Err(none),
        }
    }

    fn data_begins(&mut self, frame: &Frame, data: &Data) -> Result<(), HostError> {
        let (index, slot) = self.slot_of(data.cid, NO_DATA)?;
        if slot.state != State::Read {
            return Err(NO_DATA);
        }
        if data.offset != slot.moved {
            return Err(HostError::Protocol("it sent data out of order"));
        }
        if data.length > slot.len - slot.moved {
            return Err(HostError::Protocol("it sent more data than was asked for"));
        }
        slot.moved += data.length;
        self.body = Some(Body {
            slot: index,
            offset: data.offset,
            left: data.length as usize,
            digest: frame.data_digest.then_some(0),
            success: data.success,
        });
        Ok(())
    }

    fn response<E: Events>(&mut self, cqe: &Cqe, events: &mut E) -> Result<(), HostError> {
        let (index, _) = self.slot_of(cqe.cid.get(), NOT_SENT)?;
        self.complete(index, cqe.status(), cqe.result.get(), events)
    }

    fn complete<E: Events>(
        &mut self,
        index: u16,
        status: Status,
        result: u64,
        events: &mut E,
    ) -> Result<(), HostError> {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return Err(NOT_SENT);
        };
        if status.is_success() && slot.moved != slot.len {
            return Err(HostError::Protocol(match slot.state {
                State::Read => "it sent less data than was asked for",
                _ => "it completed a write whose data it did not ask for",
            }));
        }
        events.done(Done {
            user: slot.user,
            slot: index,
            status,
            result,
        });
        if slot.unsent == 0 {
            slot.state = State::Free;
            self.free.push(index);
        } else {
            slot.state = State::Leaving;
        }
        Ok(())
    }

    /// Queue the data an R2T asks for.
    fn answer(&mut self, r2t: &R2t) -> Result<(), HostError> {
        let (index, slot) = self.slot_of(r2t.cid, NOT_THERE)?;
        let end = r2t.offset.checked_add(r2t.length);
        if slot.state != State::Write || end.is_none_or(|end| end > slot.len) {
            return Err(NOT_THERE);
        }
        // What is asked for twice would be queued without end.
        if r2t.length > slot.len - slot.moved {
            return Err(HostError::Protocol("it asked for the same data twice"));
        }
        slot.moved += r2t.length;
        let most = self.link.max_h2c_data.max(4);
        let mut offset = r2t.offset;
        let mut left = r2t.length;
        while left > 0 {
            let length = left.min(most);
            let data = Data {
                cid: r2t.cid,
                ttag: r2t.ttag,
                offset,
                length,
                last: length == left,
                success: false,
            };
            let before = self.heads.len();
            let header = pdu::data_pdu(&data, Side::Controller, &self.link);
            pdu::head_bytes(&header, &self.link, &mut self.heads);
            self.grown(self.heads.len() - before);
            self.push_data(index, offset as usize, length as usize);
            offset += length;
            left -= length;
        }
        Ok(())
    }
}

impl AsFd for IoQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Payload {
    fn bytes(&self, slot: u16, each: u32, offset: usize, len: usize) -> &[u8] {
        let (all, base) = match self {
            Payload::Shared(all) => (all, 0),
            Payload::Own(all) => (all, each as usize * usize::from(slot)),
        };
        all.get(base + offset..)
            .and_then(|rest| rest.get(..len))
            .unwrap_or_default()
    }
}

#[inline]
fn fill(sqe: &mut Sqe, cid: u16, nsid: u32, lba: u64, blocks: u32, len: u32) {
    sqe.cid = U16::new(cid);
    sqe.nsid = U32::new(nsid);
    sqe.sgl.address = U64::ZERO;
    sqe.sgl.length = U32::new(len);
    sqe.cdw10 = U32::new(lba as u32);
    sqe.cdw11 = U32::new((lba >> 32) as u32);
    sqe.cdw12 = U32::new(blocks.saturating_sub(1) & 0xffff);
}

/// Bytes that do not compress.
fn noise(len: usize) -> Box<[u8]> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = vec![0; len];
    for chunk in out.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (to, from) in chunk.iter_mut().zip(state.to_le_bytes()) {
            *to = from;
        }
    }
    out.into()
}

fn failed(error: io::Error) -> HostError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            HostError::Closed { stage: STAGE }
        }
        _ => HostError::Io {
            stage: STAGE,
            error,
            waited: std::time::Duration::ZERO,
        },
    }
}
