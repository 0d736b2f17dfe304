// SPDX-License-Identifier: GPL-2.0-only
//! From measurements to a cost model.
//!
//! A request costs 1 for a page read and w for a page written. If that is so,
//! then at any p95 of read latency T the weighted rate
//!
//! ```text
//! R(T) = rate_r(T) * (r + (1 - r) * w)
//! ```
//!
//! is the same for every share r of reads, where rate_r(T) is the rate at which
//! reads still have that p95 (ReFlex, ASPLOS 2017, section 3.2.1, and step 2 of
//! its sample.devmodel). w is chosen so that the R of all shares lie as close
//! together as they can, over all latencies. What is promised at T is the least
//! of them: a tenant's share of reads is not known beforehand. Rows where they
//! lie too far apart are left out.

use qos::{DeviceModel, Point, Tokens};

use super::sweep::{PAGE, Record, SHARES, SIZE_SHARES, SIZES};
use super::target::Seen;
use crate::error::Error;

/// Latencies of the table's rows, in microseconds.
const ROWS_US: [u32; 24] = [
    50, 75, 100, 125, 150, 175, 200, 250, 300, 400, 500, 600, 750, 1000, 1250, 1500, 2000, 2500,
    3000, 4000, 5000, 7500, 10000, 20000,
];
/// Tokens of a page read.
const READ: Tokens = 100;
/// R of two shares may differ by this factor within a row.
const SPREAD_MAX: f64 = 1.25;
/// Bounds of w: outside, it is no flash device.
const WRITE_MIN: f64 = 0.2;
const WRITE_MAX: f64 = 500.0;

/// One row, with what it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub p95_us: u32,
    /// Weighted page reads a second for each mixed share, in their order.
    pub weighted: Vec<f64>,
    /// Reads a second when nobody writes.
    pub read_only: f64,
    /// The greatest of `weighted` over the least.
    pub spread: f64,
}

/// How a size's cost compares to that of its pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeCost {
    pub bytes: u32,
    pub reads: u8,
    /// Pages that it costs like.
    pub pages: f64,
}

/// A model and how well it fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub model: DeviceModel,
    /// Page reads that a page write costs.
    pub write_cost: f64,
    pub rows: Vec<Row>,
    /// Latencies below the first row: the shares were too far apart there.
    pub dropped: Vec<u32>,
    pub sizes: Vec<SizeCost>,
}

/// Rates by latency of one share of reads.
struct Curve {
    share: f64,
    most: f64,
    /// Rate and p95, both rising.
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn new(record: &Record, reads: u8) -> Result<Curve, Error> {
        let nonsense = |what: String| Err(refuse(&format!("with {reads} % reads {what}")));
        let most = record.most(reads, PAGE).unwrap_or(0.0);
        let measured = record.curve(reads);
        if most < 1.0 || measured.len() < 3 {
            return nonsense("there are too few measurements".to_string());
        }
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (offered, seen) in &measured {
            if seen.reads == 0 || seen.p95_us <= 0.0 || !seen.p95_us.is_finite() {
                return nonsense(format!("no read was seen at {offered:.0} a second"));
            }
            // A rate that was not reached has no latency. Poisson arrivals of a
            // short measurement differ by a few percent themselves.
            if seen.iops < offered * 0.9 {
                break;
            }
            // Noise must not make a higher rate faster.
            let before = points.last().map_or(0.0, |&(_, us)| us);
            points.push((*offered, seen.p95_us.max(before)));
        }
        if points.len() < 3 {
            return nonsense(format!(
                "the device does not keep up with a tenth of what it did at once ({most:.0} a second): is somebody else using it?"
            ));
        }
        if let Some(what) = Curve::falls(&measured) {
            return nonsense(what);
        }
        Ok(Curve {
            share: f64::from(reads) / 100.0,
            most,
            points,
        })
    }

    /// What is wrong when latency does not rise with the rate.
    fn falls(measured: &[(f64, Seen)]) -> Option<String> {
        let (first, last) = (measured.first()?, measured.last()?);
        (last.1.p95_us < 0.8 * first.1.p95_us).then(|| {
            format!(
                "latency falls from {:.0} to {:.0} us while the rate rises: is somebody else using the device, or does it save power?",
                first.1.p95_us, last.1.p95_us
            )
        })
    }

    /// The rate at which p95 is `us`; `None` when it is never as low.
    fn rate(&self, us: f64) -> Option<f64> {
        let above = self.points.iter().position(|&(_, p95)| p95 > us);
        let Some(above) = above else {
            // Never as high while the device kept up: then it is the limit.
            return Some(self.most);
        };
        let (high_rate, high) = *self.points.get(above)?;
        let (low_rate, low) = *self.points.get(above.checked_sub(1)?)?;
        Some(low_rate + (high_rate - low_rate) * (us - low) / (high - low))
    }

    fn weight(&self, write: f64) -> f64 {
        self.share + (1.0 - self.share) * write
    }
}

fn refuse(why: &str) -> Error {
    Error::new(format!("no cost model fits what was measured: {why}"))
}

/// The rates of all mixed shares at a latency; `None` when one has none.
fn rates(mixed: &[Curve], us: u32) -> Option<Vec<f64>> {
    mixed.iter().map(|c| c.rate(f64::from(us))).collect()
}

/// How far apart the weighted rates lie: the variance of their logarithms.
fn disagreement(mixed: &[Curve], rows: &[Vec<f64>], write: f64) -> f64 {
    let mut sum = 0.0;
    for row in rows {
        let logs: Vec<f64> = row
            .iter()
            .zip(mixed)
            .map(|(rate, curve)| (rate * curve.weight(write)).ln())
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        sum += logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>();
    }
    sum
}

/// The w with the least disagreement: golden section over its logarithm.
fn best_write(mixed: &[Curve], rows: &[Vec<f64>]) -> f64 {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (WRITE_MIN.ln(), WRITE_MAX.ln());
    for _ in 0..80 {
        let (a, b) = (high - ratio * (high - low), low + ratio * (high - low));
        if disagreement(mixed, rows, a.exp()) < disagreement(mixed, rows, b.exp()) {
            high = b;
        } else {
            low = a;
        }
    }
    ((low + high) / 2.0).exp()
}

fn spread(weighted: &[f64]) -> f64 {
    let least = weighted.iter().copied().fold(f64::MAX, f64::min);
    let most = weighted.iter().copied().fold(0.0, f64::max);
    most / least
}

fn weighted(mixed: &[Curve], rates: &[f64], write: f64) -> Vec<f64> {
    let of = rates.iter().zip(mixed);
    of.map(|(rate, curve)| rate * curve.weight(write)).collect()
}

/// Fit a model to a complete record.
///
/// # Errors
/// Measurements that are not those of a flash device in a steady state.
pub fn fit(record: &Record, name: &str) -> Result<Fit, Error> {
    let curves: Result<Vec<Curve>, Error> = SHARES.iter().map(|&r| Curve::new(record, r)).collect();
    let mut curves = curves?;
    let read_only = curves.remove(0);
    let candidates: Vec<(u32, Vec<f64>)> = ROWS_US
        .iter()
        .filter_map(|&us| Some((us, rates(&curves, us)?)))
        .collect();
    if candidates.is_empty() {
        return Err(refuse("p95 is above 20 ms at any rate"));
    }
    let write_cost = write_cost(&curves, &candidates)?;
    let (rows, dropped) = rows(&curves, &read_only, &candidates, write_cost)?;
    let model = model(name, write_cost, &rows, &curves, &read_only)?;
    Ok(Fit {
        model,
        write_cost,
        rows,
        dropped,
        sizes: sizes(record),
    })
}

/// At low latencies chance decides more than load does: begin with the upper
/// half of the rows, then take all that agree.
fn write_cost(mixed: &[Curve], candidates: &[(u32, Vec<f64>)]) -> Result<f64, Error> {
    let all = || candidates.iter().map(|(_, rates)| rates.clone());
    let mut used: Vec<Vec<f64>> = all().skip(candidates.len() / 2).collect();
    let mut write = best_write(mixed, &used);
    for _ in 0..4 {
        let agree: Vec<Vec<f64>> = all()
            .filter(|rates| spread(&weighted(mixed, rates, write)) <= SPREAD_MAX)
            .collect();
        if agree.is_empty() || agree == used {
            break;
        }
        used = agree;
        write = best_write(mixed, &used);
    }
    if !(WRITE_MIN * 1.05..=WRITE_MAX / 1.05).contains(&write) {
        let text = format!(
            "a write would cost {write:.2} reads, and flash lies between {WRITE_MIN} and {WRITE_MAX}"
        );
        return Err(refuse(&text));
    }
    Ok(write)
}

fn rows(
    mixed: &[Curve],
    read_only: &Curve,
    candidates: &[(u32, Vec<f64>)],
    write: f64,
) -> Result<(Vec<Row>, Vec<u32>), Error> {
    let mut rows: Vec<Row> = Vec::new();
    let mut dropped = Vec::new();
    let mut best = f64::MAX;
    for (i, (us, rates)) in candidates.iter().enumerate() {
        let weighted = weighted(mixed, rates, write);
        let spread = spread(&weighted);
        best = best.min(spread);
        let reads = read_only.rate(f64::from(*us));
        // A row above that disagrees a little is better than a straight line over
        // it, as the least is taken; below, it says that no row under it can be right,
        // even one that agrees by chance.
        let disagrees = spread > SPREAD_MAX && i < candidates.len().div_ceil(2);
        match reads {
            Some(read_only) if !disagrees => rows.push(Row {
                p95_us: *us,
                weighted,
                read_only,
                spread,
            }),
            _ => {
                dropped.extend(rows.drain(..).map(|row| row.p95_us));
                dropped.push(*us);
            }
        }
    }
    rows.retain(|row| row.spread <= SPREAD_MAX * 1.2);
    if rows.is_empty() {
        let text = format!(
            "with a write at {write:.1} reads the shares of reads still differ by a factor of {best:.2} at every latency, and {SPREAD_MAX} is the most that means anything; was the device preconditioned, and is it idle?"
        );
        return Err(refuse(&text));
    }
    // What is behind the last rate that was reached says nothing new.
    let same = |a: &Row, b: &Row| a.weighted == b.weighted && a.read_only == b.read_only;
    rows.dedup_by(|b, a| same(a, b));
    Ok((rows, dropped))
}

fn tokens(rate: f64) -> u64 {
    (rate * READ as f64).floor().max(1.0) as u64
}

fn model(
    name: &str,
    write_cost: f64,
    rows: &[Row],
    mixed: &[Curve],
    read_only: &Curve,
) -> Result<DeviceModel, Error> {
    let least = |rates: &[f64]| rates.iter().copied().fold(f64::MAX, f64::min);
    let mut curve: Vec<Point> = Vec::new();
    for row in rows {
        let before = curve.last();
        let read_only = tokens(row.read_only).max(before.map_or(0, |p| p.read_only));
        // A mixed load may be nearly all reads: it gets no more than those do.
        let mixed = tokens(least(&row.weighted)).min(read_only);
        curve.push(Point {
            p95_us: row.p95_us,
            mixed: mixed.max(before.map_or(0, |p| p.mixed)),
            read_only,
        });
    }
    let at_most: Vec<f64> = mixed
        .iter()
        .map(|c| c.most * c.weight(write_cost))
        .chain([read_only.most])
        .collect();
    let write = (write_cost * READ as f64).round().max(1.0) as Tokens;
    let model = DeviceModel {
        name: name.to_string(),
        page: PAGE,
        read: READ,
        write,
        read_only_read: READ,
        flush: write,
        discard: write,
        max: tokens(least(&at_most)).max(curve.last().map_or(0, |p| p.mixed)),
        curve,
    };
    model.check().map_err(|e| refuse(&e.to_string()))?;
    Ok(model)
}

fn sizes(record: &Record) -> Vec<SizeCost> {
    let mut sizes = Vec::new();
    for bytes in SIZES {
        for reads in SIZE_SHARES {
            let rates = (record.most(reads, PAGE), record.most(reads, bytes));
            if let (Some(page), Some(rate)) = rates {
                if rate > 0.0 {
                    sizes.push(SizeCost {
                        bytes,
                        reads,
                        pages: page / rate,
                    });
                }
            }
        }
    }
    sizes
}
