// SPDX-License-Identifier: GPL-2.0-only
//! What to do, checked: sizes, mix, pace, CPUs.

use std::time::Duration;

use clap::ValueEnum;
use nvme_host::DEPTH_MAX;

use crate::error::Error;

use super::LoadArgs;

/// Most connections.
const CONNECTIONS_MAX: u32 = 16384;
/// Largest read or write, bytes.
const TRANSFER_MAX: u64 = 16 << 20;
/// CPU numbers the kernel's sets of CPUs have room for.
const CPU_MAX: usize = 1024;

/// What to do, and in which order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    Read,
    Write,
    Randread,
    Randwrite,
    Rw,
    Randrw,
}

impl Pattern {
    pub fn random(self) -> bool {
        matches!(
            self,
            Pattern::Randread | Pattern::Randwrite | Pattern::Randrw
        )
    }

    fn mixed(self) -> bool {
        matches!(self, Pattern::Rw | Pattern::Randrw)
    }

    pub fn name(self) -> &'static str {
        match self {
            Pattern::Read => "read",
            Pattern::Write => "write",
            Pattern::Randread => "randread",
            Pattern::Randwrite => "randwrite",
            Pattern::Rw => "rw",
            Pattern::Randrw => "randrw",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub pattern: Pattern,
    /// 0 to 100.
    pub read_pct: u32,
    /// Bytes of each read and write.
    pub bytes: u32,
    /// Outstanding per connection.
    pub depth: u32,
    pub connections: u32,
    /// Starts per second of all connections; `None`: as soon as one ends the
    /// next begins.
    pub rate: Option<f64>,
    pub time: Duration,
    pub warmup: Duration,
    /// One thread on each; none: one thread wherever it is put.
    pub cpus: Vec<usize>,
    pub verify: bool,
    /// Bytes of the namespace that are used, from its first.
    pub size: Option<u64>,
}

fn wrong(option: &str, text: impl std::fmt::Display) -> Error {
    Error::new(format!("--{option}: {text}"))
}

impl Job {
    pub fn of(args: &LoadArgs) -> Result<Job, Error> {
        let bytes = size(&args.bs).map_err(|e| wrong("bs", e))?;
        if !(512..=TRANSFER_MAX).contains(&bytes) || bytes % 512 != 0 {
            let text = format!("{} is no multiple of 512 from 512 to 16m", args.bs);
            return Err(wrong("bs", text));
        }
        let read_pct = match (args.rw, args.read_pct) {
            (rw, Some(pct @ 0..=100)) if rw.mixed() => pct,
            (rw, None) if rw.mixed() => 70,
            (Pattern::Read | Pattern::Randread, None) => 100,
            (_, None) => 0,
            (rw, Some(pct)) if rw.mixed() => {
                return Err(wrong("read-pct", format!("{pct} is not 0 to 100")));
            }
            (rw, Some(_)) => {
                let text = format!("it is for --rw rw and randrw, not {}", rw.name());
                return Err(wrong("read-pct", text));
            }
        };
        if !(1..=DEPTH_MAX).contains(&args.qd) {
            return Err(wrong("qd", format!("{} is not 1 to {DEPTH_MAX}", args.qd)));
        }
        if !(1..=CONNECTIONS_MAX).contains(&args.connections) {
            let text = format!("{} is not 1 to {CONNECTIONS_MAX}", args.connections);
            return Err(wrong("connections", text));
        }
        let rate = args.rate.map(rate).transpose()?;
        let cpus = args.cpu.as_deref().map(cpu_list).transpose()?;
        let cpus = cpus.unwrap_or_default();
        let size = args.size.as_deref().map(size).transpose();
        Ok(Job {
            pattern: args.rw,
            read_pct,
            bytes: bytes as u32,
            depth: args.qd,
            connections: args.connections,
            rate,
            time: seconds("time", args.time, 0.1, 86_400.0)?,
            warmup: seconds("warmup", args.warmup, 0.0, 3600.0)?,
            cpus,
            verify: args.verify,
            size: size.map_err(|e| wrong("size", e))?,
        })
    }

    /// Threads that do the work.
    pub fn threads(&self) -> usize {
        self.cpus.len().clamp(1, self.connections as usize)
    }

    pub fn writes(&self) -> bool {
        self.read_pct < 100
    }
}

fn rate(per_second: f64) -> Result<f64, Error> {
    if (0.1..=1e9).contains(&per_second) {
        return Ok(per_second);
    }
    Err(wrong("rate", format!("{per_second} is not 0.1 to 1e9")))
}

fn seconds(option: &str, value: f64, least: f64, most: f64) -> Result<Duration, Error> {
    if (least..=most).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    let text = format!("{value} is not {least} to {most} seconds");
    Err(wrong(option, text))
}

/// Bytes, as in 4096, 4k, 1m or 2g.
pub fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").unwrap_or(&lower);
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match lower.get(digits.len()..).unwrap_or_default() {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => 64,
    };
    digits
        .parse::<u64>()
        .ok()
        .filter(|_| shift < 64)
        .and_then(|n| n.checked_mul(1 << (shift & 63)))
        .ok_or_else(|| format!("{text:?} is not a size: give bytes, as in 4096, 4k or 1m"))
}

/// CPUs as in 0,2-5.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, Error> {
    let bad = || {
        let text = format!("{text:?} is no list of CPUs: give numbers and ranges, as in 0,2-5");
        wrong("cpu", text)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| bad())?;
        let last: usize = last.parse().map_err(|_| bad())?;
        if first > last || last >= CPU_MAX {
            return Err(bad());
        }
        cpus.extend(first..=last);
    }
    let mut seen = cpus.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != cpus.len() {
        return Err(wrong("cpu", format!("{text:?} names a CPU twice")));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, want) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("1M", 1 << 20),
            ("2g", 2 << 30),
            ("64KiB", 65536),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "k", "4x", "-1", "4.5k", "99999999999t"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpus() {
        assert_eq!(cpu_list("0").unwrap(), [0]);
        assert_eq!(cpu_list("3,0-2").unwrap(), [3, 0, 1, 2]);
        for text in ["", "a", "2-1", "0,0", "1-", "1024", "0,,1"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
    }
}
