// SPDX-License-Identifier: GPL-2.0-only
//! The numbers themselves, each with one writer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::Histogram;

/// A number that only grows. It wraps after 2^64.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Only the counter's one writer calls this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Only the gauge's one writer calls this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a request was, as far as is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// Flush, discard, write zeroes and what else there is.
    Other,
}

/// How long a request spent where, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// From arrival until its tokens were granted.
    pub wait: u64,
    /// From then until the backend had done it.
    pub device: u64,
    /// From arrival until the reply was handed to the socket.
    pub service: u64,
}

/// What one core counts of one tenant.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct TenantStats {
    pub reads: Counter,
    pub writes: Counter,
    pub others: Counter,
    /// Bytes of reads that succeeded.
    pub read_bytes: Counter,
    /// Bytes of writes that succeeded.
    pub write_bytes: Counter,
    /// Requests that ended with an error status.
    pub errors: Counter,
    /// Arrival to tokens granted, reads and writes.
    pub wait: Histogram,
    /// Tokens granted to backend done, reads: what drifts with the device.
    pub device: Histogram,
    /// The same of writes.
    pub write_device: Histogram,
    /// Arrival to reply handed to the socket, reads: what an SLO is about.
    pub service: Histogram,
    /// The same of writes.
    pub write_service: Histogram,
}

impl TenantStats {
    /// Count a request that was answered. Only the core's thread calls this.
    #[inline]
    pub fn done(&self, kind: Kind, bytes: u64, ok: bool, stages: Stages) {
        match ok {
            true => self.done_n(kind, 1, bytes, stages),
            false => self.errors.add(1),
        }
    }

    /// Count `n` requests of a batch that succeeded, `bytes` altogether, with
    /// the same times. Only the core's thread calls this.
    #[inline]
    pub fn done_n(&self, kind: Kind, n: u64, bytes: u64, stages: Stages) {
        match kind {
            Kind::Read => {
                self.reads.add(n);
                self.read_bytes.add(bytes);
                self.device.record_n(stages.device, n);
                self.service.record_n(stages.service, n);
            }
            Kind::Write => {
                self.writes.add(n);
                self.write_bytes.add(bytes);
                self.write_device.record_n(stages.device, n);
                self.write_service.record_n(stages.service, n);
            }
            Kind::Other => return self.others.add(n),
        }
        self.wait.record_n(stages.wait, n);
    }
}

/// What a core counts of itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CoreStats {
    /// Nanoseconds in rounds that found something to do.
    pub busy_ns: Counter,
    /// Nanoseconds in rounds that found nothing: polling.
    pub poll_ns: Counter,
    /// Nanoseconds asleep.
    pub sleep_ns: Counter,
    /// Rounds of the loop.
    pub rounds: Counter,
    /// Times the core went to sleep.
    pub sleeps: Counter,
    /// Commands received.
    pub commands: Counter,
    /// Calls that received something, and calls that sent something.
    pub receives: Counter,
    pub sends: Counter,
    pub received_bytes: Counter,
    pub sent_bytes: Counter,
    /// Connections now, and how many there were.
    pub connections: Gauge,
    pub opened: Counter,
    /// Connections closed because the peer broke the protocol.
    pub protocol_errors: Counter,
    /// Connections closed because a time was over: handshake, Connect,
    /// keep-alive, a backlog that doesn't drain.
    pub timeouts: Counter,
    /// Bytes of request buffers in use.
    pub buffer_bytes: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted() {
        let stats = TenantStats::default();
        let stages = Stages {
            wait: 100,
            device: 200,
            service: 400,
        };
        stats.done(Kind::Read, 4096, true, stages);
        stats.done(Kind::Write, 8192, true, stages);
        stats.done(Kind::Other, 0, true, stages);
        stats.done(Kind::Read, 4096, false, stages);
        assert_eq!((stats.reads.get(), stats.read_bytes.get()), (1, 4096));
        assert_eq!((stats.writes.get(), stats.write_bytes.get()), (1, 8192));
        assert_eq!((stats.others.get(), stats.errors.get()), (1, 1));
        assert_eq!(stats.wait.snapshot().count(), 2);
        assert_eq!(stats.device.snapshot().count(), 1);
        assert_eq!(stats.write_device.snapshot().count(), 1);
        assert_eq!(stats.service.snapshot().sum_ns, 400);
        assert_eq!(stats.write_service.snapshot().sum_ns, 400);
        stats.done_n(Kind::Read, 7, 7 * 512, stages);
        assert_eq!(
            (stats.reads.get(), stats.read_bytes.get()),
            (8, 4096 + 3584)
        );
        assert_eq!(stats.service.snapshot().sum_ns, 8 * 400);
    }
}
