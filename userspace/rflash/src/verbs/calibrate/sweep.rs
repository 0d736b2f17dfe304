// SPDX-License-Identifier: GPL-2.0-only
//! The measurements: which, in what order, and what came of them. Each is kept
//! as soon as it is there, so that an interrupted sweep goes on where it was.

use super::target::{Arrival, Job, Seen, Target};
use crate::error::Error;

/// Shares of reads that are swept, in percent. 100 comes first: it is the least
/// harmful load and shows at once when a device is none.
pub const SHARES: [u8; 6] = [100, 99, 95, 90, 75, 50];
/// Sizes whose cost is checked against whole pages.
pub const SIZES: [u32; 3] = [8192, 16384, 65536];
pub const PAGE: u32 = 4096;

/// Shares of the greatest rate that are offered.
const STEPS: [f64; 16] = [
    0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.91, 0.94, 0.96, 0.98,
];

/// How long and how deep to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Outstanding commands that find the greatest rate.
    pub depth: u32,
    /// Seconds before the greatest rate is counted: longer than the device's
    /// buffer hides what it cannot keep up.
    pub settle: f64,
    pub warm_up: f64,
    /// Reads that make a percentile, and bounds in seconds.
    pub reads: f64,
    pub least: f64,
    pub most: f64,
}

impl Effort {
    /// For a device that takes its time.
    pub const LIVE: Effort = Effort {
        depth: 256,
        settle: 10.0,
        warm_up: 1.0,
        reads: 200_000.0,
        least: 3.0,
        most: 10.0,
    };

    /// For the model.
    pub const VIRTUAL: Effort = Effort {
        depth: 512,
        settle: 0.5,
        warm_up: 0.1,
        reads: 40_000.0,
        least: 0.1,
        most: 2.0,
    };
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub reads: u8,
    pub bytes: u32,
    /// Commands a second that were offered; `None`: as many as possible.
    pub offered: Option<f64>,
    pub seen: Seen,
}

/// All that was measured so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub identity: String,
    pub preconditioned: bool,
    pub measurements: Vec<Measurement>,
}

impl Record {
    /// The greatest rate of a kind of load.
    pub fn most(&self, reads: u8, bytes: u32) -> Option<f64> {
        let found = self
            .measurements
            .iter()
            .find(|m| (m.reads, m.bytes, m.offered.is_none()) == (reads, bytes, true));
        found.map(|m| m.seen.iops)
    }

    /// The sweep of a share of reads: what was offered and what was seen, by
    /// rising rate.
    pub fn curve(&self, reads: u8) -> Vec<(f64, Seen)> {
        let of_share = self
            .measurements
            .iter()
            .filter(|m| m.reads == reads && m.bytes == PAGE);
        let mut curve: Vec<_> = of_share
            .filter_map(|m| Some((m.offered?, m.seen)))
            .collect();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    }
}

/// Sizes are compared read-only and with so many percent of reads.
pub const SIZE_SHARES: [u8; 2] = [100, 75];

/// What to measure, in this order; `None` for the step: the greatest rate.
fn plan() -> Vec<(u8, u32, Option<f64>)> {
    let mut plan = Vec::new();
    for reads in SHARES {
        plan.push((reads, PAGE, None));
        plan.extend(STEPS.map(|step| (reads, PAGE, Some(step))));
    }
    for bytes in SIZES {
        plan.extend(SIZE_SHARES.map(|reads| (reads, bytes, None)));
    }
    plan
}

/// Measure all that `record` has not got; `keep` is called after each.
///
/// # Errors
/// I/O that failed, a device that does nothing, or what `keep` says.
pub fn sweep(
    target: &mut dyn Target,
    effort: &Effort,
    record: &mut Record,
    keep: &mut dyn FnMut(&Record, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let plan = plan();
    let count = plan.len();
    for (i, (reads, bytes, step)) in plan.into_iter().enumerate().skip(record.measurements.len()) {
        let offered = match step {
            None => None,
            Some(step) => {
                let most = record.most(reads, bytes).filter(|&most| most >= 1.0);
                let Some(most) = most else {
                    let text = format!(
                        "the device did less than one request a second with {reads} % reads: it cannot be calibrated"
                    );
                    return Err(Error::new(text));
                };
                Some(most * step)
            }
        };
        let job = job(effort, reads, bytes, offered, i as u64 + 1);
        let seen = target.run(&job)?;
        record.measurements.push(Measurement {
            reads,
            bytes,
            offered,
            seen,
        });
        let line = match offered {
            None => format!(
                "{reads} % reads of {bytes} bytes: {:.0} a second at most",
                seen.iops
            ),
            Some(rate) => format!(
                "{reads} % reads at {rate:.0} a second: p95 {:.0} us",
                seen.p95_us
            ),
        };
        keep(record, &format!("{}/{count} {line}", i + 1))?;
    }
    Ok(())
}

fn job(effort: &Effort, reads: u8, bytes: u32, offered: Option<f64>, seed: u64) -> Job {
    let (arrival, warm_up, measure) = match offered {
        None => (
            Arrival::Depth(effort.depth),
            effort.settle,
            effort.least * 2.0,
        ),
        Some(rate) => {
            let reads_a_second = (rate * f64::from(reads) / 100.0).max(1.0);
            let seconds = (effort.reads / reads_a_second).clamp(effort.least, effort.most);
            (Arrival::Rate(rate), effort.warm_up, seconds)
        }
    };
    Job {
        reads,
        bytes,
        arrival,
        warm_up,
        measure,
        seed,
    }
}
