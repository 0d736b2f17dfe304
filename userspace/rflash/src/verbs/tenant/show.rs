// SPDX-License-Identifier: GPL-2.0-only
//! Tenants for people. What programs get is the server's own JSON.

use serde_json::Value;

use crate::table::{self, Column, columns};

fn get(row: &Value, key: &str) -> Value {
    let mut at = row;
    for part in key.split('.') {
        match at.get(part) {
            Some(next) => at = next,
            None => return Value::Null,
        }
    }
    at.clone()
}

fn number(row: &Value, key: &str) -> u64 {
    get(row, key).as_u64().unwrap_or(0)
}

/// What was promised, in few words.
fn promise(row: &Value) -> String {
    match get(row, "class").as_str() {
        Some("lc") => {
            let block = number(row, "slo_block_bytes");
            let block = match block {
                4096 => String::new(),
                other => format!(" of {}", table::size(other)),
            };
            format!(
                "p95 {} us, {} IOPS{block}, {} % reads",
                number(row, "slo_p95_us"),
                number(row, "slo_iops"),
                number(row, "slo_read_pct")
            )
        }
        _ => format!("weight {}", number(row, "weight")),
    }
}

fn kept(row: &Value) -> Value {
    let windows = number(row, "slo_windows");
    if windows == 0 {
        return Value::Null;
    }
    let kept = windows - number(row, "slo_missed").min(windows);
    format!("{kept}/{windows} s").into()
}

const TENANTS: &[Column<Value>] = columns![
    "name", "NAME", Text, |r| get(r, "name");
    "class", "CLASS", Text, |r| get(r, "class");
    "promise", "PROMISE", Text, |r| promise(r).into();
    "iops", "IOPS", Number, |r| get(r, "iops");
    "bytes_per_second", "PER S", Size, |r| get(r, "bytes_per_second");
    "p95", "READ P95 us", Micros, |r| get(r, "read_latency_us.p95");
    "kept", "KEPT", Text, |r| kept(r);
    "origin", "FROM", Text, |r| get(r, "origin");
    "device", "DEVICE", Text, |r| get(r, "device");
];

/// All tenants under a line of titles.
pub fn list(tenants: &Value) -> String {
    table::table(TENANTS, tenants.as_array().map_or(&[], Vec::as_slice))
}

const CARD: &[Column<Value>] = columns![
    "name", "Tenant", Text, |r| get(r, "name");
    "nqn", "Subsystem", Text, |r| get(r, "nqn");
    "host", "Host", Text, |r| match get(r, "host") {
        Value::Null => "whoever connects".into(),
        host => host,
    };
    "device", "Device", Text, |r| get(r, "device");
    "promise", "Promise", Text, |r| promise(r).into();
    "kept", "Kept", Text, |r| kept(r);
    "cpus", "CPUs", Text, |r| get(r, "cpus");
];

const STAGES: &[Column<(&'static str, Value)>] = columns![
    "stage", "STAGE", Text, |r| r.0.into();
    "mean", "MEAN us", Micros, |r| get(&r.1, "mean");
    "p50", "P50", Micros, |r| get(&r.1, "p50");
    "p95", "P95", Micros, |r| get(&r.1, "p95");
    "p99", "P99", Micros, |r| get(&r.1, "p99");
    "max", "MAX", Micros, |r| get(&r.1, "max");
];

const TOKENS: &[Column<Value>] = columns![
    "earned", "EARNED", Number, |r| get(r, "earned");
    "taken", "TAKEN", Number, |r| get(r, "taken");
    "spent", "SPENT", Number, |r| get(r, "spent");
    "borrowed", "BORROWED", Number, |r| get(r, "borrowed");
    "donated", "DONATED", Number, |r| get(r, "donated");
    "expired", "EXPIRED", Number, |r| get(r, "expired");
    "credit", "CREDIT", Number, |r| get(r, "credit");
    "waits", "WAITS", Number, |r| get(r, "waits");
];

/// Everything about one tenant, and a verdict.
pub fn explanation(tenant: &Value) -> String {
    let mut out = table::card(CARD, tenant);
    let granted = get(tenant, "granted");
    if let Some(text) = granted.as_str().filter(|t| !t.is_empty()) {
        out.push_str(&format!("\n{text}\n"));
    }
    let seconds = get(tenant, "interval_s").as_f64().unwrap_or(0.0);
    out.push_str(&format!(
        "\nWhere time was spent in the last {seconds:.1} s:\n"
    ));
    let stages: Vec<_> = [
        ("waiting for tokens", "token_wait_us"),
        ("at the device, reads", "device_read_us"),
        ("at the device, writes", "device_write_us"),
        ("in the server, reads", "server_read_us"),
        ("in the server, writes", "server_write_us"),
    ]
    .into_iter()
    .map(|(name, key)| (name, get(tenant, &format!("stages.{key}"))))
    .collect();
    out.push_str(&table::table(STAGES, &stages));
    out.push_str("\nTokens since it began:\n");
    out.push_str(&table::table(TOKENS, &[get(tenant, "tokens")]));
    if let Some(verdict) = get(tenant, "verdict").as_str() {
        out.push_str(&format!("\nVerdict: {verdict}.\n"));
    }
    out
}
