// SPDX-License-Identifier: GPL-2.0-only
//! What is printed: a table for people, JSON for programs.

use serde_json::{Value, json};

use crate::table::{self, Column, columns};

use super::histogram::Histogram;
use super::job::Job;
use super::tally::Tally;
use super::worker::{Geometry, Summary};

/// One line of the table.
struct Row {
    name: &'static str,
    latency: Histogram,
    seconds: f64,
    bytes: u64,
}

fn micros(ns: Option<f64>) -> Value {
    // Three digits behind the point are nanoseconds.
    ns.map_or(Value::Null, |ns| (ns.round() / 1000.0).into())
}

fn percentile(row: &Row, per_mille: u64) -> Value {
    micros(row.latency.percentile(per_mille).map(|ns| ns as f64))
}

impl Row {
    fn iops(&self) -> f64 {
        self.latency.count() as f64 / self.seconds.max(1e-9)
    }
}

const ROWS: &[Column<Row>] = columns![
    "name", "", Text, |r| r.name.into();
    "iops", "IOPS", Number, |r| (r.iops().round() as u64).into();
    "bytes_per_second", "BYTES/S", Size, |r| ((r.iops() * r.bytes as f64) as u64).into();
    "mean", "MEAN", Micros, |r| micros(r.latency.mean());
    "p50", "P50", Micros, |r| percentile(r, 500);
    "p95", "P95", Micros, |r| percentile(r, 950);
    "p99", "P99", Micros, |r| percentile(r, 990);
    "p999", "P99.9", Micros, |r| percentile(r, 999);
    "max", "MAX us", Micros, |r| micros(r.latency.max().map(|ns| ns as f64));
];

/// The whole run.
pub struct Report<'a> {
    pub job: &'a Job,
    pub geometry: Geometry,
    pub target: String,
    pub nqn: &'a str,
    pub total: &'a Tally,
    pub windows: &'a [Tally],
    /// Seconds that were measured.
    pub seconds: f64,
    pub summary: &'a Summary,
}

fn direction(latency: &Histogram, seconds: f64, bytes: u64) -> Value {
    let row = Row {
        name: "",
        latency: latency.clone(),
        seconds,
        bytes,
    };
    json!({
        "ios": latency.count(),
        "iops": row.iops(),
        "bytes_per_second": row.iops() * bytes as f64,
        "latency_us": {
            "min": micros(latency.min().map(|ns| ns as f64)),
            "mean": micros(latency.mean()),
            "p50": percentile(&row, 500),
            "p95": percentile(&row, 950),
            "p99": percentile(&row, 990),
            "p999": percentile(&row, 999),
            "max": micros(latency.max().map(|ns| ns as f64)),
        },
    })
}

impl Report<'_> {
    pub fn json(&self) -> String {
        let job = self.job;
        let bytes = u64::from(job.bytes);
        let windows = self.windows.iter().enumerate().map(|(i, tally)| {
            let length = (self.seconds - i as f64).clamp(1e-9, 1.0);
            json!({
                "second": i + 1,
                "length": length,
                "read": direction(&tally.reads.latency, length, bytes),
                "write": direction(&tally.writes.latency, length, bytes),
            })
        });
        table::pretty(&json!({
            "target": self.target,
            "nqn": self.nqn,
            "nsid": self.geometry.nsid,
            "rw": job.pattern.name(),
            "read_pct": job.read_pct,
            "bs": job.bytes,
            "qd": job.depth,
            "connections": job.connections,
            "threads": job.threads(),
            "cpus": job.cpus,
            "rate": job.rate,
            "seconds": self.seconds,
            "read": direction(&self.total.reads.latency, self.seconds, bytes),
            "write": direction(&self.total.writes.latency, self.seconds, bytes),
            "not_started": job.rate.map(|_| self.summary.behind),
            "verified": job.verify.then_some(self.summary.verified),
            "windows": windows.collect::<Vec<_>>(),
        }))
    }

    pub fn text(&self) -> String {
        let bytes = self.job.bytes.into();
        let row = |name, latency: &Histogram| Row {
            name,
            latency: latency.clone(),
            seconds: self.seconds,
            bytes,
        };
        let mut rows = Vec::new();
        if self.job.read_pct > 0 {
            rows.push(row("reads", &self.total.reads.latency));
        }
        if self.job.writes() {
            rows.push(row("writes", &self.total.writes.latency));
        }
        let mut out = table::table(ROWS, &rows);
        if self.job.rate.is_some() && self.summary.behind > 0 {
            out.push_str(&format!(
                "{} commands were due and had no room to begin: the rate is more than the target takes\n",
                self.summary.behind
            ));
        }
        if self.job.verify {
            out.push_str(&format!(
                "{} of what was written were read again and compared: all as written\n",
                table::size(self.summary.verified * bytes)
            ));
        }
        out
    }
}

/// One second, for people who watch.
pub fn progress(second: usize, tally: &Tally, of: f64) -> String {
    let mut both = tally.reads.latency.clone();
    both.merge(&tally.writes.latency);
    let text = |per_mille| {
        let us = both.percentile(per_mille).unwrap_or(0) as f64 / 1000.0;
        format!("{us:.1}")
    };
    format!(
        "{second:>4} of {of} s  {:>9} IOPS  p50 {} p99 {} us",
        both.count(),
        text(500),
        text(990)
    )
}
