// SPDX-License-Identifier: GPL-2.0-only
//! What can be calibrated: something that runs a job and says how it went.

use crate::error::Error;

/// How commands come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// So many a second, as a Poisson process, whatever the device does.
    Rate(f64),
    /// So many outstanding at all times.
    Depth(u32),
}

/// 4 KiB-aligned random commands for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Share of reads, in percent.
    pub reads: u8,
    /// Bytes of a command.
    pub bytes: u32,
    pub arrival: Arrival,
    /// Seconds before anything is counted, and seconds that are.
    pub warm_up: f64,
    pub measure: f64,
    /// A different one for each job, so that no job repeats another's addresses.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Commands completed a second.
    pub iops: f64,
    /// Latencies of reads in microseconds, from when they should have been
    /// submitted; 0 without reads.
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    /// Reads counted.
    pub reads: u64,
}

/// A device that can be calibrated.
pub trait Target {
    /// What identifies the device: a calibration is resumed on the same only.
    fn identity(&self) -> String;

    /// A name for the model.
    fn name(&self) -> String;

    /// Fill the device and write at random until it is steady: destroys what is
    /// on it.
    ///
    /// # Errors
    /// I/O that failed.
    fn precondition(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), Error>;

    /// Run a job; the device rests before, so that the last one's writes are
    /// out of its buffer.
    ///
    /// # Errors
    /// I/O that failed.
    fn run(&mut self, job: &Job) -> Result<Seen, Error>;
}
