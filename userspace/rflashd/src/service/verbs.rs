// SPDX-License-Identifier: GPL-2.0-only
//! What can be asked for on the admin socket.

use nvme_wire::tenant::Class;
use serde_json::{Value, json};

use super::report;
use super::server::Server;

/// The verbs, for whoever misspells one.
const VERBS: &str =
    "tenants, tenant-add, tenant-set, tenant-remove, tenant-explain, status, reload, metrics";

/// Answer one request.
pub fn answer(server: &Server, verb: &str, request: &Value) -> Result<Value, String> {
    match verb {
        "tenants" => {
            let all: Vec<Value> = server.facts().iter().map(report::tenant).collect();
            Ok(json!({ "tenants": all }))
        }
        "tenant-add" => {
            let host = optional_text(request, "host")?;
            let (name, nqn) = (text(request, "name")?, text(request, "nqn")?);
            server.tenant_add(name, nqn, host, class(request, None)?)?;
            one(server, name)
        }
        "tenant-set" => {
            let name = text(request, "name")?;
            let old = server.tenant(name)?.entry.class;
            server.tenant_set(name, class(request, Some(old))?)?;
            one(server, name)
        }
        "tenant-remove" => {
            server.tenant_remove(text(request, "name")?)?;
            Ok(json!({}))
        }
        "tenant-explain" => {
            let facts = server.tenant(text(request, "name")?)?;
            let granted = server.granted(&facts.entry);
            Ok(json!({ "tenant": report::explanation(&facts, &granted) }))
        }
        "status" => Ok(server.status()),
        "reload" => {
            let changes = server.reload()?;
            Ok(json!({ "changes": changes }))
        }
        "metrics" => Ok(json!({ "text": server.metrics() })),
        _ => Err(format!("there is no verb {verb}: there are {VERBS}")),
    }
}

fn one(server: &Server, name: &str) -> Result<Value, String> {
    Ok(json!({ "tenant": report::tenant(&server.tenant(name)?) }))
}

fn text<'v>(request: &'v Value, key: &str) -> Result<&'v str, String> {
    optional_text(request, key)?.ok_or_else(|| format!("{key} is missing"))
}

fn optional_text<'v>(request: &'v Value, key: &str) -> Result<Option<&'v str>, String> {
    match request.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{key} is not a string")),
    }
}

fn number(request: &Value, key: &str, least: u32, most: u32) -> Result<Option<u32>, String> {
    let value = match request.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_u64().and_then(|n| u32::try_from(n).ok()),
    };
    match value.filter(|n| (least..=most).contains(n)) {
        Some(n) => Ok(Some(n)),
        None => Err(format!(
            "{key} is out of range: give a whole number from {least} to {most}"
        )),
    }
}

/// The class that is asked for. Keys that are not given stay as in `old`.
fn class(request: &Value, old: Option<Class>) -> Result<Class, String> {
    let weight = number(request, "weight", 1, qos::MAX_WEIGHT)?;
    let p95 = number(request, "slo_p95_us", 1, 1_000_000)?;
    let iops = number(request, "slo_iops", 1, 100_000_000)?;
    let read_pct = number(request, "slo_read_pct", 0, 100)?;
    let block = number(request, "slo_block_bytes", 512, 1 << 20)?;
    if block.is_some_and(|b| b % 512 != 0) {
        return Err("slo_block_bytes is out of range: give a multiple of 512".into());
    }
    let slo = p95.is_some() || iops.is_some() || read_pct.is_some() || block.is_some();
    let latency_critical = match optional_text(request, "class")? {
        Some("lc") => true,
        Some("be") => false,
        Some(other) => return Err(format!("class {other} is unknown: give lc or be")),
        None if slo => true,
        None if weight.is_some() => false,
        None => match old {
            Some(old) => return Ok(old),
            None => false,
        },
    };
    if !latency_critical {
        if slo {
            return Err("a best-effort tenant has a weight and no SLO".into());
        }
        let old = match old {
            Some(Class::BestEffort { weight }) => weight,
            _ => qos::DEFAULT_WEIGHT,
        };
        return Ok(Class::BestEffort {
            weight: weight.unwrap_or(old),
        });
    }
    if weight.is_some() {
        return Err("a latency-critical tenant has an SLO and no weight".into());
    }
    let (old_p95, old_iops, old_pct, old_block) = match old {
        Some(Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        }) => (Some(p95_us), Some(iops), read_pct, block),
        _ => (None, None, 100, 4096),
    };
    let missing = |key: &str| format!("{key} is missing: a latency-critical tenant needs it");
    let read_pct = read_pct.unwrap_or(old_pct.into());
    Ok(Class::LatencyCritical {
        p95_us: p95.or(old_p95).ok_or_else(|| missing("slo_p95_us"))?,
        iops: iops.or(old_iops).ok_or_else(|| missing("slo_iops"))?,
        read_pct: u8::try_from(read_pct).unwrap_or(100),
        block: block.unwrap_or(old_block),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Class = Class::LatencyCritical {
        p95_us: 500,
        iops: 1000,
        read_pct: 90,
        block: 8192,
    };

    #[test]
    fn classes() {
        let be = |weight| Class::BestEffort { weight };
        assert_eq!(class(&json!({}), None), Ok(be(100)));
        assert_eq!(class(&json!({"weight": 7}), Some(OLD)), Ok(be(7)));
        assert_eq!(class(&json!({}), Some(OLD)), Ok(OLD));
        assert_eq!(class(&json!({"class": "be"}), Some(be(9))), Ok(be(9)));
        let changed = class(&json!({"slo_iops": 2000}), Some(OLD)).unwrap();
        let Class::LatencyCritical { iops, p95_us, .. } = changed else {
            panic!("{changed}");
        };
        assert_eq!((iops, p95_us), (2000, 500));
        for (request, want) in [
            (json!({"class": "lc"}), "slo_p95_us is missing"),
            (json!({"class": "x"}), "class x is unknown"),
            (json!({"class": 1}), "class is not a string"),
            (json!({"class": "be", "slo_iops": 1}), "no SLO"),
            (json!({"slo_iops": 1, "weight": 1}), "no weight"),
            (
                json!({"weight": 0}),
                "weight is out of range: give a whole number from 1 to 10000",
            ),
            (json!({"weight": "a"}), "weight is out of range"),
            (json!({"slo_block_bytes": 513}), "multiple of 512"),
        ] {
            let error = class(&request, None).unwrap_err();
            assert!(error.contains(want), "{request}: {error}");
        }
    }
}
