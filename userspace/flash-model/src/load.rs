// SPDX-License-Identifier: GPL-2.0-only
//! Loads in virtual time: what fio is to a real device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::device::{Device, Op};
use crate::rng::Rng;
use crate::{Nanos, PAGE};

/// Where commands go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    Random,
    Sequential,
}

/// How commands come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrival {
    /// So many per second, whatever the device does: a Poisson process.
    Rate(f64),
    /// So many outstanding at all times.
    Depth(u32),
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Share of reads, 0 to 1.
    pub reads: f64,
    pub bytes: u32,
    pub pattern: Pattern,
    pub arrival: Arrival,
    /// Time before anything is counted, and time that is.
    pub warm_up: Nanos,
    pub measure: Nanos,
    pub seed: u64,
}

/// Latencies of one kind of command, sorted, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Nanos>);

impl Latencies {
    /// A quantile, 0 to 1; `None` when there is nothing.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let last = self.0.len().checked_sub(1)?;
        let at = (q.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.0.get(at).copied()
    }

    /// The mean; `None` when there is nothing.
    pub fn mean(&self) -> Option<f64> {
        let sum: u64 = self.0.iter().sum();
        (!self.0.is_empty()).then(|| sum as f64 / self.0.len() as f64)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// What was seen while it was counted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Commands completed per second.
    pub iops: f64,
    pub bytes_per_second: f64,
    pub reads: Latencies,
    pub writes: Latencies,
    /// When the load ended: the earliest time for the next one.
    pub end: Nanos,
}

/// Where the next command goes and what it is.
struct Generator {
    rng: Rng,
    load: Load,
    places: u64,
    next: u64,
}

impl Generator {
    fn new(device: &Device, start: Nanos, load: &Load) -> Generator {
        let bytes = u64::from(load.bytes.max(1));
        // The same addresses again and again would be a hot set, which costs
        // garbage collection less: each run has its own.
        let mut rng = Rng::new(load.seed ^ start.rotate_left(32));
        let places = (device.params().capacity / bytes).max(1);
        let next = rng.below(places);
        Generator {
            rng,
            load: *load,
            places,
            next,
        }
    }

    fn command(&mut self) -> (Op, u64) {
        let op = match self.rng.unit() < self.load.reads {
            true => Op::Read,
            false => Op::Write,
        };
        let place = match self.load.pattern {
            Pattern::Random => self.rng.below(self.places),
            Pattern::Sequential => {
                self.next = (self.next + 1) % self.places;
                self.next
            }
        };
        // Less than a page is still aligned to itself, as a disk's host would.
        (op, place * u64::from(self.load.bytes.max(1)))
    }
}

/// Run a load on a device from `start` on.
pub fn run(device: &mut Device, start: Nanos, load: &Load) -> Outcome {
    let mut tally = Tally {
        from: start + load.warm_up,
        to: start + load.warm_up + load.measure,
        ..Tally::default()
    };
    let mut generator = Generator::new(device, start, load);
    match load.arrival {
        Arrival::Rate(rate) => open(device, start, rate, &mut generator, &mut tally),
        Arrival::Depth(depth) => closed(device, start, depth, &mut generator, &mut tally),
    }
    tally.outcome(load)
}

fn open(
    device: &mut Device,
    start: Nanos,
    rate: f64,
    generator: &mut Generator,
    tally: &mut Tally,
) {
    // Below one per hour nothing would ever come.
    let gap = 1e9 / rate.max(1.0 / 3600.0);
    let mut now = start as f64;
    loop {
        now += generator.rng.exponential() * gap;
        let at = now as Nanos;
        if at >= tally.to {
            return;
        }
        let (op, offset) = generator.command();
        let done = device.submit(at, op, offset, generator.load.bytes);
        tally.add(op, at, done);
    }
}

fn closed(
    device: &mut Device,
    start: Nanos,
    depth: u32,
    generator: &mut Generator,
    tally: &mut Tally,
) {
    let mut free_at: BinaryHeap<Reverse<Nanos>> = (0..depth).map(|_| Reverse(start)).collect();
    while let Some(Reverse(at)) = free_at.pop() {
        if at >= tally.to {
            return;
        }
        let (op, offset) = generator.command();
        let done = device.submit(at, op, offset, generator.load.bytes);
        tally.add(op, at, done);
        free_at.push(Reverse(done));
    }
}

#[derive(Default)]
struct Tally {
    from: Nanos,
    to: Nanos,
    completed: u64,
    reads: Vec<Nanos>,
    writes: Vec<Nanos>,
}

impl Tally {
    /// Latencies count by arrival, so that those that never return in time do
    /// too; rates count by completion, since the device's are meant.
    fn add(&mut self, op: Op, at: Nanos, done: Nanos) {
        if (self.from..self.to).contains(&done) {
            self.completed += 1;
        }
        if at >= self.from {
            let latencies = match op {
                Op::Read => &mut self.reads,
                _ => &mut self.writes,
            };
            latencies.push(done - at);
        }
    }

    fn outcome(mut self, load: &Load) -> Outcome {
        self.reads.sort_unstable();
        self.writes.sort_unstable();
        let iops = self.completed as f64 * 1e9 / (load.measure.max(1)) as f64;
        Outcome {
            iops,
            bytes_per_second: iops * f64::from(load.bytes),
            reads: Latencies(self.reads),
            writes: Latencies(self.writes),
            end: self.to,
        }
    }
}

impl Load {
    /// 4 KiB at random, a second after 200 ms.
    pub fn random(reads: f64, arrival: Arrival) -> Load {
        Load {
            reads,
            bytes: PAGE,
            pattern: Pattern::Random,
            arrival,
            warm_up: 200_000_000,
            measure: 1_000_000_000,
            seed: 1,
        }
    }
}
