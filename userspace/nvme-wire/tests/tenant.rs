// SPDX-License-Identifier: GPL-2.0-only
//! The vectors in tests/vectors/tenant, which the driver reads as well.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;

use nvme_wire::WireError;
use nvme_wire::identify;
use nvme_wire::tenant::{Class, TenantData};
use zerocopy::{FromZeros, IntoBytes};

struct Vector {
    name: String,
    bytes: Vec<u8>,
    fields: BTreeMap<String, u32>,
    error: Option<(String, u64)>,
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn pair(text: &str) -> (String, u64) {
    let (field, value) = text.split_once('=').unwrap();
    (field.to_string(), number(value))
}

fn vector(paragraph: &str) -> Vector {
    let lines: Vec<_> = paragraph
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split_once(": ").expect("a line is `key: value`"))
        .collect();
    let get = |key: &str| lines.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let hex = lines.iter().filter(|(k, _)| *k == "hex");
    let fields = get("expect").unwrap_or_default().split_whitespace();
    Vector {
        name: get("name").unwrap().to_string(),
        bytes: hex
            .flat_map(|(_, v)| v.split_whitespace())
            .map(|b| u8::from_str_radix(b, 16).unwrap())
            .collect(),
        fields: fields
            .map(pair)
            .map(|(k, v)| (k, v.try_into().unwrap()))
            .collect(),
        error: get("error").map(pair),
    }
}

fn vectors(file: &str) -> Vec<Vector> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/tenant");
    let text = std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
    let paragraphs = text.split("\n\n").filter(|p| p.contains("name: "));
    paragraphs.map(vector).collect()
}

fn class(fields: &BTreeMap<String, u32>) -> Class {
    match fields["class"] {
        1 => Class::LatencyCritical {
            p95_us: fields["p95_us"],
            iops: fields["iops"],
            read_pct: fields["read_pct"].try_into().unwrap(),
            block: fields["block"],
        },
        2 => Class::BestEffort {
            weight: fields["weight"],
        },
        other => panic!("class {other}"),
    }
}

#[test]
fn data() {
    let all = vectors("data.txt");
    assert!(all.iter().any(|v| v.error.is_some()) && all.iter().any(|v| v.error.is_none()));
    for v in all {
        let got = TenantData::decode(&v.bytes);
        match (&v.error, got) {
            (None, Ok(got)) => {
                assert_eq!(got, class(&v.fields), "{}", v.name);
                assert_eq!(got.data().as_bytes(), v.bytes, "{}", v.name);
            }
            (
                Some((field, value)),
                Err(WireError::Field {
                    field: at,
                    value: got,
                    ..
                }),
            ) => {
                assert_eq!((at, got), (field.as_str(), *value), "{}", v.name);
            }
            (_, got) => panic!("{}: {got:?}", v.name),
        }
    }
}

#[test]
fn signature() {
    for v in vectors("signature.txt") {
        let mut controller = identify::Controller::new_zeroed();
        controller.vendor.as_mut_bytes()[..16].copy_from_slice(&v.bytes);
        let version = controller.tenant_version().map_or(0, u32::from);
        assert_eq!(version, v.fields["version"], "{}", v.name);
    }
}
