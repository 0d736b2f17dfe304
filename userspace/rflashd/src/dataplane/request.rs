// SPDX-License-Identifier: GPL-2.0-only
//! Commands that can't be answered at once, in slots of the core.
//!
//! A slot's number is its scheduler handle, its ticket at the backend and its
//! transfer tag in R2T. A slot is free again only when nobody can name it any
//! more: a request whose connection died while the backend had its buffer is an
//! orphan until its ticket comes back.

use nvme_wire::command::Sqe;
use nvme_wire::status::Status;

use crate::backend::{Buffer, IoOp, Nanos};

/// No slot.
pub const NONE: u32 = u32::MAX;
/// Most slots of a core: a transfer tag has 16 bits.
pub const MOST: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// Its tenant has no tokens.
    Tokens,
    /// There is no buffer.
    Buffer,
    /// An R2T is to be sent.
    Asking,
    /// The host is sending data.
    Data,
    /// The backend has no room.
    Queued,
    /// The backend works on it and owns the buffer.
    Backend,
    /// A reply is to be sent.
    Done,
    /// The reply is in the outbox or the backlog.
    Sending,
    /// An Asynchronous Event Request.
    Held,
}

/// What is to happen with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An I/O on the namespace.
    Io(IoOp),
    /// Dataset Management: its ranges are the data, `next` is the first that
    /// was not discarded yet.
    Ranges { count: u16, next: u16 },
    /// An admin or fabrics command.
    Admin,
}

pub struct Request {
    pub state: State,
    pub kind: Kind,
    /// Its connection died.
    pub orphan: bool,
    pub connection: u32,
    /// Neighbours among the connection's requests.
    pub previous: u32,
    pub next: u32,
    /// Next among those of the connection that have something to send.
    pub next_out: u32,
    pub sqe: Sqe,
    /// Bytes from the start of the namespace.
    pub offset: u64,
    /// Bytes that are moved.
    pub len: u32,
    /// Bytes the host has sent.
    pub received: u32,
    pub buffer: Option<Buffer>,
    /// Data of an admin reply, and in-capsule data there was no buffer for.
    pub own: Vec<u8>,
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// Device and tenant at arrival.
    pub device: u16,
    pub tenant: u32,
    pub arrived: Nanos,
    pub granted: Nanos,
    pub done: Nanos,
}

impl Request {
    fn new() -> Request {
        Request {
            state: State::Free,
            kind: Kind::Admin,
            orphan: false,
            connection: NONE,
            previous: NONE,
            next: NONE,
            next_out: NONE,
            sqe: Sqe::default(),
            offset: 0,
            len: 0,
            received: 0,
            buffer: None,
            own: Vec::new(),
            status: Status::SUCCESS,
            result: 0,
            device: 0,
            tenant: 0,
            arrived: 0,
            granted: 0,
            done: 0,
        }
    }
}

/// The slots of a core. They grow by doubling, up to [`MOST`]: a server that
/// has once been loaded allocates no more.
pub struct Slots {
    slots: Vec<Request>,
    free: Vec<u32>,
    most: usize,
}

impl Slots {
    /// `first` slots now, `most` at last.
    pub fn new(first: usize, most: usize) -> Slots {
        let mut slots = Slots {
            slots: Vec::new(),
            free: Vec::new(),
            most: most.clamp(1, MOST),
        };
        slots.grow(first);
        slots
    }

    fn grow(&mut self, by: usize) {
        let old = self.slots.len();
        let new = (old + by.max(1)).min(self.most);
        self.slots.resize_with(new, Request::new);
        self.free.reserve(new);
        self.free.extend((old as u32..new as u32).rev());
    }

    /// A free slot with its fields as new; `None`: all are in use.
    pub fn take(&mut self) -> Option<(u32, &mut Request)> {
        if self.free.is_empty() {
            self.grow(self.slots.len());
        }
        let slot = self.free.pop()?;
        let request = self.slots.get_mut(slot as usize)?;
        Some((slot, request))
    }

    /// Free a slot; the buffer must have been taken out.
    pub fn give(&mut self, slot: u32) {
        if let Some(request) = self.slots.get_mut(slot as usize) {
            debug_assert!(request.state != State::Free && request.buffer.is_none());
            let own = std::mem::take(&mut request.own);
            *request = Request::new();
            // A small one is kept for the next.
            if own.capacity() <= 8192 {
                request.own = own;
                request.own.clear();
            }
            self.free.push(slot);
        }
    }

    #[inline]
    pub fn get(&self, slot: u32) -> Option<&Request> {
        self.slots.get(slot as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Request> {
        self.slots.get_mut(slot as usize)
    }

    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots that can still be taken.
    pub fn left(&self) -> usize {
        self.most - self.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_grow_to_their_bound_and_come_back() {
        let mut slots = Slots::new(2, 7);
        let taken: Vec<u32> = (0..7)
            .map(|_| {
                let (slot, request) = slots.take().unwrap();
                request.state = State::Done;
                slot
            })
            .collect();
        assert!(slots.take().is_none());
        assert_eq!((slots.used(), slots.left()), (7, 0));
        for slot in taken {
            slots.give(slot);
        }
        assert_eq!((slots.used(), slots.left()), (0, 7));
    }
}
