// SPDX-License-Identifier: GPL-2.0-only
//! The log: one line a record on standard error.
//!
//! Text is for people: the sentence, then key=value. Where the journal reads
//! standard error, each line begins with its priority (sd-daemon(3)); on a
//! terminal or in a file it begins with the time. JSON is one object a line.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::config::value::{LogFormat, LogLevel};

static LOGGER: Logger = Logger {
    json: AtomicBool::new(false),
    journal: AtomicBool::new(false),
};

struct Logger {
    json: AtomicBool,
    journal: AtomicBool,
}

/// Begin to log. `JOURNAL_STREAM` is the service manager's way to say that the
/// journal reads standard error.
pub fn start(level: LogLevel, format: LogFormat) {
    LOGGER.json.store(format == LogFormat::Json, Relaxed);
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    LOGGER.journal.store(journal, Relaxed);
    // Only a second start can fail, and the logger is the same then.
    let _ = log::set_logger(&LOGGER);
    set_level(level);
}

pub fn set_level(level: LogLevel) {
    log::set_max_level(match level {
        LogLevel::Error => LevelFilter::Error,
        LogLevel::Warn => LevelFilter::Warn,
        LogLevel::Info => LevelFilter::Info,
        LogLevel::Debug => LevelFilter::Debug,
        LogLevel::Trace => LevelFilter::Trace,
    });
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let line = if self.json.load(Relaxed) {
            json(record, now)
        } else {
            text(record, now, self.journal.load(Relaxed))
        };
        // There is nowhere left to report a failure to.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

struct Text(String);

impl<'kvs> VisitSource<'kvs> for Text {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let value = value.to_string();
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '=';
        let bare = !value.is_empty() && value.chars().all(plain);
        let value = match bare {
            true => value,
            false => serde_json::Value::from(value).to_string(),
        };
        let _ = write!(self.0, " {key}={value}");
        Ok(())
    }
}

fn text(record: &Record<'_>, now: Duration, journal: bool) -> String {
    let mut line = Text(String::with_capacity(160));
    let level = record.level();
    let _ = match journal {
        true => write!(line.0, "<{}>", priority(level)),
        false => write!(
            line.0,
            "{} {:<5} ",
            timestamp(now),
            level.as_str().to_lowercase()
        ),
    };
    // A line is a record: what a peer sent must not make two of it.
    for c in record.args().to_string().chars() {
        match c.is_control() {
            true => line.0.extend(c.escape_default()),
            false => line.0.push(c),
        }
    }
    let _ = record.key_values().visit(&mut line);
    line.0.push('\n');
    line.0
}

struct Json(serde_json::Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for Json {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let json = if let Some(n) = value.to_u64() {
            n.into()
        } else if let Some(b) = value.to_bool() {
            b.into()
        } else {
            value.to_string().into()
        };
        self.0.insert(key.to_string(), json);
        Ok(())
    }
}

fn json(record: &Record<'_>, now: Duration) -> String {
    let mut object = Json(serde_json::Map::new());
    let set = |o: &mut Json, key: &str, value: serde_json::Value| {
        o.0.insert(key.into(), value);
    };
    set(&mut object, "time", timestamp(now).into());
    let level = record.level().as_str().to_lowercase();
    set(&mut object, "level", level.into());
    set(&mut object, "message", record.args().to_string().into());
    let _ = record.key_values().visit(&mut object);
    set(&mut object, "target", record.target().into());
    let mut line = serde_json::Value::Object(object.0).to_string();
    line.push('\n');
    line
}

/// UTC as RFC 3339, to the millisecond.
fn timestamp(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        since_epoch.subsec_millis()
    )
}

/// Date of a day since 1970-01-01: Howard Hinnant's civil_from_days.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(f: impl Fn(&Record<'_>) -> R) -> R {
        let kvs: &[(&str, Value<'_>)] = &[
            ("tenant", Value::from("t 1")),
            ("port", Value::from(4420)),
            ("live", Value::from(true)),
        ];
        f(&Record::builder()
            .args(format_args!("a peer sent\nnonsense"))
            .level(Level::Warn)
            .target("rflashd::dataplane")
            .key_values(&kvs)
            .build())
    }

    const NOW: Duration = Duration::from_millis(1_795_300_000_123);

    #[test]
    fn for_people_and_the_journal() {
        assert_eq!(
            with(|r| text(r, NOW, false)),
            "2026-11-21T22:26:40.123Z warn  a peer sent\\nnonsense tenant=\"t 1\" port=4420 live=true\n"
        );
        assert_eq!(
            with(|r| text(r, NOW, true)),
            "<4>a peer sent\\nnonsense tenant=\"t 1\" port=4420 live=true\n"
        );
    }

    #[test]
    fn for_programs() {
        let line = with(|r| json(r, NOW));
        assert_eq!(line.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["message"], "a peer sent\nnonsense");
        assert_eq!(value["level"], "warn");
        assert_eq!(value["port"], 4420);
        assert_eq!(value["live"], true);
        assert_eq!(value["time"], "2026-11-21T22:26:40.123Z");
    }

    #[test]
    fn dates() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_102_444_800, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(Duration::from_secs(seconds)), want);
        }
    }
}
