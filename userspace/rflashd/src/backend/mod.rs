// SPDX-License-Identifier: GPL-2.0-only
//! Where the blocks live: RAM, nothing, files and block devices, the flash model.
//!
//! [`Volume`] is what the configuration opens once and every core shares: a
//! range of a disk. [`Backends`] is what one core needs to run I/O on volumes:
//! its ring and its completions. Nothing here is shared between cores but the
//! disks themselves.
//!
//! Hazards:
//! * The buffer of an [`Io`] belongs to the backend from [`Submit::Pending`]
//!   until its ticket comes out of [`Backends::poll`]. Nobody may free, read or
//!   write it in between, not even when the connection has died.
//! * Offsets of an [`Io`] count from the volume's first byte. [`Volume::map`]
//!   is the only place that turns them into offsets of the disk; it refuses
//!   what does not lie inside the volume.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use nvme_wire::status::Status;

pub mod model;
pub mod null;
pub mod ram;
pub mod uring;

pub use model::ModelDisk;
pub use ram::RamDisk;
pub use uring::FileDisk;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// A disk that a volume is part of.
#[derive(Clone, Debug)]
pub enum Disk {
    Ram(Arc<RamDisk>),
    /// Reads give zeroes, writes are forgotten.
    Null,
    File(Arc<FileDisk>),
    Model(Arc<ModelDisk>),
}

/// A range of a disk.
#[derive(Clone, Debug)]
pub struct Volume {
    disk: Disk,
    base: u64,
    bytes: u64,
    /// The volume can take no FLUSH for granted: data may sit in a cache.
    volatile_cache: bool,
    /// Index of the device among those of the server: its scheduler, its
    /// tenants, its metrics.
    device: u16,
}

impl Volume {
    /// A new RAM disk of `bytes`, full of zeroes.
    pub fn ram(bytes: u64) -> io::Result<Volume> {
        Ok(Volume::whole(Disk::Ram(RamDisk::new(bytes)?), bytes))
    }

    /// A disk of `bytes` that keeps nothing.
    pub fn null(bytes: u64) -> Volume {
        Volume::whole(Disk::Null, bytes)
    }

    /// All of a file or block device.
    pub fn file(disk: Arc<FileDisk>) -> Volume {
        let bytes = disk.bytes();
        Volume::whole(Disk::File(disk), bytes)
    }

    /// All of a modelled device.
    pub fn model(disk: Arc<ModelDisk>) -> Volume {
        let bytes = disk.bytes();
        Volume::whole(Disk::Model(disk), bytes)
    }

    fn whole(disk: Disk, bytes: u64) -> Volume {
        let volatile_cache = matches!(disk, Disk::File(_));
        Volume {
            disk,
            base: 0,
            bytes,
            volatile_cache,
            device: 0,
        }
    }

    /// The volume as one of the server's device `device`; 0 if never said.
    pub fn on_device(mut self, device: u16) -> Volume {
        self.device = device;
        self
    }

    #[inline]
    pub fn device(&self) -> u16 {
        self.device
    }

    /// The `bytes` from `offset` as a volume of their own; `None` if they do
    /// not lie inside this one.
    pub fn partition(&self, offset: u64, bytes: u64) -> Option<Volume> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then(|| Volume {
            base: self.base + offset,
            bytes,
            ..self.clone()
        })
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a host has reason to send FLUSH (Identify Controller, VWC).
    pub fn volatile_cache(&self) -> bool {
        self.volatile_cache
    }

    /// Where `len` bytes from `offset` stand on the disk; `None` if they do not
    /// lie inside the volume.
    #[inline]
    pub fn map(&self, offset: u64, len: u64) -> Option<u64> {
        let end = offset.checked_add(len)?;
        (end <= self.bytes).then_some(self.base + offset)
    }

    /// I/O is over when it is submitted: no buffer has to wait for it.
    #[inline]
    pub fn immediate(&self) -> bool {
        matches!(self.disk, Disk::Ram(_) | Disk::Null)
    }
}

/// A request slot of the core that submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u32);

/// What to do with a range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    Read,
    /// With `fua` the data is on stable storage before the write is done.
    Write {
        fua: bool,
    },
    /// All that was written before is on stable storage; offset and length are
    /// not looked at.
    Flush,
    /// With `deallocate` the blocks may be given back, as long as they read as
    /// zeroes.
    WriteZeroes {
        deallocate: bool,
        fua: bool,
    },
    /// The data is not needed any more; what the blocks read as is not defined.
    Discard,
}

/// Bytes in a core's region, or the place of an in-capsule payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub ptr: NonNull<u8>,
    /// Bytes.
    pub len: u32,
}

impl Buffer {
    /// For what moves no data.
    pub const NONE: Buffer = Buffer {
        ptr: NonNull::dangling(),
        len: 0,
    };
}

/// One I/O. The buffer of a read or write has at least `len` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    pub ticket: Ticket,
    pub op: IoOp,
    /// Bytes from the start of the volume.
    pub offset: u64,
    /// Bytes; reads and writes move at most 1 MiB, the others any number.
    pub len: u64,
    pub buffer: Buffer,
}

/// What became of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Over already; its ticket will not come out of `poll`.
    Done(Status),
    /// Its ticket comes out of `poll`.
    Pending,
    /// No room; try again after the next `poll`.
    Full,
}

/// What one core needs to run I/O.
pub struct Backends {
    region: Region,
    entries: u32,
    ring: Option<uring::Ring>,
    model: model::Completions,
}

/// The core's buffers, for a ring that is set up when the first file is used.
type Region = &'static [u8];

impl Backends {
    /// `region` is all memory that buffers come from; it is registered with the
    /// ring. `entries` I/Os may be in flight at once.
    ///
    /// The region is only registered, never read here: what stands in it
    /// belongs to whoever holds the buffer.
    pub fn new(region: &'static [u8], entries: u32) -> Backends {
        Backends {
            region,
            entries,
            ring: None,
            model: model::Completions::new(),
        }
    }

    /// Where `len` bytes from `offset` can be read without I/O.
    #[inline]
    pub fn read_in_place(volume: &Volume, offset: u64, len: u32) -> Option<NonNull<u8>> {
        let at = volume.map(offset, len.into())?;
        match &volume.disk {
            Disk::Ram(disk) => disk.place(at, len.into()),
            Disk::Null => null::place(len),
            Disk::File(_) | Disk::Model(_) => None,
        }
    }

    /// Start an I/O.
    ///
    /// # Safety
    /// Until the I/O is over the buffer must stay valid for its length, and
    /// nobody else may touch it; see the hazards of this module.
    #[allow(unsafe_code)]
    pub unsafe fn submit(&mut self, now: Nanos, volume: &Volume, io: Io) -> Submit {
        let (offset, len) = match io.op {
            IoOp::Flush => (0, 0),
            _ => (io.offset, io.len),
        };
        let Some(offset) = volume.map(offset, len) else {
            return Submit::Done(Status::LBA_RANGE.with_do_not_retry());
        };
        let moves = matches!(io.op, IoOp::Read | IoOp::Write { .. });
        if moves && u64::from(io.buffer.len) < len {
            return Submit::Done(Status::INTERNAL);
        }
        let io = Io { offset, len, ..io };
        match &volume.disk {
            // SAFETY: the buffer is good for `len` bytes, as checked and promised.
            Disk::Ram(disk) => Submit::Done(unsafe { disk.run(&io) }),
            // SAFETY: as above.
            Disk::Null => Submit::Done(unsafe { null::run(&io) }),
            // SAFETY: as above, until the ticket comes out of `poll`.
            Disk::Model(disk) => unsafe { self.model.submit(now, disk, io) },
            Disk::File(disk) => match self.ring() {
                // SAFETY: as above, until the ticket comes out of `poll`.
                Ok(ring) => unsafe { ring.submit(now, disk, io) },
                Err(error) => {
                    log::error!("no io_uring for {disk:?}: {error}");
                    Submit::Done(Status::INTERNAL)
                }
            },
        }
    }

    fn ring(&mut self) -> io::Result<&mut uring::Ring> {
        let ring = match self.ring.take() {
            Some(ring) => ring,
            None => uring::Ring::new(self.entries, self.region)?,
        };
        Ok(self.ring.insert(ring))
    }

    /// Hand over to the kernel what was submitted.
    #[inline]
    pub fn kick(&mut self) -> io::Result<()> {
        match &mut self.ring {
            Some(ring) => ring.kick(),
            None => Ok(()),
        }
    }

    /// Append what is over by `now`.
    #[inline]
    pub fn poll(&mut self, now: Nanos, done: &mut Vec<(Ticket, Status)>) {
        if let Some(ring) = &mut self.ring {
            ring.poll(now, done);
        }
        self.model.poll(now, done);
    }

    /// Something is in flight.
    pub fn busy(&self) -> bool {
        self.model.busy() || self.ring.as_ref().is_some_and(uring::Ring::busy)
    }

    /// When to call `poll` again at the latest; what the ring's descriptor
    /// announces is not counted.
    pub fn next_event(&self) -> Option<Nanos> {
        let ring = self.ring.as_ref().and_then(uring::Ring::next_event);
        match (ring, self.model.next_event()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Becomes readable when something is over. It appears with the first I/O
    /// on a file.
    pub fn ring_fd(&self) -> Option<RawFd> {
        self.ring.as_ref().map(uring::Ring::fd)
    }
}
