// SPDX-License-Identifier: GPL-2.0-only
//! Files and block devices by io_uring.
//!
//! One [`Ring`] per core, used by that core's thread only. Files and the core's
//! buffers are registered with it, so that the kernel need not look them up and
//! pin pages for each I/O. A device that polls for completions has a ring of its
//! own beside it, since flushes and the like cannot run on such a ring.
//!
//! FUA is RWF_DSYNC, FLUSH is fdatasync; both reach the medium with direct I/O
//! and without. Discard and zeroes are fallocate where the kernel has it for the
//! file, else the work of a helper thread.
//!
//! Hazard: the kernel writes to a buffer until its completion has been taken
//! from the ring. A ring that is dropped with I/O in flight leaves that behind,
//! which is why the region it registers must live for ever.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use nvme_wire::status::Status;

use super::{Io, IoOp, Nanos, Submit, Ticket};
use helper::{Helper, Job, Work};

mod disk;
mod errno;
mod helper;
#[cfg(test)]
mod tests;

pub use disk::{FileDisk, Kind, OpenError};

/// Files that are registered; more work as well, a little slower.
const FIXED_FILES: u32 = 64;
/// Marks the completion that says the helper has results.
const HELPER: u64 = u64::MAX;
/// Times an I/O is tried again that the kernel had no memory for.
const TRIES: u8 = 100;

/// What a flight does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its own operation.
    Main,
    /// Zeroes by the other kind of fallocate.
    Second,
    /// The helper has it.
    Helper,
    /// fdatasync after zeroes with FUA.
    Sync,
}

/// One I/O.
#[derive(Clone, Copy, Debug)]
struct Flight {
    io: Io,
    /// Index of its file.
    file: u32,
    stage: Stage,
    /// Bytes read or written so far.
    moved: u32,
    tries: u8,
}

struct OpenFile {
    disk: Arc<FileDisk>,
    /// Flights on it.
    used: u32,
}

/// One core's ring.
pub struct Ring {
    ring: IoUring,
    /// For devices that poll.
    polled: Option<IoUring>,
    in_polled: u32,
    entries: u32,
    /// Addresses of the registered region; empty if it could not be registered.
    region: std::ops::Range<usize>,
    buffers: &'static [u8],
    /// The first `FIXED_FILES` are registered, if `fixed_files` says so.
    files: Vec<OpenFile>,
    fixed_files: bool,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Entries the kernel does not know of yet, by ring.
    queued: u32,
    queued_polled: u32,
    results: Vec<(u64, i32)>,
    helper: Option<Helper>,
    /// Where the kernel puts the helper's count; what it says is not needed.
    bell: Box<u64>,
    helping: u32,
}

impl Ring {
    /// A ring for `entries` I/Os at once, with `buffers` registered.
    pub fn new(entries: u32, buffers: &'static [u8]) -> io::Result<Ring> {
        let entries = entries.clamp(1, 16384);
        let ring = build(entries, false)?;
        let fixed_files = ring
            .submitter()
            .register_files_sparse(FIXED_FILES)
            .map_err(|e| log::warn!("io_uring: files are not registered: {e}"))
            .is_ok();
        let region = register(&ring, buffers);
        Ok(Ring {
            ring,
            polled: None,
            in_polled: 0,
            entries,
            region,
            buffers,
            files: Vec::new(),
            fixed_files,
            flights: vec![None; entries as usize],
            free: (0..entries).rev().collect(),
            queued: 0,
            queued_polled: 0,
            results: Vec::with_capacity(entries as usize),
            helper: None,
            bell: Box::new(0),
            helping: 0,
        })
    }

    /// Start an I/O whose offset counts from the start of the file.
    ///
    /// # Safety
    /// The buffer must stay valid, and nobody else may touch it, until the
    /// ticket comes out of `poll`.
    pub unsafe fn submit(&mut self, _now: Nanos, disk: &Arc<FileDisk>, io: Io) -> Submit {
        if let Some(status) = refusal(disk, &io) {
            return Submit::Done(status);
        }
        let Some(index) = self.free.pop() else {
            return Submit::Full;
        };
        let file = match self.file(disk) {
            Ok(file) => file,
            Err(e) => {
                self.free.push(index);
                log::error!("{}: io_uring: {e}", disk.path().display());
                return Submit::Done(Status::INTERNAL);
            }
        };
        let flight = Flight {
            io,
            file,
            stage: Stage::Main,
            moved: 0,
            tries: 0,
        };
        if let Some(file) = self.files.get_mut(file as usize) {
            file.used += 1;
        }
        self.start(index, flight);
        Submit::Pending
    }

    /// The index of a disk's file; unused ones of other disks make room.
    fn file(&mut self, disk: &Arc<FileDisk>) -> io::Result<u32> {
        let known = self.files.iter().position(|f| f.disk.id() == disk.id());
        if let Some(index) = known {
            return Ok(index as u32);
        }
        if disk.polled() && self.polled.is_none() {
            let ring = build(self.entries, true)?;
            register(&ring, self.buffers);
            self.polled = Some(ring);
        }
        // A disk that only this ring still holds is not served any more.
        let old = |f: &OpenFile| f.used == 0 && Arc::strong_count(&f.disk) == 1;
        let file = OpenFile {
            disk: Arc::clone(disk),
            used: 0,
        };
        let index = match self.files.iter().position(old) {
            Some(index) => {
                if let Some(place) = self.files.get_mut(index) {
                    *place = file;
                }
                index
            }
            None => {
                self.files.push(file);
                self.files.len() - 1
            }
        };
        if self.fixed_files && index < FIXED_FILES as usize {
            let submitter = self.ring.submitter();
            submitter.register_files_update(index as u32, &[disk.fd()])?;
        }
        Ok(index as u32)
    }

    /// Queue what a flight does next.
    fn start(&mut self, index: u32, flight: Flight) {
        if let Some(place) = self.flights.get_mut(index as usize) {
            *place = Some(flight);
        }
        let Some(file) = self.files.get(flight.file as usize) else {
            return;
        };
        let disk = Arc::clone(&file.disk);
        let moves = matches!(flight.io.op, IoOp::Read | IoOp::Write { .. });
        if flight.stage == Stage::Helper {
            return self.help(index, flight, disk);
        }
        let polled = moves && disk.polled() && self.polled.is_some();
        let fixed = self.fixed_files && flight.file < FIXED_FILES && !polled;
        let entry = if fixed {
            self.entry(&flight, &disk, types::Fixed(flight.file))
        } else {
            self.entry(&flight, &disk, types::Fd(disk.fd()))
        };
        let Some(entry) = entry else {
            let stage = Stage::Helper;
            return self.start(index, Flight { stage, ..flight });
        };
        self.push(entry.user_data(index.into()), polled);
    }

    fn push(&mut self, entry: squeue::Entry, polled: bool) {
        let ring = match (&mut self.polled, polled) {
            (Some(ring), true) => {
                self.queued_polled += 1;
                self.in_polled += 1;
                ring
            }
            _ => {
                self.queued += 1;
                &mut self.ring
            }
        };
        // SAFETY: the buffer is good until the completion, as `submit` demands;
        // the file is open as long as the flight, `bell` as long as the ring.
        let pushed = unsafe { ring.submission().push(&entry) };
        // The queue has room for every flight and the helper's bell.
        debug_assert!(pushed.is_ok());
    }

    /// The entry for a flight's stage; `None`: the helper must do it.
    fn entry<F: Place>(&self, flight: &Flight, disk: &FileDisk, file: F) -> Option<squeue::Entry> {
        let io = &flight.io;
        if flight.stage == Stage::Sync {
            return Some(file.sync());
        }
        let mode = match (io.op, flight.stage, disk.kind()) {
            (IoOp::Read | IoOp::Write { .. }, ..) => return Some(self.transfer(flight, file)),
            (IoOp::Flush, ..) => return Some(file.sync()),
            (IoOp::Discard, _, Kind::BlockDevice) => return None,
            (IoOp::Discard, _, Kind::File) => PUNCH,
            (IoOp::WriteZeroes { deallocate, .. }, stage, _) => {
                // Punched blocks read as zeroes on files and block devices alike.
                if deallocate == (stage == Stage::Main) {
                    PUNCH
                } else {
                    ZERO
                }
            }
        };
        Some(file.allocate(io.offset, io.len, mode))
    }

    fn transfer<F: Place>(&self, flight: &Flight, file: F) -> squeue::Entry {
        let io = &flight.io;
        let moved = flight.moved as usize;
        let ptr = io.buffer.ptr.as_ptr().wrapping_add(moved);
        let len = (io.len as u32).saturating_sub(flight.moved);
        let offset = io.offset + u64::from(flight.moved);
        let begin = ptr as usize;
        let registered = self.region.start <= begin && begin + len as usize <= self.region.end;
        match io.op {
            IoOp::Write { fua } => {
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                file.write(ptr, len, offset, flags, registered)
            }
            _ => file.read(ptr, len, offset, registered),
        }
    }

    fn help(&mut self, index: u32, flight: Flight, disk: Arc<FileDisk>) {
        if self.helper.is_none() {
            match Helper::start() {
                Ok(helper) => self.helper = Some(helper),
                Err(e) => log::error!("no thread for discards: {e}"),
            }
        }
        let job = Job {
            flight: index,
            disk,
            work: match flight.io.op {
                IoOp::Discard => Work::Discard,
                _ => Work::Zero,
            },
            offset: flight.io.offset,
            len: flight.io.len,
        };
        if self.helper.as_ref().is_some_and(|h| h.submit(job)) {
            self.helping += 1;
            if self.helping == 1 {
                self.listen();
            }
        } else {
            // Reported by the next poll like anything else.
            self.results.push((index.into(), -libc::EAGAIN));
        }
    }

    /// Wait for the helper's bell.
    fn listen(&mut self) {
        let Some(event) = self.helper.as_ref().map(Helper::event) else {
            return;
        };
        let place: *mut u64 = &mut *self.bell;
        let entry = opcode::Read::new(types::Fd(event), place.cast(), 8).build();
        self.push(entry.user_data(HELPER), false);
    }

    /// Hand over to the kernel what was submitted.
    pub fn kick(&mut self) -> io::Result<()> {
        if self.queued > 0 {
            self.queued -= submit(&self.ring)?.min(self.queued);
        }
        if let Some(ring) = self.polled.as_ref().filter(|_| self.queued_polled > 0) {
            self.queued_polled -= submit(ring)?.min(self.queued_polled);
        }
        Ok(())
    }

    /// Append what is over.
    pub fn poll(&mut self, _now: Nanos, done: &mut Vec<(Ticket, Status)>) {
        if !self.busy() {
            return;
        }
        let mut results = std::mem::take(&mut self.results);
        if self.ring.submission().taskrun() {
            // The kernel has completions that it posts when it is entered.
            let _ = submit(&self.ring);
        }
        for entry in self.ring.completion() {
            results.push((entry.user_data(), entry.result()));
        }
        if let Some(ring) = self.polled.as_mut().filter(|_| self.in_polled > 0) {
            // Entering looks at the device.
            let _ = submit(ring);
            for entry in ring.completion() {
                results.push((entry.user_data(), entry.result()));
                self.in_polled = self.in_polled.saturating_sub(1);
            }
        }
        for (data, result) in results.drain(..) {
            if data == HELPER {
                self.helper_results(done);
            } else {
                self.ended(data as u32, result, done);
            }
        }
        // What was added meanwhile waits for the next call.
        results.append(&mut self.results);
        self.results = results;
    }

    fn helper_results(&mut self, done: &mut Vec<(Ticket, Status)>) {
        let results = self.helper.as_ref().map(Helper::take).unwrap_or_default();
        for (index, result) in results {
            self.helping = self.helping.saturating_sub(1);
            self.ended(index, result, done);
        }
        if self.helping > 0 {
            self.listen();
        }
    }

    /// A stage of a flight is over.
    fn ended(&mut self, index: u32, result: i32, done: &mut Vec<(Ticket, Status)>) {
        let Some(mut flight) = self.flights.get(index as usize).copied().flatten() else {
            return;
        };
        let next = match u32::try_from(result) {
            Ok(moved) => self.went_well(&mut flight, moved),
            Err(_) => self.failed(&mut flight, -result),
        };
        let Some(status) = next else {
            return self.start(index, flight);
        };
        done.push((flight.io.ticket, status));
        if let Some(place) = self.flights.get_mut(index as usize) {
            *place = None;
        }
        if let Some(file) = self.files.get_mut(flight.file as usize) {
            file.used = file.used.saturating_sub(1);
        }
        self.free.push(index);
    }

    /// What comes of a success; `None`: the flight goes on.
    fn went_well(&self, flight: &mut Flight, moved: u32) -> Option<Status> {
        match flight.io.op {
            IoOp::Read | IoOp::Write { .. } => {
                flight.moved += moved;
                if u64::from(flight.moved) >= flight.io.len {
                    return Some(Status::SUCCESS);
                }
                let disk = &self.files.get(flight.file as usize)?.disk;
                // A piece that does not end where direct I/O can go on, or none
                // at all: the file has become shorter.
                if moved == 0 || !disk.aligned(u64::from(flight.moved), 0) {
                    log::error!(
                        "{} ends at byte {}, it had {} when it was opened",
                        disk.path().display(),
                        flight.io.offset + u64::from(flight.moved),
                        disk.bytes()
                    );
                    return Some(errno::medium(flight.io.op));
                }
                None
            }
            IoOp::WriteZeroes { fua: true, .. } if flight.stage != Stage::Sync => {
                flight.stage = Stage::Sync;
                None
            }
            _ => Some(Status::SUCCESS),
        }
    }

    /// What comes of a failure; `None`: it is tried again or in another way.
    fn failed(&self, flight: &mut Flight, errno: i32) -> Option<Status> {
        let disk = &self.files.get(flight.file as usize)?.disk;
        match (errno, flight.io.op, flight.stage) {
            (libc::EINTR | libc::EAGAIN, ..) if flight.tries < TRIES => {
                flight.tries += 1;
                return None;
            }
            // Some devices and file systems have one kind of fallocate, some
            // none.
            (libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV, IoOp::WriteZeroes { .. }, stage)
                if matches!(stage, Stage::Main | Stage::Second) =>
            {
                flight.stage = match stage {
                    Stage::Main => Stage::Second,
                    _ => Stage::Helper,
                };
                return None;
            }
            // A discard is advice.
            (libc::EOPNOTSUPP | libc::ENODEV, IoOp::Discard, _) => return Some(Status::SUCCESS),
            _ => {}
        }
        let status = errno::status(errno, flight.io.op);
        log::error!(
            "{}: {:?} of {} bytes at {} failed: {} ({status})",
            disk.path().display(),
            flight.io.op,
            flight.io.len,
            flight.io.offset,
            io::Error::from_raw_os_error(errno),
        );
        Some(status)
    }

    pub fn busy(&self) -> bool {
        self.free.len() < self.flights.len()
    }

    /// When `poll` must be called although the descriptor says nothing: at once
    /// while a device that polls has something to do.
    pub fn next_event(&self) -> Option<Nanos> {
        (self.in_polled > 0 || !self.results.is_empty()).then_some(0)
    }

    /// Becomes readable when something is over.
    pub fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// A file by its registered index or by its descriptor.
trait Place: Copy {
    fn read(self, ptr: *mut u8, len: u32, offset: u64, registered: bool) -> squeue::Entry;
    fn write(
        self,
        ptr: *const u8,
        len: u32,
        offset: u64,
        flags: i32,
        registered: bool,
    ) -> squeue::Entry;
    fn sync(self) -> squeue::Entry;
    fn allocate(self, offset: u64, len: u64, mode: i32) -> squeue::Entry;
}

macro_rules! place {
    ($kind:ty) => {
        impl Place for $kind {
            fn read(self, ptr: *mut u8, len: u32, offset: u64, registered: bool) -> squeue::Entry {
                if registered {
                    let op = opcode::ReadFixed::new(self, ptr, len, 0);
                    return op.offset(offset).build();
                }
                opcode::Read::new(self, ptr, len).offset(offset).build()
            }

            fn write(
                self,
                ptr: *const u8,
                len: u32,
                offset: u64,
                flags: i32,
                registered: bool,
            ) -> squeue::Entry {
                if registered {
                    let op = opcode::WriteFixed::new(self, ptr, len, 0);
                    return op.offset(offset).rw_flags(flags).build();
                }
                let op = opcode::Write::new(self, ptr, len);
                op.offset(offset).rw_flags(flags).build()
            }

            fn sync(self) -> squeue::Entry {
                let op = opcode::Fsync::new(self);
                op.flags(types::FsyncFlags::DATASYNC).build()
            }

            fn allocate(self, offset: u64, len: u64, mode: i32) -> squeue::Entry {
                let op = opcode::Fallocate::new(self, len);
                op.offset(offset).mode(mode).build()
            }
        }
    };
}

place!(types::Fd);
place!(types::Fixed);

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// What a disk cannot do.
fn refusal(disk: &FileDisk, io: &Io) -> Option<Status> {
    let moves = matches!(io.op, IoOp::Read | IoOp::Write { .. });
    let changes = !matches!(io.op, IoOp::Read | IoOp::Flush);
    if changes && disk.read_only() {
        return Some(errno::WRITE_PROTECTED.with_do_not_retry());
    }
    if io.op != IoOp::Flush && (io.len == 0 || !disk.aligned(io.offset, io.len)) {
        return Some(Status::INVALID_FIELD.with_do_not_retry());
    }
    if moves && (!disk.takes(io.buffer.ptr.as_ptr() as usize) || io.len > u64::from(io.buffer.len))
    {
        log::error!(
            "{}: a buffer that direct I/O cannot use",
            disk.path().display()
        );
        return Some(Status::INTERNAL);
    }
    None
}

fn build(entries: u32, polled: bool) -> io::Result<IoUring> {
    // One more for the helper's bell.
    let entries = (entries + 1).next_power_of_two();
    let mut builder = IoUring::builder();
    builder.dontfork();
    if polled {
        builder.setup_iopoll();
        return builder.build(entries);
    }
    // Fewer interrupts of the thread by its own completions, from Linux 5.19.
    builder.setup_coop_taskrun().setup_taskrun_flag();
    builder
        .build(entries)
        .or_else(|_| IoUring::builder().dontfork().build(entries))
}

/// Register the region; its addresses, none if that failed.
fn register(ring: &IoUring, buffers: &'static [u8]) -> std::ops::Range<usize> {
    if buffers.is_empty() {
        return 0..0;
    }
    let iovec = libc::iovec {
        iov_base: buffers.as_ptr().cast_mut().cast(),
        iov_len: buffers.len(),
    };
    // SAFETY: the region lives for ever; who writes to it when is the business
    // of those who own the buffers in it.
    match unsafe { ring.submitter().register_buffers(&[iovec]) } {
        Ok(()) => {
            let begin = buffers.as_ptr() as usize;
            begin..begin + buffers.len()
        }
        Err(e) => {
            log::warn!("io_uring: buffers are not registered: {e} (see RLIMIT_MEMLOCK)");
            0..0
        }
    }
}

/// Entries that the kernel took.
fn submit(ring: &IoUring) -> io::Result<u32> {
    match ring.submitter().submit() {
        Ok(n) => Ok(n as u32),
        // No room for completions, or a signal: the next kick does it.
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)
            ) =>
        {
            Ok(0)
        }
        Err(e) => Err(e),
    }
}
