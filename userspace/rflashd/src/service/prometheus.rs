// SPDX-License-Identifier: GPL-2.0-only
//! Metrics in Prometheus' text format, version 0.0.4.

use std::fmt::Write as _;

use nvme_wire::tenant::Class;

use super::report::Facts;
use super::windows::Quantiles;
use crate::metrics::{CoreMetrics, CoreStats};

/// A metric with its help and its samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Family {
    fn new(name: &'static str, kind: &'static str, help: &'static str) -> Family {
        Family {
            name,
            kind,
            help,
            samples: String::new(),
        }
    }

    fn add(&mut self, suffix: &str, labels: &str, value: impl std::fmt::Display) {
        let braces = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.samples, "{}{suffix}{braces} {value}", self.name);
    }

    fn write(&self, out: &mut String) {
        let Family {
            name,
            kind,
            help,
            samples,
        } = self;
        if !samples.is_empty() {
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

fn labels(facts: &Facts) -> String {
    let entry = &facts.entry;
    format!(
        "tenant=\"{}\",subsystem=\"{}\",device=\"{}\"",
        escaped(&entry.name),
        escaped(&entry.nqn),
        escaped(&facts.device)
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Everything that is exposed.
pub fn page(
    tenants: &[Facts],
    cores: &[std::sync::Arc<CoreMetrics>],
    connections: usize,
) -> String {
    let mut out = String::with_capacity(4096 + tenants.len() * 4096);
    for family in tenant_families(tenants) {
        family.write(&mut out);
    }
    for family in core_families(cores) {
        family.write(&mut out);
    }
    let mut open = Family::new("rflashd_connections", "gauge", "Connections that are open.");
    open.add("", "", connections);
    open.write(&mut out);
    let mut build = Family::new("rflashd_build_info", "gauge", "The version that runs.");
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    build.add("", version, 1);
    build.write(&mut out);
    out
}

fn tenant_families(tenants: &[Facts]) -> Vec<Family> {
    let mut requests = Family::new(
        "rflashd_tenant_requests_total",
        "counter",
        "Requests that succeeded.",
    );
    let mut bytes = Family::new(
        "rflashd_tenant_bytes_total",
        "counter",
        "Bytes read and written.",
    );
    let mut errors = Family::new(
        "rflashd_tenant_errors_total",
        "counter",
        "Requests that ended with an error status.",
    );
    let mut latency = Family::new(
        "rflashd_tenant_latency_seconds",
        "summary",
        "From arrival to reply; quantiles of the last ten seconds, sum and count since the start.",
    );
    let mut wait = Family::new(
        "rflashd_tenant_token_wait_seconds",
        "summary",
        "From arrival until tokens were granted; quantiles of the last ten seconds.",
    );
    let mut tokens = Family::new(
        "rflashd_tenant_tokens_total",
        "counter",
        "Tokens by what became of them; borrowed ones are among the spent.",
    );
    let mut waits = Family::new(
        "rflashd_tenant_waits_total",
        "counter",
        "Requests that had to wait for tokens.",
    );
    let mut windows = Family::new(
        "rflashd_tenant_slo_windows_total",
        "counter",
        "Seconds in which a latency-critical tenant had a claim.",
    );
    let mut missed = Family::new(
        "rflashd_tenant_slo_violations_total",
        "counter",
        "Seconds of them in which p95 of its reads was above its SLO.",
    );
    let mut slo = Family::new(
        "rflashd_tenant_slo_p95_seconds",
        "gauge",
        "The latency that was promised.",
    );
    for facts in tenants {
        let who = labels(facts);
        let all = &facts.totals;
        for (op, count, size) in [
            ("read", all.reads, Some(all.read_bytes)),
            ("write", all.writes, Some(all.write_bytes)),
            ("other", all.others, None),
        ] {
            let labels = format!("{who},op=\"{op}\"");
            requests.add("", &labels, count);
            if let Some(size) = size {
                bytes.add("", &labels, size);
            }
        }
        errors.add("", &who, all.errors);
        let window = &facts.window;
        for (op, quantiles, since) in [
            ("read", &window.read, &all.service),
            ("write", &window.write, &all.write_service),
        ] {
            let labels = format!("{who},op=\"{op}\"");
            summary(
                &mut latency,
                &labels,
                quantiles,
                since.sum_ns,
                since.count(),
            );
        }
        summary(
            &mut wait,
            &who,
            &window.wait,
            all.wait.sum_ns,
            all.wait.count(),
        );
        let t = &facts.tokens;
        for (what, count) in [
            ("earned", t.earned),
            ("spent", t.spent),
            ("borrowed", t.borrowed),
            ("donated", t.donated),
            ("expired", t.expired),
            ("taken", t.taken),
        ] {
            tokens.add("", &format!("{who},what=\"{what}\""), count);
        }
        waits.add("", &who, t.waits);
        if let Class::LatencyCritical { p95_us, .. } = facts.entry.class {
            windows.add("", &who, facts.promises.windows);
            missed.add("", &who, facts.promises.missed);
            slo.add("", &who, f64::from(p95_us) / 1e6);
        }
    }
    vec![
        requests, bytes, errors, latency, wait, tokens, waits, windows, missed, slo,
    ]
}

fn summary(family: &mut Family, labels: &str, window: &Quantiles, sum_ns: u64, count: u64) {
    for (q, value) in [
        ("0.5", window.p50),
        ("0.95", window.p95),
        ("0.99", window.p99),
    ] {
        // Nothing to speak of is no number, and no zero either.
        let value = value.map_or(f64::NAN, seconds);
        family.add("", &format!("{labels},quantile=\"{q}\""), value);
    }
    family.add("_sum", labels, seconds(sum_ns));
    family.add("_count", labels, count);
}

fn core_families(cores: &[std::sync::Arc<CoreMetrics>]) -> Vec<Family> {
    type Read = fn(&CoreStats) -> u64;
    let counters: [(&'static str, &'static str, Read); 9] = [
        ("rflashd_core_commands_total", "Commands received.", |c| {
            c.commands.get()
        }),
        ("rflashd_core_rounds_total", "Rounds of the loop.", |c| {
            c.rounds.get()
        }),
        (
            "rflashd_core_sleeps_total",
            "Times it went to sleep.",
            |c| c.sleeps.get(),
        ),
        (
            "rflashd_core_receives_total",
            "Calls that received something.",
            |c| c.receives.get(),
        ),
        (
            "rflashd_core_sends_total",
            "Calls that sent something.",
            |c| c.sends.get(),
        ),
        (
            "rflashd_core_received_bytes_total",
            "Bytes received.",
            |c| c.received_bytes.get(),
        ),
        ("rflashd_core_sent_bytes_total", "Bytes sent.", |c| {
            c.sent_bytes.get()
        }),
        (
            "rflashd_core_protocol_errors_total",
            "Connections closed because the peer broke the protocol.",
            |c| c.protocol_errors.get(),
        ),
        (
            "rflashd_core_timeouts_total",
            "Connections closed because a time was over.",
            |c| c.timeouts.get(),
        ),
    ];
    let gauges: [(&'static str, &'static str, Read); 2] = [
        (
            "rflashd_core_connections",
            "Connections of the core.",
            |c| c.connections.get(),
        ),
        (
            "rflashd_core_buffer_bytes",
            "Request buffers in use.",
            |c| c.buffer_bytes.get(),
        ),
    ];
    let mut time = Family::new(
        "rflashd_core_seconds_total",
        "counter",
        "Time by what it was spent on: work, looking for work, sleep.",
    );
    for (index, core) in cores.iter().enumerate() {
        for (state, ns) in [
            ("busy", &core.core.busy_ns),
            ("poll", &core.core.poll_ns),
            ("sleep", &core.core.sleep_ns),
        ] {
            let labels = format!("core=\"{index}\",state=\"{state}\"");
            time.add("", &labels, seconds(ns.get()));
        }
    }
    let mut families = vec![time];
    let kinds = counters
        .iter()
        .map(|f| (f, "counter"))
        .chain(gauges.iter().map(|f| (f, "gauge")));
    for ((name, help, read), kind) in kinds {
        let mut family = Family::new(name, kind, help);
        for (index, core) in cores.iter().enumerate() {
            family.add("", &format!("core=\"{index}\""), read(&core.core));
        }
        families.push(family);
    }
    families
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::metrics::{Registry, TenantSnapshot};
    use crate::service::tenants::tests::bare_entry;
    use crate::service::windows::{Promises, Window};

    pub fn facts() -> Facts {
        Facts {
            entry: bare_entry("a\"b"),
            device: "flash".into(),
            tokens: qos::TenantTokens {
                earned: 7,
                ..Default::default()
            },
            totals: TenantSnapshot {
                reads: 3,
                read_bytes: 12288,
                ..TenantSnapshot::default()
            },
            window: Window {
                read: Quantiles {
                    p95: Some(500_000),
                    ..Quantiles::default()
                },
                ..Window::default()
            },
            promises: Promises {
                windows: 5,
                missed: 1,
                over: 0,
            },
        }
    }

    #[test]
    fn a_page() {
        let registry = Registry::new(2, 1, 1);
        let text = page(&[facts()], registry.cores(), 4);
        let who = "tenant=\"a\\\"b\",subsystem=\"nqn.2024-01.io.example:s\",device=\"flash\"";
        for line in [
            format!("rflashd_tenant_requests_total{{{who},op=\"read\"}} 3"),
            format!("rflashd_tenant_bytes_total{{{who},op=\"read\"}} 12288"),
            format!("rflashd_tenant_latency_seconds{{{who},op=\"read\",quantile=\"0.95\"}} 0.0005"),
            format!("rflashd_tenant_latency_seconds{{{who},op=\"read\",quantile=\"0.5\"}} NaN"),
            format!("rflashd_tenant_latency_seconds_count{{{who},op=\"read\"}} 0"),
            format!("rflashd_tenant_tokens_total{{{who},what=\"earned\"}} 7"),
            format!("rflashd_tenant_slo_violations_total{{{who}}} 1"),
            "rflashd_core_seconds_total{core=\"1\",state=\"sleep\"} 0".into(),
            "rflashd_connections 4".into(),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
        }
        // Each family once, with its type before its samples.
        let mut families: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE ")).collect();
        let all = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), all);
    }
}
