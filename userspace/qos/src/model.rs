// SPDX-License-Identifier: GPL-2.0-only
//! What requests cost on a device, and how many tokens a second it bears.

use std::fmt;

use crate::tenant::{Op, Tokens};

mod presets;
mod text;

pub use text::TextError;

/// Greatest token rate a model may have: 40 million page reads a second. Sums
/// and products of rates and times stay within 64 bits below it.
pub const RATE_MAX: u64 = 4_000_000_000;
/// Greatest cost of a page.
pub const COST_MAX: Tokens = 1_000_000;
/// Greatest latency a point of the curve may have, and a tenant may ask for.
pub const P95_MAX_US: u32 = 1_000_000;
/// Most points of a curve.
const POINTS_MAX: usize = 128;
const PAGE_MIN: u32 = 512;
const PAGE_MAX: u32 = 1 << 20;
const DISCARD_UNIT: u64 = 1 << 20;

/// One row of the device's curve: at this p95 of read latency, so many tokens a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Microseconds.
    pub p95_us: u32,
    /// Tokens a second when reads and writes are mixed.
    pub mixed: u64,
    /// Tokens a second when nobody writes.
    pub read_only: u64,
}

/// The cost model of a device (ReFlex, section 3.2.1): `rflash calibrate` fits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    pub name: String,
    /// Bytes of a page; a request is charged by started pages, and by one at least.
    pub page: u32,
    /// Tokens of a page read.
    pub read: Tokens,
    /// Tokens of a page written.
    pub write: Tokens,
    /// Tokens of a page read while no tenant of the device may write.
    pub read_only_read: Tokens,
    /// Tokens of a flush.
    pub flush: Tokens,
    /// Tokens of a started MiB that is discarded or zeroed: work on the
    /// translation table, not on the data.
    pub discard: Tokens,
    /// Tokens a second when nobody was promised a latency.
    pub max: u64,
    /// By rising latency.
    pub curve: Vec<Point>,
}

/// What is wrong with a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// The key as in the text form.
    pub key: &'static str,
    /// Row of the curve, from 0, when the key belongs to one.
    pub point: Option<usize>,
    /// What it is, and what it may be.
    pub what: String,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.point {
            Some(point) => write!(f, "{} of point {}: {}", self.key, point + 1, self.what),
            None => write!(f, "{}: {}", self.key, self.what),
        }
    }
}

impl std::error::Error for ModelError {}

impl DeviceModel {
    /// Tokens of a request.
    #[inline]
    #[must_use]
    pub fn cost(&self, op: Op, bytes: u64) -> Tokens {
        let page = match op {
            Op::Read => self.read,
            Op::Write => self.write,
        };
        self.pages(bytes).saturating_mul(page)
    }

    /// Tokens of a read while nobody may write.
    #[must_use]
    pub fn read_only_cost(&self, bytes: u64) -> Tokens {
        self.pages(bytes).saturating_mul(self.read_only_read)
    }

    /// Tokens of a flush.
    #[must_use]
    pub fn flush(&self) -> Tokens {
        self.flush
    }

    /// Tokens of a discard or of write zeroes.
    #[must_use]
    pub fn discard(&self, bytes: u64) -> Tokens {
        to_tokens(bytes.max(1).div_ceil(DISCARD_UNIT)).saturating_mul(self.discard)
    }

    /// Started pages, which are a power of two.
    #[inline]
    fn pages(&self, bytes: u64) -> Tokens {
        let shift = self.page.trailing_zeros();
        to_tokens((bytes.max(1) - 1).checked_shr(shift).unwrap_or(0) + 1)
    }

    /// Tokens a second at which 95 % of reads are served within `p95_us`:
    /// between points by a straight line, behind the last as the last, before
    /// the first none.
    #[must_use]
    pub fn rate(&self, p95_us: u32, read_only: bool) -> Option<u64> {
        let column = |point: &Point| {
            if read_only {
                point.read_only
            } else {
                point.mixed
            }
        };
        let above = self.curve.iter().position(|point| point.p95_us >= p95_us);
        let Some(above) = above else {
            return self.curve.last().map(column);
        };
        let high = self.curve.get(above)?;
        if high.p95_us == p95_us {
            return Some(column(high));
        }
        let low = self.curve.get(above.checked_sub(1)?)?;
        let part = u64::from(p95_us - low.p95_us);
        let whole = u64::from(high.p95_us - low.p95_us);
        let rise = column(high).saturating_sub(column(low));
        Some(column(low) + rise * part / whole)
    }

    /// Least latency at which the device bears `rate` tokens a second.
    #[must_use]
    pub fn latency(&self, rate: u64, read_only: bool) -> Option<u32> {
        let column = |point: &Point| {
            if read_only {
                point.read_only
            } else {
                point.mixed
            }
        };
        let above = self.curve.iter().position(|point| column(point) >= rate)?;
        let high = self.curve.get(above)?;
        let Some(low) = above.checked_sub(1).and_then(|below| self.curve.get(below)) else {
            return Some(high.p95_us);
        };
        let rise = column(high).saturating_sub(column(low)).max(1);
        let whole = u64::from(high.p95_us - low.p95_us);
        let part = (rate.saturating_sub(column(low)) * whole).div_ceil(rise);
        Some(low.p95_us + u32::try_from(part.min(whole)).unwrap_or(0))
    }

    /// Is it a model that can be worked with?
    ///
    /// # Errors
    ///
    /// The first value that cannot be right.
    pub fn check(&self) -> Result<(), ModelError> {
        self.check_costs()?;
        if self.curve.is_empty() || self.curve.len() > POINTS_MAX {
            let what = format!("{} points; a curve has 1 to {POINTS_MAX}", self.curve.len());
            return Err(wrong("point", None, what));
        }
        self.check_curve()?;
        let last = self.curve.last().map_or(0, |point| point.mixed);
        if self.max < last || self.max > RATE_MAX {
            let what = format!(
                "{}; it is between the last point's rate {last} and {RATE_MAX}",
                self.max
            );
            return Err(wrong("max", None, what));
        }
        Ok(())
    }

    fn check_costs(&self) -> Result<(), ModelError> {
        if self.name.is_empty() {
            return Err(wrong("name", None, "is empty".to_owned()));
        }
        if !self.page.is_power_of_two() || !(PAGE_MIN..=PAGE_MAX).contains(&self.page) {
            let what = format!(
                "{}; it is a power of two from {PAGE_MIN} to {PAGE_MAX}",
                self.page
            );
            return Err(wrong("page", None, what));
        }
        let costs = [
            ("read", self.read, COST_MAX),
            ("write", self.write, COST_MAX),
            ("read-only-read", self.read_only_read, self.read),
            ("flush", self.flush, COST_MAX),
            ("discard", self.discard, COST_MAX),
        ];
        for (key, cost, most) in costs {
            if cost < 1 || cost > most {
                return Err(wrong(
                    key,
                    None,
                    format!("{cost}; it is between 1 and {most}"),
                ));
            }
        }
        Ok(())
    }

    fn check_curve(&self) -> Result<(), ModelError> {
        let mut before: Option<Point> = None;
        for (index, point) in self.curve.iter().enumerate() {
            let row = Some(index);
            if point.p95_us == 0 || point.p95_us > P95_MAX_US {
                let what = format!("{}; it is between 1 and {P95_MAX_US}", point.p95_us);
                return Err(wrong("p95-us", row, what));
            }
            if point.mixed == 0 {
                return Err(wrong("mixed", row, "0; it is at least 1".to_owned()));
            }
            if point.read_only < point.mixed || point.read_only > RATE_MAX {
                let what = format!(
                    "{}; it is between mixed, {}, and {RATE_MAX}",
                    point.read_only, point.mixed
                );
                return Err(wrong("read-only", row, what));
            }
            if let Some(before) = before {
                check_rise(before, *point, row)?;
            }
            before = Some(*point);
        }
        Ok(())
    }

    /// The kernel's form, as `io.cost.model` takes it behind the device's
    /// `MAJOR:MINOR` (Documentation/admin-guide/cgroup-v2.rst, "IO Interface
    /// Files"). Ours charges by pages whether sequential or not, so the rates of
    /// sequential and random requests are one.
    #[must_use]
    pub fn to_io_cost(&self) -> String {
        let pages = |cost: Tokens| (self.max / u64::try_from(cost).unwrap_or(1).max(1)).max(1);
        let (reads, writes) = (pages(self.read), pages(self.write));
        let page = u64::from(self.page);
        // The kernel's IOPS are of requests of 4 KiB.
        let iops = |pages: u64| (pages / 4096_u64.div_ceil(page)).max(1);
        format!(
            "ctrl=user model=linear rbps={} rseqiops={r} rrandiops={r} wbps={} wseqiops={w} wrandiops={w}",
            reads * page,
            writes * page,
            r = iops(reads),
            w = iops(writes),
        )
    }
}

fn check_rise(before: Point, point: Point, row: Option<usize>) -> Result<(), ModelError> {
    let columns = [
        (
            "p95-us",
            u64::from(before.p95_us) + 1,
            u64::from(point.p95_us),
        ),
        ("mixed", before.mixed, point.mixed),
        ("read-only", before.read_only, point.read_only),
    ];
    for (key, least, value) in columns {
        if value < least {
            let what = format!("{value}; the point before asks for {least} or more");
            return Err(wrong(key, row, what));
        }
    }
    Ok(())
}

fn wrong(key: &'static str, point: Option<usize>, what: String) -> ModelError {
    ModelError { key, point, what }
}

fn to_tokens(count: u64) -> Tokens {
    Tokens::try_from(count).unwrap_or(Tokens::MAX)
}
