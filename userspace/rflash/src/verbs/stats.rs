// SPDX-License-Identifier: GPL-2.0-only
//! `rflash stats`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::StatsArgs;
use crate::control::{Control, Counters, QueueStats};
use crate::device;
use crate::error::Error;
use crate::table::{self, Column, columns};

use super::print;

/// Counters of a queue, or of all, and a direction; over `seconds` if that is
/// not zero.
struct Row {
    queue: Option<u32>,
    direction: &'static str,
    counters: Counters,
    seconds: f64,
}

impl Row {
    fn per_second(&self, count: u64) -> Value {
        json!((count as f64 / self.seconds).round() as u64)
    }
}

fn us(ns: Option<f64>) -> Value {
    // Nanoseconds are what was measured; more digits would be noise.
    ns.map_or(Value::Null, |ns| json!((ns).round() / 1000.0))
}

fn percentile(c: &Counters, per_mille: u64) -> Value {
    us(c.latency.percentile_ns(per_mille).map(|ns| ns as f64))
}

/// Latencies of the counters that a row is or has.
macro_rules! latencies {
    ($row:ident => $counters:expr) => {
        columns![
            "mean", "MEAN", Micros, |$row| us($counters.latency.mean_ns());
            "p50", "P50", Micros, |$row| percentile(&$counters, 500);
            "p95", "P95", Micros, |$row| percentile(&$counters, 950);
            "p99", "P99", Micros, |$row| percentile(&$counters, 990);
            "p999", "P99.9", Micros, |$row| percentile(&$counters, 999);
            "max", "MAX us", Micros, |$row| us($counters.latency.max().map(|ns| ns as f64));
        ]
    };
}

const LATENCY: &[Column<Counters>] = latencies!(c => c);
const ROW_LATENCY: &[Column<Row>] = latencies!(r => r.counters);

const WHO: &[Column<Row>] = columns![
    "queue", "QUEUE", Text, |r| r.queue.map_or("all".into(), |q| q.to_string().into());
    "direction", "", Text, |r| r.direction.into();
];

const TOTALS: &[Column<Row>] = columns![
    "ios", "IOS", Number, |r| r.counters.ios.into();
    "bytes", "BYTES", Size, |r| r.counters.bytes.into();
    "errors", "ERRORS", Number, |r| r.counters.errors.into();
];

const RATES: &[Column<Row>] = columns![
    "iops", "IOPS", Number, |r| r.per_second(r.counters.ios);
    "bytes_per_second", "BYTES/S", Size, |r| r.per_second(r.counters.bytes);
    "errors", "ERRORS", Number, |r| r.counters.errors.into();
];

fn direction_json(counters: &Counters) -> Value {
    json!({
        "ios": counters.ios,
        "bytes": counters.bytes,
        "errors": counters.errors,
        "latency_us": table::json(LATENCY, counters),
    })
}

fn add(to: &mut Counters, from: &Counters) {
    to.ios = to.ios.saturating_add(from.ios);
    to.bytes = to.bytes.saturating_add(from.bytes);
    to.errors = to.errors.saturating_add(from.errors);
    to.latency.merge(&from.latency);
}

fn difference(now: &Counters, before: &Counters) -> Counters {
    Counters {
        ios: now.ios.saturating_sub(before.ios),
        bytes: now.bytes.saturating_sub(before.bytes),
        errors: now.errors.saturating_sub(before.errors),
        latency: now.latency.since(&before.latency),
    }
}

/// All queues together.
fn total(queues: &[QueueStats]) -> QueueStats {
    let mut sum = QueueStats::default();
    for queue in queues {
        add(&mut sum.read, &queue.read);
        add(&mut sum.write, &queue.write);
    }
    sum
}

/// What happened between two looks; a queue that was not there before counts
/// from zero.
fn since(now: &[QueueStats], before: &[QueueStats]) -> Vec<QueueStats> {
    let none = QueueStats::default();
    let earlier = |qid| before.iter().find(|q| q.qid == qid).unwrap_or(&none);
    now.iter()
        .map(|q| QueueStats {
            qid: q.qid,
            read: difference(&q.read, &earlier(q.qid).read),
            write: difference(&q.write, &earlier(q.qid).write),
        })
        .collect()
}

fn to_json(name: &str, queues: &[QueueStats], args: &StatsArgs, seconds: f64) -> Value {
    let sum = total(queues);
    let mut out = json!({ "device": name });
    let Some(fields) = out.as_object_mut() else {
        return out;
    };
    if seconds > 0.0 {
        fields.insert(
            "interval_s".to_string(),
            json!((seconds * 1000.0).round() / 1000.0),
        );
    }
    fields.insert("read".to_string(), direction_json(&sum.read));
    fields.insert("write".to_string(), direction_json(&sum.write));
    if args.queues {
        let each = queues.iter().map(|q| {
            json!({
                "qid": q.qid,
                "read": direction_json(&q.read),
                "write": direction_json(&q.write),
            })
        });
        fields.insert("queues".to_string(), each.collect());
    }
    out
}

fn to_text(queues: &[QueueStats], args: &StatsArgs, seconds: f64) -> String {
    let sum = total(queues);
    let mut all = vec![(None, &sum)];
    if args.queues {
        all.extend(queues.iter().map(|q| (Some(q.qid), q)));
    }
    let mut rows = Vec::new();
    for (queue, stats) in all {
        for (direction, counters) in [("read", stats.read.clone()), ("write", stats.write.clone())]
        {
            rows.push(Row {
                queue,
                direction,
                counters,
                seconds,
            });
        }
    }
    let numbers = if seconds > 0.0 { RATES } else { TOTALS };
    let who = WHO.iter().filter(|c| args.queues || c.key != "queue");
    let columns: Vec<_> = who.chain(numbers).chain(ROW_LATENCY).copied().collect();
    table::table(&columns, &rows)
}

pub fn run(control: &mut impl Control, args: &StatsArgs) -> Result<(), Error> {
    let name = device::parse_name(&args.device)?;
    let controllers = control.controllers()?;
    let instance = device::find(&controllers, &name)?.1.instance;
    let now = control.stats(instance)?;
    let Some(interval) = args.watch else {
        return print(&if args.output.format.is_json() {
            table::pretty(&to_json(&name, &now, args, 0.0))
        } else {
            to_text(&now, args, 0.0)
        });
    };
    watch(control, &name, instance, now, interval, args)
}

fn watch(
    control: &mut impl Control,
    name: &str,
    instance: u32,
    mut before: Vec<QueueStats>,
    interval: f64,
    args: &StatsArgs,
) -> Result<(), Error> {
    if !(0.1..=3600.0).contains(&interval) {
        let text = format!("-W/--watch: {interval} is out of range: give 0.1 to 3600 seconds");
        return Err(Error::new(text));
    }
    let terminal = std::io::stdout().is_terminal();
    let mut then = Instant::now();
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        std::thread::sleep(Duration::from_secs_f64(interval));
        let now = control.stats(instance)?;
        let seconds = then.elapsed().as_secs_f64();
        then = Instant::now();
        let passed = since(&now, &before);
        before = now;
        shown += 1;
        if args.output.format.is_json() {
            print(&format!("{}\n", to_json(name, &passed, args, seconds)))?;
            continue;
        }
        // On a terminal the table stays in place.
        let clear = if terminal { "\x1b[H\x1b[J" } else { "" };
        let text = to_text(&passed, args, seconds);
        print(&format!("{clear}{name}, the last {seconds:.1} s:\n{text}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Format, OutputArgs};
    use crate::histogram::bucket;

    fn args(queues: bool) -> StatsArgs {
        StatsArgs {
            device: "rflash0".to_string(),
            queues,
            watch: None,
            count: None,
            output: OutputArgs {
                format: Format::Json,
            },
        }
    }

    fn counters(latencies: &[u64]) -> Counters {
        let mut c = Counters {
            ios: latencies.len() as u64,
            bytes: latencies.len() as u64 * 4096,
            ..Counters::default()
        };
        for &ns in latencies {
            c.latency.add(bucket(ns), 1).unwrap();
            c.latency.sum_ns += ns;
            c.latency.max_ns = c.latency.max_ns.max(ns);
        }
        c
    }

    fn queue(qid: u32, read: &[u64]) -> QueueStats {
        QueueStats {
            qid,
            read: counters(read),
            ..QueueStats::default()
        }
    }

    #[test]
    fn keys() {
        let value = to_json(
            "rflash0",
            &[queue(1, &[1000]), queue(2, &[3000])],
            &args(false),
            0.0,
        );
        assert_eq!(value["device"], "rflash0");
        assert_eq!(value["read"]["ios"], 2);
        assert_eq!(value["read"]["bytes"], 8192);
        assert_eq!(value["read"]["errors"], 0);
        let latency = value["read"]["latency_us"].as_object().unwrap();
        let keys: Vec<_> = latency.keys().map(String::as_str).collect();
        assert_eq!(keys, ["mean", "p50", "p95", "p99", "p999", "max"]);
        assert_eq!(latency["mean"], 2.0);
        assert_eq!(latency["max"], 3.0);
        assert_eq!(value["write"]["latency_us"]["p50"], Value::Null);
        assert!(value.get("queues").is_none());
        let value = to_json("rflash0", &[queue(1, &[1000])], &args(true), 0.0);
        assert_eq!(value["queues"][0]["qid"], 1);
        assert_eq!(value["queues"][0]["read"]["ios"], 1);
    }

    #[test]
    fn an_interval() {
        let before = [queue(1, &[1000; 10])];
        let now = [
            queue(1, &[&[1000; 10][..], &[9000; 20]].concat()),
            queue(2, &[5000]),
        ];
        let passed = since(&now, &before);
        assert_eq!((passed[0].read.ios, passed[1].read.ios), (20, 1));
        assert_eq!(passed[0].read.latency.count(), 20);
        let text = to_text(&passed, &args(false), 2.0);
        let read = text.lines().nth(1).unwrap();
        assert!(read.starts_with("read     11"), "21 in 2 s: {text}");
        let value = to_json("rflash0", &passed, &args(false), 2.0);
        assert_eq!(value["interval_s"], 2.0);
    }

    #[test]
    fn a_table_for_people() {
        let text = to_text(&[queue(1, &[1000]), queue(2, &[])], &args(true), 0.0);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert!(
            lines[0].contains("P99.9") && lines[0].ends_with("MAX us"),
            "{text}"
        );
        assert!(lines[1].starts_with("all    read"), "{text}");
        assert!(lines[6].starts_with("2      write"), "{text}");
    }
}
