// SPDX-License-Identifier: GPL-2.0-only
//! A disk in memory, shared by all cores.
//!
//! Hazard: several cores read and write it at once, without any lock, as hosts
//! do with a real disk. What a host gets that reads blocks while it writes them
//! is not defined by NVMe and not by this; no reference into the disk is ever
//! made, only raw copies.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use nvme_wire::status::Status;

use super::{Io, IoOp};

/// Unit in which memory is given back to the system.
const PAGE: u64 = 4096;

/// Memory of a fixed size, mapped without a file.
pub struct RamDisk {
    start: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the memory is only touched by raw copies of ranges that were checked,
// see the hazard above; the fields never change.
unsafe impl Send for RamDisk {}
// SAFETY: as above.
unsafe impl Sync for RamDisk {}

impl fmt::Debug for RamDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RAM disk of {} bytes", self.bytes)
    }
}

impl RamDisk {
    /// `bytes` of zeroes. Memory is taken when it is first touched; huge pages
    /// are asked for, since random reads otherwise spend their time on the TLB.
    pub fn new(bytes: u64) -> io::Result<Arc<RamDisk>> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if len == 0 || len > isize::MAX as usize {
            let why = format!("a RAM disk of {bytes} bytes: must be 1 to what memory holds");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
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
        // SAFETY: the mapping made above. Advice may be refused, at a price in
        // speed only.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Arc::new(RamDisk { start, bytes }))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where `len` bytes from `offset` stand; `None` if they do not lie inside.
    /// The pointer is good as long as the disk.
    #[inline]
    pub fn place(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.bytes {
            return None;
        }
        // SAFETY: inside the mapping, as checked.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// Write `data` at `offset`; `false` if it does not fit.
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(to) = self.place(offset, data.len() as u64) else {
            return false;
        };
        // SAFETY: `to` is good for the length, as checked; nobody has a
        // reference into the disk.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
        true
    }

    /// Fill `into` from `offset`; `false` if that reaches over the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(from) = self.place(offset, into.len() as u64) else {
            return false;
        };
        // SAFETY: as in `write`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Zeroes; whole pages are given back to the system.
    fn zero(&self, offset: u64, len: u64) -> bool {
        let Some(to) = self.place(offset, len) else {
            return false;
        };
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        if last <= first {
            // SAFETY: good for the length, as `place` checked.
            unsafe { to.write_bytes(0, len as usize) };
            return true;
        }
        for (from, to) in [(offset, first), (last, end)] {
            if let Some(at) = self.place(from, to - from) {
                // SAFETY: as above.
                unsafe { at.write_bytes(0, (to - from) as usize) };
            }
        }
        let Some(pages) = self.place(first, last - first) else {
            return false;
        };
        let len = (last - first) as usize;
        // SAFETY: whole pages inside the private mapping; they read as zeroes
        // afterwards.
        if unsafe { libc::madvise(pages.as_ptr().cast(), len, libc::MADV_DONTNEED) } != 0 {
            // SAFETY: good for the length, as `place` checked.
            unsafe { pages.write_bytes(0, len) };
        }
        true
    }

    /// Run an I/O whose offset counts from the start of the disk.
    ///
    /// # Safety
    /// The buffer of a read or write must be valid for `io.len` bytes and must
    /// not lie in the disk.
    pub unsafe fn run(&self, io: &Io) -> Status {
        let Some(place) = self.place(io.offset, io.len) else {
            return Status::LBA_RANGE.with_do_not_retry();
        };
        let (buffer, len) = (io.buffer.ptr, io.len as usize);
        match io.op {
            // SAFETY: both are good for `len`, as checked and promised.
            IoOp::Read => unsafe { ptr::copy_nonoverlapping(place.as_ptr(), buffer.as_ptr(), len) },
            IoOp::Write { .. } => {
                // SAFETY: as above.
                unsafe { ptr::copy_nonoverlapping(buffer.as_ptr(), place.as_ptr(), len) };
            }
            IoOp::Flush => {}
            IoOp::WriteZeroes { .. } | IoOp::Discard => {
                self.zero(io.offset, io.len);
            }
        }
        Status::SUCCESS
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing points into it any more,
        // since who holds a place holds the disk.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backends, Buffer, Submit, Ticket, Volume};

    fn io(op: IoOp, offset: u64, bytes: &mut [u8]) -> Io {
        Io {
            ticket: Ticket(0),
            op,
            offset,
            len: bytes.len() as u64,
            buffer: Buffer {
                ptr: NonNull::new(bytes.as_mut_ptr()).unwrap(),
                len: bytes.len() as u32,
            },
        }
    }

    fn run(volume: &Volume, io: Io) -> Status {
        let mut backends = Backends::new(&[], 1);
        // SAFETY: the tests' buffers outlive the call.
        match unsafe { backends.submit(0, volume, io) } {
            Submit::Done(status) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keeps_what_is_written() {
        let disk = Volume::ram(1 << 20).unwrap();
        let part = disk.partition(64 << 10, 128 << 10).unwrap();
        let mut data = [7; 5000];
        assert!(run(&part, io(IoOp::Write { fua: true }, 100, &mut data)).is_success());
        let mut back = [0; 5000];
        assert!(run(&disk, io(IoOp::Read, (64 << 10) + 100, &mut back)).is_success());
        assert_eq!(back, data);
        assert!(Backends::read_in_place(&part, 127 << 10, 1024).is_some());
        assert!(Backends::read_in_place(&part, 127 << 10, 1025).is_none());
        assert!(disk.partition(1 << 20, 1).is_none());
        assert!(disk.partition(u64::MAX, 2).is_none());
    }

    #[test]
    fn outside_is_refused() {
        let disk = Volume::ram(1 << 20).unwrap();
        let mut data = [1; 512];
        for offset in [(1 << 20) - 511, 1 << 20, u64::MAX - 5] {
            for op in [IoOp::Read, IoOp::Write { fua: false }, IoOp::Discard] {
                assert_eq!(
                    run(&disk, io(op, offset, &mut data)).code(),
                    Status::LBA_RANGE.code()
                );
            }
        }
    }

    #[test]
    fn zeroes_reach_exactly_their_blocks() {
        let disk = RamDisk::new(64 << 10).unwrap();
        for (from, len) in [(512, 512), (100, 9000), (4096, 8192), (0, 64 << 10)] {
            assert!(disk.write(0, &[0xaa; 64 << 10]));
            assert!(disk.zero(from, len));
            let mut back = vec![0; 64 << 10];
            assert!(disk.read(0, &mut back));
            for (i, &byte) in back.iter().enumerate() {
                let inside = (from..from + len).contains(&(i as u64));
                assert_eq!(byte == 0, inside, "byte {i} of {from}+{len}");
            }
        }
        assert!(!disk.zero(64 << 10, 1));
    }

    #[test]
    fn null_reads_zeroes() {
        let disk = Volume::null(1 << 40);
        let mut data = [9; 4096];
        assert!(run(&disk, io(IoOp::Write { fua: false }, 0, &mut data)).is_success());
        assert!(run(&disk, io(IoOp::Read, 0, &mut data)).is_success());
        assert_eq!(data, [0; 4096]);
        assert!(RamDisk::new(0).is_err());
    }
}
