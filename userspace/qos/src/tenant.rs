// SPDX-License-Identifier: GPL-2.0-only
//! The words everything else is said in.

/// Nanoseconds of `CLOCK_MONOTONIC`, or of a simulation.
pub type Nanos = u64;

/// What requests cost. A read of one page of the reference device costs 100,
/// so that fractions of a read can be told apart, as in ReFlex.
pub type Tokens = i64;

/// Weight of a best-effort tenant that says nothing, as the kernel's `io.weight`.
pub const DEFAULT_WEIGHT: u32 = 100;
/// Greatest weight of a best-effort tenant, as the kernel's `io.weight`.
pub const MAX_WEIGHT: u32 = 10_000;

/// Kinds of requests that move data. For the others see
/// [`DeviceModel::flush`](crate::DeviceModel::flush) and
/// [`DeviceModel::discard`](crate::DeviceModel::discard).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
}

/// A tenant of one device: a dense index. It is used for another tenant only
/// when no thread holds requests or tokens of the old one, and then as late as
/// possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl TenantId {
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a latency-critical tenant is promised: this many requests a second, of
/// which so many are reads, whose latency at the device is below `p95_us` for 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slo {
    /// Microseconds, 1 to 1,000,000.
    pub p95_us: u32,
    /// Requests a second, at least 1.
    pub iops: u32,
    /// Reads among the requests, 0 to 100.
    pub read_pct: u8,
    /// Bytes of a request, at least 1.
    pub block: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    LatencyCritical(Slo),
    /// What the others leave, by weight: 1 to [`MAX_WEIGHT`].
    BestEffort {
        weight: u32,
    },
}
