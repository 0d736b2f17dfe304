// SPDX-License-Identifier: GPL-2.0-only
//! A core's buffers: one region, and a buddy allocator over it.
//!
//! Blocks are powers of two from 4 KiB to 1 MiB, each aligned to its size, so
//! that O_DIRECT takes them and a whole transfer (MDTS) fits in one. Nothing is
//! allocated after [`Pool::new`].
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};

use crate::backend::Buffer;

/// Smallest block, bytes.
pub const LEAST: usize = 4096;
/// Greatest block, bytes.
pub const GREATEST: usize = 1 << 20;
const ORDERS: usize = GREATEST.trailing_zeros() as usize - LEAST.trailing_zeros() as usize + 1;
const NONE: u32 = u32::MAX;

/// Memory that is there until the end of the process: a ring may have it
/// registered, and what the kernel still writes must not hit anything else.
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

impl Region {
    fn new(bytes: usize) -> io::Result<Region> {
        // One greatest block more, to align the start.
        let len = bytes + GREATEST;
        // SAFETY: a new private mapping without a file; no address is asked for.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: *mut u8 = start.cast();
        // SAFETY: less than GREATEST, so inside the mapping.
        let start = unsafe { start.add(start.align_offset(GREATEST)) };
        // SAFETY: advice about the mapping made above; refusing it costs only speed.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { start, bytes })
    }
}

/// State of a unit of [`LEAST`] bytes.
#[derive(Clone, Copy)]
struct Unit {
    /// Order of the free block that begins here, if one does.
    free: Option<u8>,
    /// Neighbours in the list of free blocks of that order.
    previous: u32,
    next: u32,
}

pub struct Pool {
    region: Region,
    units: Vec<Unit>,
    heads: [u32; ORDERS],
    free_bytes: usize,
}

fn order_of(len: usize) -> Option<usize> {
    let block = len.max(LEAST).checked_next_power_of_two()?;
    (block <= GREATEST).then(|| block.trailing_zeros() as usize - LEAST.trailing_zeros() as usize)
}

impl Pool {
    /// `bytes` is rounded up to whole greatest blocks.
    pub fn new(bytes: usize) -> io::Result<Pool> {
        let bytes = bytes.max(GREATEST).next_multiple_of(GREATEST);
        let units = bytes / LEAST;
        let mut pool = Pool {
            region: Region::new(bytes)?,
            units: vec![
                Unit {
                    free: None,
                    previous: NONE,
                    next: NONE,
                };
                units
            ],
            heads: [NONE; ORDERS],
            free_bytes: bytes,
        };
        for first in (0..units).step_by(GREATEST / LEAST).rev() {
            pool.push(first as u32, ORDERS - 1);
        }
        Ok(pool)
    }

    /// All memory that buffers come from, to be registered with a ring.
    pub fn region(&self) -> &'static [u8] {
        // SAFETY: mapped until the end of the process. It is only handed to the
        // kernel by address; see the hazards of `Backends::new`.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr(), self.region.bytes) }
    }

    /// A block of at least `len` bytes, 1 to [`GREATEST`]; `None` if there is
    /// no such block now.
    pub fn alloc(&mut self, len: usize) -> Option<Buffer> {
        let wanted = order_of(len)?;
        let mut order = wanted;
        while *self.heads.get(order)? == NONE {
            order += 1;
        }
        let first = *self.heads.get(order)?;
        self.unlink(first, order);
        while order > wanted {
            order -= 1;
            self.push(first + (1 << order), order);
        }
        let bytes = LEAST << wanted;
        self.free_bytes -= bytes;
        // SAFETY: the block lies in the region.
        let ptr = unsafe { self.region.start.add(first as usize * LEAST) };
        Some(Buffer {
            ptr,
            len: bytes as u32,
        })
    }

    /// Give back what `alloc` returned.
    pub fn free(&mut self, buffer: Buffer) {
        let address = buffer.ptr.as_ptr() as usize;
        let offset = address.wrapping_sub(self.region.start.as_ptr() as usize);
        let Some(mut order) = order_of(buffer.len as usize) else {
            return;
        };
        if offset >= self.region.bytes {
            debug_assert!(false, "a buffer of another pool");
            return;
        }
        self.free_bytes += LEAST << order;
        let mut first = (offset / LEAST) as u32;
        while order + 1 < ORDERS {
            let buddy = first ^ (1 << order);
            let whole = self
                .units
                .get(buddy as usize)
                .is_some_and(|unit| unit.free == Some(order as u8));
            if !whole {
                break;
            }
            self.unlink(buddy, order);
            first = first.min(buddy);
            order += 1;
        }
        self.push(first, order);
    }

    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    pub fn bytes(&self) -> usize {
        self.region.bytes
    }

    fn push(&mut self, first: u32, order: usize) {
        let Some(head) = self.heads.get_mut(order) else {
            return;
        };
        let next = std::mem::replace(head, first);
        if let Some(unit) = self.units.get_mut(next as usize) {
            unit.previous = first;
        }
        if let Some(unit) = self.units.get_mut(first as usize) {
            *unit = Unit {
                free: Some(order as u8),
                previous: NONE,
                next,
            };
        }
    }

    fn unlink(&mut self, first: u32, order: usize) {
        let Some(unit) = self.units.get_mut(first as usize) else {
            return;
        };
        let Unit { previous, next, .. } = *unit;
        unit.free = None;
        if let Some(unit) = self.units.get_mut(next as usize) {
            unit.previous = previous;
        }
        match self.units.get_mut(previous as usize) {
            Some(unit) => unit.next = next,
            None => {
                if let Some(head) = self.heads.get_mut(order) {
                    *head = next;
                }
            }
        }
    }
}

/// The first `len` bytes of a buffer.
///
/// # Safety
/// The caller holds the buffer: no backend is using it, and no other reference
/// to it lives.
pub unsafe fn bytes_mut<'a>(buffer: Buffer, len: usize) -> &'a mut [u8] {
    let len = len.min(buffer.len as usize);
    // SAFETY: inside the block, which stays mapped; exclusive by promise.
    unsafe { std::slice::from_raw_parts_mut(buffer.ptr.as_ptr(), len) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_come_back(
            steps in proptest::collection::vec((any::<bool>(), 1_usize..=GREATEST), 1..200)
        ) {
            let mut pool = Pool::new(4 << 20).unwrap();
            let mut held: Vec<Buffer> = Vec::new();
            for (take, len) in steps {
                if take {
                    if let Some(new) = pool.alloc(len) {
                        let start = new.ptr.as_ptr() as usize;
                        prop_assert!(new.len as usize >= len);
                        prop_assert_eq!(start % new.len as usize, 0);
                        for old in &held {
                            let from = old.ptr.as_ptr() as usize;
                            prop_assert!(start >= from + old.len as usize
                                || from >= start + new.len as usize);
                        }
                        held.push(new);
                    }
                } else if !held.is_empty() {
                    pool.free(held.swap_remove(len % held.len()));
                }
                let used: usize = held.iter().map(|b| b.len as usize).sum();
                prop_assert_eq!(pool.free_bytes(), pool.bytes() - used);
            }
            for buffer in held.drain(..) {
                pool.free(buffer);
            }
            for _ in 0..4 {
                prop_assert!(pool.alloc(GREATEST).is_some());
            }
            prop_assert!(pool.alloc(1).is_none());
        }
    }

    #[test]
    fn sizes() {
        let mut pool = Pool::new(1).unwrap();
        assert_eq!(pool.bytes(), GREATEST);
        assert!(pool.alloc(GREATEST + 1).is_none());
        assert_eq!(pool.alloc(4097).unwrap().len, 8192);
        assert_eq!(pool.alloc(1).unwrap().len, 4096);
    }
}
