// SPDX-License-Identifier: GPL-2.0-only
//! What a core knows of a connection.
//!
//! A connection at rest owns this and its socket, nothing else: no buffer, no
//! request, no stash. [`AT_REST`] bounds it.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nvme_wire::pdu::Link;

use crate::backend::Nanos;
use crate::subsystem::{Association, PeerInfo};

use super::outbox::Backlog;
use super::request::NONE;

/// Most bytes of user memory that a connection without commands owns.
pub const AT_REST: usize = 512;

const _: () = assert!(size_of::<Connection>() <= AT_REST);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// ICReq is expected.
    Opening,
    /// Connect is expected.
    Connecting,
    Live,
    /// A terminate request was sent; what comes is thrown away until the peer
    /// closes.
    Ending,
}

/// Data of an H2CData PDU that is being received.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    pub slot: u32,
    /// Where the next byte goes in the request's buffer.
    pub at: usize,
    /// Bytes that are missing.
    pub left: usize,
    /// A digest follows.
    pub digest: bool,
    /// Digest of this PDU's data so far.
    pub crc: u32,
}

pub struct Connection {
    pub socket: OwnedFd,
    /// Place in the core's table; changes with the core.
    pub index: u32,
    pub generation: u32,
    pub peer: PeerInfo,
    pub link: Link,
    pub phase: Phase,
    pub association: Option<Association>,
    /// Head of the submission queue, if its flow is controlled.
    pub sq_head: u16,
    /// Bytes of a PDU that is not complete.
    pub stash: Vec<u8>,
    pub payload: Option<Payload>,
    pub backlog: Option<Box<Backlog>>,
    /// First of its requests, and how many.
    pub requests: u32,
    pub request_count: u32,
    /// Requests that have something to send, first and last.
    pub out_first: u32,
    pub out_last: u32,
    /// Requests whose data the host is to send.
    pub asked: u32,
    /// Bytes of buffers it holds.
    pub pinned: usize,
    /// Is in the core's list of connections to flush.
    pub touched: bool,
    /// Is polled every round.
    pub hot: bool,
    /// Rounds without anything received.
    pub quiet: u32,
    /// Has commands that wait for a slot of the core.
    pub starved: bool,
    /// Something came since the last look at the keep-alive timer.
    pub traffic: bool,
    /// When the phase began, or something last moved that the peer owes.
    pub since: Nanos,
}

impl Connection {
    pub fn new(socket: OwnedFd, peer: PeerInfo, link: Link, now: Nanos) -> Connection {
        Connection {
            socket,
            index: NONE,
            generation: 0,
            peer,
            link,
            phase: Phase::Opening,
            association: None,
            sq_head: 0,
            stash: Vec::new(),
            payload: None,
            backlog: None,
            requests: NONE,
            request_count: 0,
            out_first: NONE,
            out_last: NONE,
            asked: 0,
            pinned: 0,
            touched: false,
            hot: false,
            quiet: 0,
            starved: false,
            traffic: false,
            since: now,
        }
    }

    #[inline]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub fn qid(&self) -> u16 {
        self.association.as_ref().map_or(0, |a| a.qid)
    }

    /// The peer owes something: rest of a PDU, data, room for replies.
    pub fn peer_owes(&self) -> bool {
        !self.stash.is_empty() && !self.starved
            || self.payload.is_some()
            || self.asked > 0
            || self.backlog.is_some()
    }
}

/// Connections of a core by index; the generation tells a place's tenants apart.
#[derive(Default)]
pub struct Table {
    places: Vec<(u32, Option<Box<Connection>>)>,
    free: Vec<u32>,
    count: usize,
}

impl Table {
    /// Its index and generation are set.
    pub fn insert(&mut self, mut connection: Box<Connection>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        if let Some((generation, place)) = self.places.get_mut(index as usize) {
            *generation = generation.wrapping_add(1);
            connection.index = index;
            connection.generation = *generation;
            *place = Some(connection);
            self.count += 1;
        }
        index
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.places.get_mut(index as usize)?.1.as_deref_mut()
    }

    pub fn remove(&mut self, index: u32) -> Option<Box<Connection>> {
        let connection = self.places.get_mut(index as usize)?.1.take()?;
        self.free.push(index);
        self.count -= 1;
        Some(connection)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Places, taken or not.
    pub fn places(&self) -> u32 {
        self.places.len() as u32
    }
}
