// SPDX-License-Identifier: GPL-2.0-only
//! A real device: threads that read and write around the page cache.
//!
//! One thread for each command that may be outstanding, since then nothing but
//! the system's own calls lies between the clock and the device. On a machine
//! with few CPUs the threads' switches bound the rate; what bounds it is then
//! calibrated as if it were the device, and is so for a server on that machine.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flash_model::Rng;

use super::target::{Arrival, Job, Seen, Target};
use crate::error::Error;

/// Alignment that every device accepts around the page cache.
const ALIGN: usize = 4096;
/// Threads that serve arrivals: more outstanding than any device gains from.
const THREADS: u32 = 256;
const FILL_BYTES: u32 = 128 << 10;
/// Smaller, and the device's buffer is most of it.
const BYTES_MIN: u64 = 64 << 20;

pub struct Block {
    path: PathBuf,
    file: File,
    bytes: u64,
    identity: String,
    /// Seconds of a window in which the rate of random writes is compared.
    window: f64,
}

impl Block {
    /// Open a device or file that nobody else uses.
    ///
    /// # Errors
    /// One sentence: it cannot be opened, is mounted, or is too small.
    pub fn open(path: &Path) -> Result<Block, Error> {
        let at = path.display();
        let wrong = |e: std::io::Error| Error::new(format!("{at}: {e}"));
        let meta = std::fs::metadata(path).map_err(wrong)?;
        let is_device = meta.file_type().is_block_device();
        if !is_device && !meta.is_file() {
            let text = format!("{at} is neither a block device nor a file");
            return Err(Error::new(text));
        }
        // O_EXCL on a block device: not while it is mounted or part of another.
        let exclusive = if is_device { libc::O_EXCL } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | exclusive)
            .open(path)
            .map_err(|e| match e.raw_os_error() {
                Some(libc::EBUSY) => {
                    Error::new(format!("{at} is in use (mounted, or part of another device): it must be free to be calibrated"))
                }
                Some(libc::EINVAL) => {
                    Error::new(format!("{at}: its file system has no direct I/O, so its cache would be calibrated"))
                }
                _ => wrong(e),
            })?;
        let bytes = length(&file).map_err(wrong)?;
        if bytes < BYTES_MIN {
            let text = format!("{at} has {bytes} bytes: give one of at least {BYTES_MIN}");
            return Err(Error::new(text));
        }
        let identity = format!(
            "{at} of {bytes} bytes, device {}, inode {}",
            if is_device { meta.rdev() } else { meta.dev() },
            meta.ino()
        );
        Ok(Block {
            path: path.to_path_buf(),
            file,
            bytes,
            identity,
            window: 30.0,
        })
    }

    /// Shorter windows when preconditioning: for tests.
    pub fn with_window(self, window: f64) -> Block {
        Block { window, ..self }
    }

    fn fill(&self) -> Result<(), Error> {
        let next = AtomicU64::new(0);
        let pieces = self.bytes / u64::from(FILL_BYTES);
        let work = |seed| -> std::io::Result<()> {
            let mut buffer = Buffer::random(FILL_BYTES, seed);
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces {
                    return Ok(());
                }
                let offset = piece * u64::from(FILL_BYTES);
                self.file.write_all_at(buffer.bytes(), offset)?;
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|seed| scope.spawn(move_ref(&work, seed)))
                .collect();
            threads.into_iter().try_for_each(|t| match t.join() {
                Ok(result) => result.map_err(|e| self.wrong(&e)),
                Err(_) => Err(Error::new("a thread of the calibration panicked")),
            })
        })
    }

    fn wrong(&self, error: &std::io::Error) -> Error {
        Error::new(format!("{}: {error}", self.path.display()))
    }
}

/// A closure that calls another with an argument, for threads.
fn move_ref<'a, T, R>(work: &'a (dyn Fn(T) -> R + Sync), argument: T) -> impl FnOnce() -> R + 'a
where
    T: 'a,
{
    move || work(argument)
}

/// Block devices have no length in their metadata; their end has.
fn length(file: &File) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// Aligned bytes.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Bytes that do not compress.
    fn random(len: u32, seed: u64) -> Buffer {
        let len = len as usize;
        let mut memory = vec![0u8; len + ALIGN];
        let mut rng = Rng::new(seed ^ 0x5eed);
        for chunk in memory.chunks_mut(8) {
            let bytes = rng.next_u64().to_le_bytes();
            chunk
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, byte)| *to = byte);
        }
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Buffer { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let end = self.start + self.len;
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }
}

/// Hands out commands in the order of their arrival.
struct Schedule {
    rng: Rng,
    next: Instant,
    places: u64,
    job: Job,
}

struct Command {
    due: Option<Instant>,
    read: bool,
    offset: u64,
}

impl Schedule {
    fn command(&mut self) -> Command {
        let due = match self.job.arrival {
            Arrival::Depth(_) => None,
            Arrival::Rate(rate) => {
                let gap = self.rng.exponential() / rate.max(1e-3);
                self.next += Duration::from_secs_f64(gap.min(3600.0));
                Some(self.next)
            }
        };
        Command {
            due,
            read: self.rng.below(100) < u64::from(self.job.reads),
            offset: self.rng.below(self.places) * u64::from(self.job.bytes),
        }
    }
}

/// What all threads of a job share.
struct Run<'a> {
    file: &'a File,
    schedule: Mutex<Schedule>,
    failed: AtomicBool,
    from: Instant,
    to: Instant,
}

#[derive(Default)]
struct Tally {
    completed: u64,
    reads_us: Vec<f32>,
}

impl Run<'_> {
    fn work(&self, job: &Job, seed: u64) -> std::io::Result<Tally> {
        // Without it a sleep is 50 us too long. If it is refused it is.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut tally = Tally::default();
        let mut buffer = Buffer::random(job.bytes, seed);
        while !self.failed.load(Ordering::Relaxed) {
            let command = match self.schedule.lock() {
                Ok(mut schedule) => schedule.command(),
                Err(_) => break,
            };
            let now = Instant::now();
            let start = command.due.unwrap_or(now);
            if start >= self.to || now >= self.to {
                break;
            }
            thread::sleep(start.saturating_duration_since(now));
            let bytes = buffer.bytes();
            let result = match command.read {
                true => self.file.read_exact_at(bytes, command.offset),
                false => self.file.write_all_at(bytes, command.offset),
            };
            if let Err(error) = result {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            self.count(&mut tally, command.read, start);
        }
        Ok(tally)
    }

    fn count(&self, tally: &mut Tally, read: bool, start: Instant) {
        let end = Instant::now();
        if (self.from..self.to).contains(&end) {
            tally.completed += 1;
        }
        if read && start >= self.from {
            let us = end.saturating_duration_since(start).as_secs_f64() * 1e6;
            tally.reads_us.push(us as f32);
        }
    }
}

impl Target for Block {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn name(&self) -> String {
        let name = self.path.file_name().map(|n| n.to_string_lossy());
        name.map_or_else(|| "device".to_string(), |n| n.into_owned())
    }

    fn precondition(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        say("filling the device in order");
        self.fill()?;
        let (mut written, mut rates, mut seed) = (0.0, Vec::new(), 1_000_000);
        // Twice its size at most: by then every block has been collected.
        while written < 2.0 * self.bytes as f64 {
            seed += 1;
            let job = Job {
                reads: 0,
                bytes: 4096,
                arrival: Arrival::Depth(64),
                warm_up: 0.0,
                measure: self.window,
                seed,
            };
            let rate = self.run(&job)?.iops;
            written += rate * 4096.0 * self.window;
            rates.push(rate);
            say(&format!("writing at random: {rate:.0} a second"));
            if written >= self.bytes as f64 && is_steady(&rates) {
                break;
            }
        }
        Ok(())
    }

    fn run(&mut self, job: &Job) -> Result<Seen, Error> {
        // Writes of the job before may still be on their way to flash.
        thread::sleep(Duration::from_secs_f64(job.warm_up.min(1.0)));
        let start = Instant::now();
        let from = start + Duration::from_secs_f64(job.warm_up);
        let run = Run {
            file: &self.file,
            schedule: Mutex::new(Schedule {
                rng: Rng::new(job.seed),
                next: start,
                places: (self.bytes / u64::from(job.bytes)).max(1),
                job: *job,
            }),
            failed: AtomicBool::new(false),
            from,
            to: from + Duration::from_secs_f64(job.measure),
        };
        let threads = match job.arrival {
            Arrival::Depth(depth) => depth,
            Arrival::Rate(_) => THREADS,
        };
        let work = |seed| run.work(job, seed);
        let tallies: Result<Vec<Tally>, Error> = thread::scope(|scope| {
            let spawned: Vec<_> = (0..u64::from(threads))
                .map(|seed| scope.spawn(move_ref(&work, seed)))
                .collect();
            let joined = spawned.into_iter().map(|t| match t.join() {
                Ok(tally) => tally.map_err(|e| self.wrong(&e)),
                Err(_) => Err(Error::new("a thread of the calibration panicked")),
            });
            joined.collect()
        });
        Ok(seen(tallies?, job.measure))
    }
}

fn seen(tallies: Vec<Tally>, seconds: f64) -> Seen {
    let completed: u64 = tallies.iter().map(|t| t.completed).sum();
    let mut reads: Vec<f32> = tallies.into_iter().flat_map(|t| t.reads_us).collect();
    reads.sort_unstable_by(f32::total_cmp);
    let quantile = |q: f64| {
        let at = (q * reads.len().saturating_sub(1) as f64).round() as usize;
        reads.get(at).copied().map_or(0.0, f64::from)
    };
    Seen {
        iops: completed as f64 / seconds.max(1e-9),
        p50_us: quantile(0.5),
        p95_us: quantile(0.95),
        p99_us: quantile(0.99),
        reads: reads.len() as u64,
    }
}

/// The last five windows lie within 10 % of their mean.
fn is_steady(rates: &[f64]) -> bool {
    let Some(last) = rates.len().checked_sub(5).and_then(|n| rates.get(n..)) else {
        return false;
    };
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    last.iter().all(|rate| (rate / mean - 1.0).abs() <= 0.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_means_five_alike() {
        assert!(!is_steady(&[100.0; 4]));
        assert!(is_steady(&[900.0, 100.0, 105.0, 95.0, 101.0, 100.0]));
        assert!(!is_steady(&[100.0, 100.0, 100.0, 100.0, 130.0]));
    }

    #[test]
    fn a_buffer_is_aligned() {
        for len in [4096, 65536] {
            let mut buffer = Buffer::random(len, 1);
            let bytes = buffer.bytes();
            assert_eq!(bytes.len(), len as usize);
            assert_eq!(bytes.as_ptr() as usize % ALIGN, 0);
        }
    }
}
