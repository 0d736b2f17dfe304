// SPDX-License-Identifier: GPL-2.0-only
//! What the admin socket says of tenants and of the server, as JSON.

use nvme_wire::tenant::Class;
use qos::TenantTokens;
use serde_json::{Value, json};

use super::tenants::Entry;
use super::windows::{Promises, Quantiles, Window};
use crate::metrics::TenantSnapshot;

/// All that is known of a tenant.
pub struct Facts {
    pub entry: Entry,
    pub device: String,
    pub tokens: TenantTokens,
    pub totals: TenantSnapshot,
    pub window: Window,
    pub promises: Promises,
}

fn micros(ns: Option<u64>) -> Value {
    // Three digits behind the point are more than a clock's resolution.
    ns.map_or(Value::Null, |ns| (ns as f64 / 1000.0).into())
}

/// Latencies in microseconds.
fn latency(q: &Quantiles) -> Value {
    json!({
        "mean": micros(q.mean),
        "p50": micros(q.p50),
        "p95": micros(q.p95),
        "p99": micros(q.p99),
        "max": micros(q.max),
    })
}

fn per_second(count: u64, window: &Window) -> u64 {
    if window.length == 0 {
        return 0;
    }
    let whole = u128::from(count) * 1_000_000_000 / u128::from(window.length);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// What is promised; the keys are those of the configuration.
pub fn class(class: Class) -> Value {
    match class {
        Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        } => json!({
            "class": "lc",
            "weight": null,
            "slo_p95_us": p95_us,
            "slo_iops": iops,
            "slo_read_pct": read_pct,
            "slo_block_bytes": block,
        }),
        Class::BestEffort { weight } => json!({
            "class": "be",
            "weight": weight,
            "slo_p95_us": null,
            "slo_iops": null,
            "slo_read_pct": null,
            "slo_block_bytes": null,
        }),
    }
}

fn into(object: &mut Value, more: Value) {
    if let (Value::Object(to), Value::Object(from)) = (object, more) {
        to.extend(from);
    }
}

/// One tenant, as `rflash tenant list -o json` shows it.
pub fn tenant(facts: &Facts) -> Value {
    let Facts {
        entry,
        window,
        totals,
        tokens,
        promises,
        ..
    } = facts;
    let mut object = json!({
        "name": entry.name,
        "nqn": entry.nqn,
        "host": entry.host,
        "device": facts.device,
        "origin": entry.origin.to_string(),
        "cpus": entry.cpus.as_ref().map(|c| crate::config::value::CpuSet(c.clone()).to_string()),
    });
    into(&mut object, class(entry.class));
    into(
        &mut object,
        json!({
            "iops": per_second(window.reads + window.writes, window),
            "bytes_per_second": per_second(window.read_bytes + window.write_bytes, window),
            "read_latency_us": latency(&window.read),
            "write_latency_us": latency(&window.write),
            "slo_windows": promises.windows,
            "slo_missed": promises.missed,
            "slo_over": promises.over,
            "reads": totals.reads,
            "writes": totals.writes,
            "read_bytes": totals.read_bytes,
            "write_bytes": totals.write_bytes,
            "errors": totals.errors,
            "tokens": json!({
                "earned": tokens.earned,
                "spent": tokens.spent,
                "borrowed": tokens.borrowed,
                "donated": tokens.donated,
                "expired": tokens.expired,
                "taken": tokens.taken,
                "credit": tokens.credit,
                "waits": tokens.waits,
            }),
        }),
    );
    object
}

/// Where a tenant's time goes, and why it has what it has.
pub fn explanation(facts: &Facts, granted: &str) -> Value {
    let window = &facts.window;
    let mut object = tenant(facts);
    into(
        &mut object,
        json!({
            "interval_s": window.length as f64 / 1e9,
            "stages": json!({
                "token_wait_us": latency(&window.wait),
                "device_read_us": latency(&window.device),
                "device_write_us": latency(&window.write_device),
                "server_read_us": latency(&window.read),
                "server_write_us": latency(&window.write),
            }),
            "granted": granted,
            "verdict": verdict(facts),
        }),
    );
    object
}

/// One sentence: what p99 of the reads is made of.
fn verdict(facts: &Facts) -> String {
    let window = &facts.window;
    let Some(all) = window.read.p99 else {
        return "no reads lately: there is nothing to explain".into();
    };
    let wait = window.wait.p99.unwrap_or(0).min(all);
    let device = window.device.p99.unwrap_or(0).min(all);
    let rest = all.saturating_sub(wait.max(device));
    let us = |ns: u64| ns as f64 / 1000.0;
    let most = wait.max(device).max(rest);
    let (what, advice) = if most == wait {
        let advice = match facts.entry.class {
            Class::LatencyCritical { .. } if facts.promises.over > 0 => {
                "it asks for more than it was promised"
            }
            Class::LatencyCritical { .. } => "its requests come in bursts",
            Class::BestEffort { .. } => "others have the tokens: a greater weight would help",
        };
        ("waiting for tokens", advice)
    } else if most == device {
        (
            "the device",
            "the tenant's own tokens are not what limits it",
        )
    } else {
        (
            "the server's queue",
            "the cores are busy, or requests come in large batches",
        )
    };
    format!(
        "p99 of reads is {:.0} us, most of it in {what} (p99: tokens {:.0} us, device {:.0} us, queue and reply about {:.0} us): {advice}",
        us(all),
        us(wait),
        us(device),
        us(rest)
    )
}
