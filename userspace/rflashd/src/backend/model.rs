// SPDX-License-Identifier: GPL-2.0-only
//! A modelled flash device, in real time: data in memory, times of flash.
//!
//! The data moves when an I/O is submitted; when it is over is what the model
//! says. Between the two only time passes, so that a core needs no more than a
//! heap of times.
//!
//! Memory is taken for what was written, in pieces of 4 KiB, and given back when
//! it is discarded: a device may be much larger than memory as long as little
//! of it is written.
//!
//! Hazard: as for [`RamDisk`], several cores read and write the data at once and
//! without a lock. The model itself is behind a lock that is held for well under
//! a microsecond for 4 KiB.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flash_model::{Device, Op, Params, Precondition, Stats};
use nvme_wire::status::Status;

use super::{Io, IoOp, Nanos, RamDisk, Submit, Ticket};

/// Reads of so many bytes that were never written touch no memory: they would
/// fill page tables.
const GRANULE: u64 = 64 << 10;

/// A trim longer than this is several for the model.
const TRIM_MAX: u64 = 1 << 30;

/// A modelled device, shared by all cores.
pub struct ModelDisk {
    device: Mutex<Device>,
    data: Arc<RamDisk>,
    /// A bit for each granule that was ever written.
    written: Vec<AtomicU64>,
    bytes: u64,
    volatile_cache: bool,
}

impl fmt::Debug for ModelDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flash model of {} bytes", self.bytes)
    }
}

impl ModelDisk {
    /// A device that has been in use: filled, and written at random until
    /// garbage collection is steady. It reads as zeroes all the same.
    ///
    /// # Errors
    /// Parameters that make no sense, or no address space for its capacity.
    pub fn new(params: Params, seed: u64) -> io::Result<Arc<ModelDisk>> {
        let bytes = params.capacity;
        let volatile_cache = !params.power_loss_protection;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let mut device = Device::new(params, seed).map_err(invalid)?;
        device.precondition(Precondition::Random);
        let data = RamDisk::new(bytes)?;
        if let Some(start) = data.place(0, bytes) {
            // Random writes would take 2 MiB each. If the advice is refused they
            // do, which costs memory only.
            // SAFETY: all of the disk's own mapping; advice changes no data.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes as usize, libc::MADV_NOHUGEPAGE) };
        }
        let words = bytes.div_ceil(GRANULE).div_ceil(64);
        Ok(Arc::new(ModelDisk {
            device: Mutex::new(device),
            data,
            written: (0..words).map(|_| AtomicU64::new(0)).collect(),
            bytes,
            volatile_cache,
        }))
    }

    /// A device of a preset, see [`Params::preset`]; `bytes` instead of its
    /// capacity, in whole 4 KiB.
    ///
    /// # Errors
    /// An unknown preset, else as [`ModelDisk::new`].
    pub fn preset(name: &str, bytes: Option<u64>, seed: u64) -> io::Result<Arc<ModelDisk>> {
        let Some(mut params) = Params::preset(name) else {
            let names = Params::PRESETS.join(", ");
            let why = format!("{name:?} is no model of a device: there are {names}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        params.capacity = bytes.unwrap_or(params.capacity);
        ModelDisk::new(params, seed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a power cut would lose what was not flushed.
    pub fn volatile_cache(&self) -> bool {
        self.volatile_cache
    }

    /// What the device did.
    pub fn stats(&self) -> Stats {
        self.device().stats()
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        // A panic in the model leaves numbers at worst, which are all valid.
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an I/O that is submitted at `now` is over.
    fn time(&self, now: Nanos, io: &Io) -> Nanos {
        let len = u32::try_from(io.len).unwrap_or(u32::MAX);
        match io.op {
            IoOp::Read => self.device().submit(now, Op::Read, io.offset, len),
            IoOp::Write { fua } => {
                let mut device = self.device();
                let done = device.submit(now, Op::Write, io.offset, len);
                if fua && self.volatile_cache {
                    return done.max(device.submit(now, Op::Flush, 0, 0));
                }
                done
            }
            IoOp::Flush => self.device().submit(now, Op::Flush, 0, 0),
            IoOp::WriteZeroes { .. } | IoOp::Discard => self.trim(now, io),
        }
    }

    /// Zeroes take no flash either: the table says that nothing is there.
    fn trim(&self, now: Nanos, io: &Io) -> Nanos {
        let mut device = self.device();
        let (mut offset, mut done) = (io.offset, now);
        let end = io.offset + io.len;
        while offset < end {
            let piece = (end - offset).min(TRIM_MAX);
            done = done.max(device.submit(now, Op::Trim, offset, piece as u32));
            offset += piece;
        }
        done
    }

    /// The words and masks of the granules that an I/O touches.
    fn granules(&self, io: &Io) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let first = io.offset / GRANULE;
        let end = (io.offset + io.len).div_ceil(GRANULE);
        (first..end).filter_map(|g| {
            let word = self.written.get((g / 64) as usize)?;
            Some((word, 1 << (g % 64)))
        })
    }

    /// Move the data of an I/O.
    ///
    /// # Safety
    /// The buffer of a read or write must be valid for `io.len` bytes and must
    /// not lie in the disk.
    unsafe fn transfer(&self, io: &Io) -> Status {
        match io.op {
            IoOp::Flush => return Status::SUCCESS,
            IoOp::Read => {
                let touched = |(word, bit): (&AtomicU64, u64)| word.load(Ordering::Relaxed) & bit;
                if self.granules(io).all(|granule| touched(granule) == 0) {
                    // SAFETY: good for the length, as promised.
                    unsafe { io.buffer.ptr.write_bytes(0, io.len as usize) };
                    return Status::SUCCESS;
                }
            }
            IoOp::Write { .. } => {
                for (word, bit) in self.granules(io) {
                    // Most writes are not the first: a load costs less.
                    if word.load(Ordering::Relaxed) & bit == 0 {
                        word.fetch_or(bit, Ordering::Relaxed);
                    }
                }
            }
            IoOp::WriteZeroes { .. } | IoOp::Discard => {}
        }
        // SAFETY: as promised.
        unsafe { self.data.run(io) }
    }
}

/// One core's I/Os on modelled devices that are not over yet.
#[derive(Debug, Default)]
pub struct Completions {
    /// By time, then in the order of submission.
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    submitted: u64,
}

impl Completions {
    pub fn new() -> Completions {
        Completions::default()
    }

    /// Start an I/O whose offset counts from the start of the device.
    ///
    /// # Safety
    /// The buffer must stay valid, and nobody else may touch it, until the
    /// ticket comes out of `poll`.
    pub unsafe fn submit(&mut self, now: Nanos, disk: &Arc<ModelDisk>, io: Io) -> Submit {
        let end = io.offset.checked_add(io.len);
        if end.is_none_or(|end| end > disk.bytes) {
            return Submit::Done(Status::LBA_RANGE.with_do_not_retry());
        }
        // SAFETY: as promised.
        let status = unsafe { disk.transfer(&io) };
        if !status.is_success() {
            return Submit::Done(status);
        }
        let done = disk.time(now, &io);
        self.submitted += 1;
        self.heap.push(Reverse((done, self.submitted, io.ticket.0)));
        Submit::Pending
    }

    /// Append what is over by `now`.
    #[inline]
    pub fn poll(&mut self, now: Nanos, done: &mut Vec<(Ticket, Status)>) {
        while let Some(&Reverse((time, _, ticket))) = self.heap.peek() {
            if time > now {
                return;
            }
            self.heap.pop();
            done.push((Ticket(ticket), Status::SUCCESS));
        }
    }

    pub fn busy(&self) -> bool {
        !self.heap.is_empty()
    }

    /// When the next one is over.
    #[inline]
    pub fn next_event(&self) -> Option<Nanos> {
        self.heap.peek().map(|&Reverse((time, _, _))| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backends, Buffer, Volume};
    use std::ptr::NonNull;

    fn io(ticket: u32, op: IoOp, offset: u64, bytes: &mut [u8]) -> Io {
        Io {
            ticket: Ticket(ticket),
            op,
            offset,
            len: bytes.len() as u64,
            buffer: Buffer {
                ptr: NonNull::new(bytes.as_mut_ptr()).unwrap(),
                len: bytes.len() as u32,
            },
        }
    }

    fn submit(backends: &mut Backends, now: Nanos, volume: &Volume, io: Io) -> Submit {
        // SAFETY: the tests' buffers outlive the call, and the model touches
        // them only during it.
        unsafe { backends.submit(now, volume, io) }
    }

    fn volume() -> Volume {
        Volume::model(ModelDisk::preset("p3600", None, 1).unwrap())
    }

    #[test]
    fn keeps_what_is_written_and_takes_its_time() {
        let volume = volume();
        let part = volume.partition(100 << 30, 1 << 30).unwrap();
        let mut backends = Backends::new(&[], 16);
        let mut data = [7; 8192];
        let write = IoOp::Write { fua: true };
        let at = 999 << 12;
        let sent = submit(&mut backends, 0, &part, io(1, write, at, &mut data));
        assert_eq!(sent, Submit::Pending);
        let mut back = [1; 16384];
        let sent = submit(
            &mut backends,
            0,
            &part,
            io(2, IoOp::Read, at - 4096, &mut back),
        );
        assert_eq!(sent, Submit::Pending);
        assert!(backends.busy());

        let mut done = Vec::new();
        // The write is acknowledged from the buffer, the read comes from flash.
        let first = backends.next_event().unwrap();
        assert!((5_000..30_000).contains(&first), "{first}");
        backends.poll(first - 1, &mut done);
        assert!(done.is_empty());
        backends.poll(first, &mut done);
        assert_eq!(done, [(Ticket(1), Status::SUCCESS)]);
        assert!(backends.next_event().unwrap() > 75_000);
        backends.poll(10_000_000, &mut done);
        assert_eq!(done.len(), 2);
        assert!(!backends.busy() && backends.next_event().is_none());
        assert_eq!(back[..4096], [0; 4096]);
        assert_eq!(back[4096..12288], [7; 8192]);
        assert_eq!(back[12288..], [0; 4096]);

        for op in [IoOp::Discard, IoOp::Read] {
            let sent = submit(&mut backends, 0, &part, io(3, op, at, &mut data));
            assert_eq!(sent, Submit::Pending);
        }
        assert_eq!(data, [0; 8192]);
    }

    #[test]
    fn a_large_device_takes_memory_for_what_is_written() {
        let disk = ModelDisk::preset("million", None, 1).unwrap();
        let volume = Volume::model(disk.clone());
        assert_eq!(volume.bytes(), disk.bytes());
        let resident = || -> u64 {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        let mut backends = Backends::new(&[], 1024);
        let mut data = [0; 4096];
        for i in 0..1000 {
            let offset = volume.bytes() / 1000 * i / 4096 * 4096;
            for op in [IoOp::Read, IoOp::Write { fua: false }] {
                let sent = submit(&mut backends, 0, &volume, io(0, op, offset, &mut data));
                assert_eq!(sent, Submit::Pending);
            }
        }
        // A thousand pages and their page tables; other tests have a share.
        let grown = resident().saturating_sub(before);
        assert!(grown < 512 << 20, "{grown} bytes");
        assert_eq!(disk.stats().host_writes, 1000);
    }

    #[test]
    fn outside_is_refused_and_nothing_is_left_pending() {
        let volume = volume();
        let mut backends = Backends::new(&[], 16);
        let mut data = [0; 4096];
        let last = volume.bytes() - 4095;
        for op in [IoOp::Read, IoOp::Write { fua: false }, IoOp::Discard] {
            let sent = submit(&mut backends, 0, &volume, io(0, op, last, &mut data));
            assert!(matches!(sent, Submit::Done(s) if s.code() == Status::LBA_RANGE.code()));
        }
        assert!(!backends.busy());
        let all = Io {
            ticket: Ticket(9),
            op: IoOp::WriteZeroes {
                deallocate: true,
                fua: false,
            },
            offset: 0,
            len: volume.bytes(),
            buffer: Buffer::NONE,
        };
        assert_eq!(submit(&mut backends, 0, &volume, all), Submit::Pending);
        let mut done = Vec::new();
        backends.poll(1_000_000_000, &mut done);
        assert_eq!(done, [(Ticket(9), Status::SUCCESS)]);
        let error = ModelDisk::preset("p3700", None, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"p3700\" is no model of a device: there are p3600, million"
        );
        let error = ModelDisk::preset("p3600", Some(5000), 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "capacity: 5000 is no multiple of 4096 bytes"
        );
    }

    #[test]
    fn rates_are_those_of_the_device_from_many_cores() {
        let disk = ModelDisk::preset("p3600", None, 1).unwrap();
        let volume = Volume::model(disk);
        let mut cores = [Backends::new(&[], 128), Backends::new(&[], 128)];
        let mut data = [0; 4096];
        let mut step = |core: &mut Backends, now, place: u64| {
            let offset = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (volume.bytes() / 4096) * 4096;
            submit(core, now, &volume, io(0, IoOp::Read, offset, &mut data));
        };
        let (mut now, mut over, mut done) = (0, 0, Vec::new());
        for place in 0..256 {
            step(&mut cores[place as usize % 2], 0, place);
        }
        while now < 50_000_000 {
            let next = cores.iter().filter_map(Backends::next_event).min();
            now = next.unwrap();
            for core in &mut cores {
                done.clear();
                core.poll(now, &mut done);
                for _ in &done {
                    over += 1;
                    step(core, now, 1000 + over);
                }
            }
        }
        // 250,000 a second.
        assert!((11_900..13_000).contains(&over), "{over} in 50 ms");
    }
}
