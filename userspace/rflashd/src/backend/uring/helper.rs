// SPDX-License-Identifier: GPL-2.0-only
//! A thread for what a ring cannot do: discard on a block device, and zeroes
//! where the file system has no command for them. It is made when first needed
//! and ends with its ring.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::disk::{FileDisk, Kind};

const BLKDISCARD: libc::Ioctl = 0x1277;
const BLKZEROOUT: libc::Ioctl = 0x127f;
/// Zeroes written at a time; aligned for any device.
const ZEROES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Discard,
    Zero,
}

pub struct Job {
    /// Comes back with the result.
    pub flight: u32,
    pub disk: Arc<FileDisk>,
    pub work: Work,
    pub offset: u64,
    pub len: u64,
}

/// What is over: the flight and 0 or a negative errno.
type Results = Arc<Mutex<Vec<(u32, i32)>>>;

pub struct Helper {
    jobs: Sender<Job>,
    results: Results,
    /// Becomes readable when something is over.
    event: Arc<OwnedFd>,
}

impl Helper {
    pub fn start() -> io::Result<Helper> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (jobs, receiver) = channel();
        let results = Results::default();
        let (to, bell) = (Arc::clone(&results), Arc::clone(&event));
        std::thread::Builder::new()
            .name("rflashd-discard".into())
            .spawn(move || work(&receiver, &to, &bell))?;
        Ok(Helper {
            jobs,
            results,
            event,
        })
    }

    pub fn submit(&self, job: Job) -> bool {
        self.jobs.send(job).is_ok()
    }

    pub fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub fn take(&self) -> Vec<(u32, i32)> {
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn work(jobs: &Receiver<Job>, results: &Results, bell: &OwnedFd) {
    while let Ok(job) = jobs.recv() {
        let result = match run(&job) {
            Ok(()) => 0,
            Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
        };
        results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((job.flight, result));
        // The counter cannot overflow; an event that is closed has no reader.
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

fn run(job: &Job) -> io::Result<()> {
    match (job.work, job.disk.kind()) {
        (Work::Discard, Kind::BlockDevice) => range_ioctl(job, BLKDISCARD),
        // A hint to a file system that was punched already, or can't be.
        (Work::Discard, Kind::File) => Ok(()),
        (Work::Zero, Kind::BlockDevice) => range_ioctl(job, BLKZEROOUT),
        (Work::Zero, Kind::File) => write_zeroes(job),
    }
}

fn range_ioctl(job: &Job, request: libc::Ioctl) -> io::Result<()> {
    let range = [job.offset, job.len];
    // SAFETY: both requests read two u64 from the pointer and keep nothing.
    match unsafe { libc::ioctl(job.disk.fd(), request, range.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A page of zeroes at a page boundary, as direct I/O wants it.
#[repr(align(4096))]
#[derive(Clone, Copy)]
struct Page(#[allow(dead_code)] [u8; 4096]);

fn write_zeroes(job: &Job) -> io::Result<()> {
    let zeroes = vec![Page([0; 4096]); ZEROES / 4096];
    let mut at = job.offset;
    let end = job.offset + job.len;
    while at < end {
        let len = (end - at).min(ZEROES as u64) as usize;
        let offset = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: `zeroes` has at least `len` initialised bytes.
        let n = unsafe { libc::pwrite(job.disk.fd(), zeroes.as_ptr().cast(), len, offset) };
        match n {
            0 => return Err(io::Error::from_raw_os_error(libc::EIO)),
            n if n > 0 => at += n as u64,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
