// SPDX-License-Identifier: GPL-2.0-only
//! Replies of one connection on their way to its socket.
//!
//! A core has one [`Outbox`]. While a connection is served, headers are built
//! in its arena and data is pointed at where it stands, in a RAM disk or in a
//! buffer; one sendmsg carries them all. What the socket does not take becomes
//! the connection's [`Backlog`], and nothing more is received from it until
//! that is gone, which bounds it by the queue's depth.
//!
//! Hazard: pieces are raw pointers. A piece in a buffer is paid back by naming
//! its request slot in [`Outbox::release`]; the slot comes out once the kernel
//! has all its bytes. A piece in a RAM disk lives as long as the namespace
//! table the connection holds, which is not exchanged while there is a backlog.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use nvme_wire::pdu::{self, Link};
use zerocopy::{Immutable, IntoBytes};

use super::socket::{self, Moved};

/// Most pieces in one sendmsg.
const PIECES: usize = 512;
/// Bytes of headers in one sendmsg.
const ARENA: usize = 64 << 10;
/// What one reply may need: data header, digest, response header, each with
/// padding.
const REPLY_PIECES: usize = 4;
const REPLY_HEADS: usize = 512;

pub struct Outbox {
    arena: Vec<u8>,
    pieces: Vec<libc::iovec>,
    /// Number of pieces after which a slot can go, and the slot.
    releases: Vec<(usize, u32)>,
    bytes: usize,
}

/// What became of an outbox.
pub enum Sent {
    All,
    Rest(Box<Backlog>),
}

fn piece(ptr: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: ptr.cast_mut().cast(),
        iov_len: len,
    }
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox {
            arena: Vec::with_capacity(ARENA),
            pieces: Vec::with_capacity(PIECES),
            releases: Vec::with_capacity(PIECES),
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// There is room for one more reply.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pieces.len() + REPLY_PIECES <= PIECES && self.arena.len() + REPLY_HEADS <= ARENA
    }

    /// Add the head of a PDU: header, digest, padding.
    #[inline]
    pub fn head<T: IntoBytes + Immutable>(&mut self, pdu: &T, link: &Link) {
        let start = self.arena.len();
        if link.hdr_digest || link.send_align > 4 {
            pdu::head_bytes(pdu, link, &mut self.arena);
        } else {
            self.arena.extend_from_slice(pdu.as_bytes());
        }
        self.point_at_arena(start);
    }

    /// Add bytes that are copied: a data digest, a few bytes of a bad PDU.
    pub fn copy(&mut self, bytes: &[u8]) {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        self.point_at_arena(start);
    }

    /// What was added to the arena from `start` is to be sent. The arena never
    /// grows beyond its capacity (`has_room`), so it stays where it is.
    #[inline]
    fn point_at_arena(&mut self, start: usize) {
        debug_assert!(self.arena.len() <= ARENA);
        let len = self.arena.len() - start;
        // SAFETY: `start` is inside the arena.
        let ptr = unsafe { self.arena.as_ptr().add(start) };
        self.bytes += len;
        if let Some(last) = self.pieces.last_mut() {
            let end = last.iov_base.cast::<u8>().wrapping_add(last.iov_len);
            if std::ptr::eq(end, ptr) {
                last.iov_len += len;
                return;
            }
        }
        self.pieces.push(piece(ptr, len));
    }

    /// Add data where it stands.
    ///
    /// # Safety
    /// The bytes must stay readable until they are sent; see the hazard of this
    /// module.
    #[inline]
    pub unsafe fn place(&mut self, ptr: NonNull<u8>, len: usize) {
        self.bytes += len;
        self.pieces.push(piece(ptr.as_ptr(), len));
    }

    /// Slot `slot` can go when all that was added so far has been sent.
    #[inline]
    pub fn release(&mut self, slot: u32) {
        self.releases.push((self.pieces.len(), slot));
    }

    /// Send everything. Slots that can go are appended to `released`.
    pub fn send(&mut self, fd: RawFd, released: &mut Vec<u32>) -> io::Result<Sent> {
        let mut taken = 0;
        if self.bytes > 0 {
            // SAFETY: every piece is good, see the hazard of this module.
            match unsafe { socket::send(fd, &self.pieces) }? {
                Moved::Bytes(n) => taken = n,
                Moved::Later | Moved::End => {}
            }
        }
        let sent = if taken == self.bytes {
            released.extend(self.releases.iter().map(|&(_, slot)| slot));
            Sent::All
        } else {
            Sent::Rest(Box::new(self.rest(taken, released)))
        };
        self.clear();
        Ok(sent)
    }

    /// Forget everything; the slots are the caller's to release.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.pieces.clear();
        self.releases.clear();
        self.bytes = 0;
    }

    fn rest(&self, mut taken: usize, released: &mut Vec<u32>) -> Backlog {
        let arena = self.arena.as_ptr_range();
        let mut backlog = Backlog::default();
        let mut gone = 0;
        for piece in &self.pieces {
            let len = piece.iov_len;
            if taken >= len {
                taken -= len;
                gone += 1;
                continue;
            }
            let from = piece.iov_base.cast::<u8>();
            // SAFETY: `taken` is less than the piece's length.
            let from = unsafe { from.add(taken) };
            let len = len - std::mem::take(&mut taken);
            if arena.contains(&from.cast_const()) {
                // SAFETY: a piece of the arena, all of it initialised.
                let bytes = unsafe { std::slice::from_raw_parts(from, len) };
                backlog.parts.push(Part::Head {
                    start: backlog.heads.len(),
                    len,
                });
                backlog.heads.extend_from_slice(bytes);
            } else if let Some(from) = NonNull::new(from) {
                backlog.parts.push(Part::Place { from, len });
            }
        }
        for &(after, slot) in &self.releases {
            if after <= gone {
                released.push(slot);
            } else {
                backlog.releases.push((after - gone, slot));
            }
        }
        backlog
    }
}

enum Part {
    Head { start: usize, len: usize },
    Place { from: NonNull<u8>, len: usize },
}

/// Replies that the socket did not take yet.
#[derive(Default)]
pub struct Backlog {
    heads: Vec<u8>,
    parts: Vec<Part>,
    /// Number of parts that have been sent.
    next: usize,
    releases: Vec<(usize, u32)>,
    /// Number of releases that are over.
    released: usize,
}

// SAFETY: the places are only read, by the kernel, on whichever thread has the
// connection; what they point into lives as the module's hazard says.
unsafe impl Send for Backlog {}

/// How far a backlog got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    All,
    Some,
    Nothing,
}

impl Backlog {
    /// Send what the socket takes.
    pub fn send(&mut self, fd: RawFd, released: &mut Vec<u32>) -> io::Result<Drained> {
        let mut moved = Drained::Nothing;
        loop {
            let mut pieces = [piece(std::ptr::null(), 0); 64];
            let mut count = 0;
            let mut wanted = 0;
            let parts = self.parts.get(self.next..).unwrap_or_default();
            for (piece_, part) in pieces.iter_mut().zip(parts) {
                *piece_ = match *part {
                    Part::Head { start, len } => {
                        let bytes = self.heads.get(start..start + len).unwrap_or_default();
                        piece(bytes.as_ptr(), bytes.len())
                    }
                    Part::Place { from, len } => piece(from.as_ptr(), len),
                };
                wanted += piece_.iov_len;
                count += 1;
            }
            if count == 0 {
                return Ok(Drained::All);
            }
            let pieces = pieces.get(..count).unwrap_or_default();
            // SAFETY: heads are ours, places are good: see the module's hazard.
            let taken = match unsafe { socket::send(fd, pieces) }? {
                Moved::Bytes(n) => n,
                Moved::Later | Moved::End => return Ok(moved),
            };
            self.advance(taken, released);
            moved = Drained::Some;
            if taken < wanted {
                return Ok(moved);
            }
        }
    }

    fn advance(&mut self, mut taken: usize, released: &mut Vec<u32>) {
        while let Some(part) = self.parts.get_mut(self.next) {
            let len = match part {
                Part::Head { len, .. } | Part::Place { len, .. } => len,
            };
            if taken < *len {
                *len -= taken;
                match part {
                    Part::Head { start, .. } => *start += taken,
                    // SAFETY: `taken` is less than the part's length.
                    Part::Place { from, .. } => *from = unsafe { from.add(taken) },
                }
                break;
            }
            taken -= *len;
            self.next += 1;
        }
        while let Some(&(after, slot)) = self.releases.get(self.released) {
            if after > self.next {
                break;
            }
            released.push(slot);
            self.released += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn short_sends_keep_order_and_release_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let data: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut outbox = Outbox::new();
        let mut want = Vec::new();
        for (slot, chunk) in data.chunks(100_000).enumerate() {
            let head = [slot as u8; 24];
            outbox.copy(&head);
            // SAFETY: `data` outlives the outbox.
            unsafe {
                outbox.place(
                    NonNull::new(chunk.as_ptr().cast_mut()).unwrap(),
                    chunk.len(),
                )
            };
            outbox.copy(&[0xee; 4]);
            outbox.release(slot as u32);
            want.extend_from_slice(&head);
            want.extend_from_slice(chunk);
            want.extend_from_slice(&[0xee; 4]);
        }
        let mut released = Vec::new();
        let Sent::Rest(mut backlog) = outbox.send(ours.as_raw_fd(), &mut released).unwrap() else {
            panic!("a megabyte at once");
        };
        assert!(outbox.is_empty());
        let mut got = Vec::new();
        let mut part = vec![0; 30_000];
        loop {
            let n = theirs.read(&mut part).unwrap();
            got.extend_from_slice(&part[..n]);
            // No slot goes before its last byte has left.
            let sent = released.len() * 100_028;
            assert!(sent <= got.len() + 400_000);
            if backlog.send(ours.as_raw_fd(), &mut released).unwrap() == Drained::All {
                break;
            }
        }
        drop(ours);
        theirs.read_to_end(&mut got).unwrap();
        assert!(got == want);
        assert_eq!(released, (0..10).collect::<Vec<u32>>());
    }

    #[test]
    fn heads_in_a_row_are_one_piece() {
        let mut outbox = Outbox::new();
        for _ in 0..10 {
            outbox.copy(&[0; 24]);
        }
        assert_eq!((outbox.pieces.len(), outbox.bytes()), (1, 240));
    }
}
