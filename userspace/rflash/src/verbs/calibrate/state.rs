// SPDX-License-Identifier: GPL-2.0-only
//! The state file: what an interrupted calibration has measured already.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::sweep::{Measurement, Record};
use super::target::Seen;
use crate::error::Error;

const VERSION: u64 = 1;

/// The state file of a model file.
pub fn path(out: &Path) -> PathBuf {
    with_suffix(out, ".state")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// Write a file so that it is there with all its contents, or as it was.
///
/// # Errors
/// What the file system says, with the path.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    let new = with_suffix(path, ".new");
    let wrong = |e| Error::new(format!("{}: {e}", new.display()));
    let mut file = fs::File::create(&new).map_err(wrong)?;
    file.write_all(text.as_bytes()).map_err(wrong)?;
    file.sync_all().map_err(wrong)?;
    fs::rename(&new, path).map_err(|e| Error::new(format!("{}: {e}", path.display())))
}

fn to_json(record: &Record) -> Value {
    let measurement = |m: &Measurement| {
        json!({
            "reads": m.reads,
            "bytes": m.bytes,
            "offered": m.offered,
            "iops": m.seen.iops,
            "p50_us": m.seen.p50_us,
            "p95_us": m.seen.p95_us,
            "p99_us": m.seen.p99_us,
            "count": m.seen.reads,
        })
    };
    json!({
        "version": VERSION,
        "identity": record.identity,
        "preconditioned": record.preconditioned,
        "measurements": record.measurements.iter().map(measurement).collect::<Vec<_>>(),
    })
}

fn from_json(value: &Value) -> Option<Record> {
    if value.get("version")?.as_u64()? != VERSION {
        return None;
    }
    let measurement = |m: &Value| {
        let number = |key| m.get(key)?.as_f64();
        Some(Measurement {
            reads: u8::try_from(m.get("reads")?.as_u64()?).ok()?,
            bytes: u32::try_from(m.get("bytes")?.as_u64()?).ok()?,
            offered: number("offered"),
            seen: Seen {
                iops: number("iops")?,
                p50_us: number("p50_us")?,
                p95_us: number("p95_us")?,
                p99_us: number("p99_us")?,
                reads: m.get("count")?.as_u64()?,
            },
        })
    };
    let measurements = value.get("measurements")?.as_array()?;
    Some(Record {
        identity: value.get("identity")?.as_str()?.to_string(),
        preconditioned: value.get("preconditioned")?.as_bool()?,
        measurements: measurements
            .iter()
            .map(measurement)
            .collect::<Option<Vec<_>>>()?,
    })
}

/// Keep a record.
///
/// # Errors
/// What the file system says.
pub fn save(path: &Path, record: &Record) -> Result<(), Error> {
    write(path, &format!("{:#}\n", to_json(record)))
}

/// Where to begin: a new record, or the one that was kept.
///
/// # Errors
/// A state file without `resume`, of another device, or one that is none.
pub fn begin(path: &Path, identity: &str, resume: bool) -> Result<Record, Error> {
    let at = path.display();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok(Record {
                identity: identity.to_string(),
                ..Record::default()
            });
        }
        Err(e) => return Err(Error::new(format!("{at}: {e}"))),
    };
    if !resume {
        let text = format!(
            "{at} has the measurements of a calibration that was not finished: give --resume to go on with it, or remove it to begin again"
        );
        return Err(Error::new(text));
    }
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let Some(record) = value.as_ref().and_then(from_json) else {
        let text =
            format!("{at} is no state file of this version of rflash: remove it to begin again");
        return Err(Error::new(text));
    };
    if record.identity != identity {
        let text = format!(
            "{at} is of another device ({}), this one is {identity}: remove it to begin again",
            record.identity
        );
        return Err(Error::new(text));
    }
    Ok(record)
}
