// SPDX-License-Identifier: GPL-2.0-only
//! The PDUs in tests/vectors/nvme_tcp, which the driver's codec reads as well.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nvme_wire::pdu::*;
use nvme_wire::{WireError, digest};
use zerocopy::{Immutable, IntoBytes};

/// What a PDU must come out as: its fields, or the one that is to blame.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Fields(BTreeMap<String, u64>),
    Blame(String, Option<u64>),
}

struct Vector {
    name: String,
    hdr_digest: bool,
    data_digest: bool,
    cpda: usize,
    bytes: Vec<u8>,
    want: Outcome,
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn parse(text: &str) -> Vec<Vector> {
    let paragraphs = text.split("\n\n").map(|p| {
        p.lines()
            .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
            .map(|l| l.split_once(':').map(|(k, v)| (k.trim(), v.trim())))
            .map(|pair| pair.expect("a line is `key: value`"))
            .collect::<Vec<_>>()
    });
    paragraphs
        .filter(|p| !p.is_empty())
        .map(|p| vector(&p))
        .collect()
}

fn vector(lines: &[(&str, &str)]) -> Vector {
    let get = |key: &str| lines.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let name = get("name").unwrap().to_string();
    let bytes = lines
        .iter()
        .filter(|(k, _)| *k == "hex")
        .flat_map(|(_, v)| v.split_whitespace())
        .map(|b| u8::from_str_radix(b, 16).unwrap())
        .collect();
    let want = match (get("expect"), get("error")) {
        (Some(fields), None) => Outcome::Fields(
            fields
                .split_whitespace()
                .map(|f| f.split_once('=').unwrap())
                .map(|(k, v)| (k.to_string(), number(v)))
                .collect(),
        ),
        (None, Some(blame)) => match blame.split_once('=') {
            Some((field, value)) => Outcome::Blame(field.to_string(), Some(number(value))),
            None => Outcome::Blame(blame.to_string(), None),
        },
        _ => panic!("{name}: either `expect` or `error`"),
    };
    let digests = get("digests").unwrap();
    assert!(
        ["none", "header", "data", "both"].contains(&digests),
        "{name}"
    );
    Vector {
        hdr_digest: matches!(digests, "header" | "both"),
        data_digest: matches!(digests, "data" | "both"),
        cpda: get("cpda").map_or(0, |c| number(c) as usize),
        name,
        bytes,
        want,
    }
}

impl Vector {
    fn link(&self, open: bool) -> Link {
        Link {
            open,
            // Until a connection is open, nothing has a digest.
            hdr_digest: open && self.hdr_digest,
            data_digest: open && self.data_digest,
            receive_align: (self.cpda + 1) * 4,
            send_align: (self.cpda + 1) * 4,
            max_capsule_data: u32::MAX,
            max_h2c_data: u32::MAX,
        }
    }

    fn decode(&self, receiver: Side, open: bool) -> Outcome {
        match self.fields(receiver, &self.link(open)) {
            Ok(fields) => Outcome::Fields(
                fields
                    .into_iter()
                    .map(|(k, v)| (k.to_string(), v))
                    .collect(),
            ),
            Err(WireError::Field { field, value, .. }) => {
                Outcome::Blame(field.to_string(), Some(value))
            }
            Err(WireError::Digest { what: "header", .. }) => Outcome::Blame("hdgst".into(), None),
            Err(WireError::Digest { what: "data", .. }) => Outcome::Blame("ddgst".into(), None),
            Err(other) => panic!("{}: {other}", self.name),
        }
    }

    fn fields(&self, receiver: Side, link: &Link) -> Result<Vec<(&'static str, u64)>, WireError> {
        let frame = frame(common_header(&self.bytes)?, receiver, link)?;
        let pdu = decode(&frame, &self.bytes)?;
        if frame.data_digest {
            let data = &self.bytes[frame.data_offset..];
            let (data, wire) = data.split_at(frame.data_len);
            digest::check("data", data, wire)?;
        }
        let head_len = frame.data_offset as u64;
        let pad = (frame.data_offset - frame.head_len) as u64;
        Ok(match pdu {
            Pdu::IcReq(ic) => vec![
                ("pfv", 0),
                ("hpda", ic.align as u64 / 4 - 1),
                ("hdgst", ic.hdr_digest.into()),
                ("ddgst", ic.data_digest.into()),
                ("maxr2t", ic.max_r2t - 1),
            ],
            Pdu::IcResp(ic) => {
                ic.check_against(&IcReq {
                    hdr_digest: self.hdr_digest,
                    data_digest: self.data_digest,
                    align: 4,
                    max_r2t: 1,
                })?;
                vec![
                    ("pfv", 0),
                    ("cpda", ic.align as u64 / 4 - 1),
                    ("hdgst", ic.hdr_digest.into()),
                    ("ddgst", ic.data_digest.into()),
                    ("maxh2cdata", ic.max_h2c_data.into()),
                ]
            }
            Pdu::Term(term) => vec![("fes", term.status as u64), ("fei", term.info.into())],
            Pdu::CapsuleCmd(sqe) => vec![
                ("cid", sqe.cid.get().into()),
                ("inline_len", frame.data_len as u64),
                ("head_len", head_len),
            ],
            Pdu::CapsuleResp(cqe) => vec![
                ("cid", cqe.cid.get().into()),
                ("status", cqe.status().0.into()),
                ("result", cqe.result.get()),
                ("sq_head", cqe.sq_head.get().into()),
            ],
            Pdu::H2cData(d) => vec![
                ("cid", d.cid.into()),
                ("ttag", d.ttag.into()),
                ("offset", d.offset.into()),
                ("length", d.length.into()),
                ("head_len", head_len),
                ("last", d.last.into()),
            ],
            Pdu::C2hData(d) => vec![
                ("cid", d.cid.into()),
                ("offset", d.offset.into()),
                ("length", d.length.into()),
                ("pad", pad),
                ("last", d.last.into()),
                ("success", d.success.into()),
            ],
            Pdu::R2t(r) => vec![
                ("cid", r.cid.into()),
                ("ttag", r.ttag.into()),
                ("offset", r.offset.into()),
                ("length", r.length.into()),
            ],
        })
    }

    /// The bytes again, made of what was decoded.
    fn encode(&self, receiver: Side, open: bool) -> Vec<u8> {
        let mut link = self.link(open);
        let frame = frame(common_header(&self.bytes).unwrap(), receiver, &link).unwrap();
        let pdu = decode(&frame, &self.bytes).unwrap();
        if frame.kind == PduType::C2hData && frame.data_offset > frame.head_len {
            link.send_align = frame.data_offset;
        }
        let data = &self.bytes[frame.data_offset..][..frame.data_len];
        let mut out = match pdu {
            Pdu::IcReq(ic) => head(&ic.pdu(), &link),
            Pdu::IcResp(ic) => head(&ic.pdu(), &link),
            Pdu::Term(term) => head(&term_pdu(&term, receiver, data.len()), &link),
            Pdu::CapsuleCmd(sqe) => head(&cmd_pdu(sqe, data.len() as u32, &link), &link),
            Pdu::CapsuleResp(cqe) => head(&rsp_pdu(cqe, &link), &link),
            Pdu::H2cData(d) | Pdu::C2hData(d) => head(&data_pdu(&d, receiver, &link), &link),
            Pdu::R2t(r) => head(&r2t_pdu(&r, &link), &link),
        };
        out.extend_from_slice(data);
        if frame.data_digest {
            out.extend_from_slice(&digest::to_wire(digest::of(data)));
        }
        out
    }
}

fn head<T: IntoBytes + Immutable>(pdu: &T, link: &Link) -> Vec<u8> {
    let mut out = Vec::new();
    head_bytes(pdu, link, &mut out);
    out
}

/// Vectors in which the sender has put something where nothing belongs; they
/// are decoded, but nobody would encode them so.
const NOT_ENCODED: &[&str] = &[
    "icresp_reserved_bytes",
    "r2t_pdo_reserved",
    "rsp_pdo_reserved",
];

/// Decode and encode every vector of a file; how many there were.
fn run(file: &str, receiver: Side, open: bool) -> (usize, usize) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/nvme_tcp");
    let text = fs::read_to_string(Path::new(directory).join(file)).unwrap();
    let (mut good, mut bad) = (0, 0);
    for v in parse(&text) {
        assert_eq!(v.decode(receiver, open), v.want, "{}", v.name);
        match v.want {
            Outcome::Fields(_) => {
                good += 1;
                if !NOT_ENCODED.contains(&v.name.as_str()) {
                    assert_eq!(v.encode(receiver, open), v.bytes, "{}", v.name);
                }
            }
            Outcome::Blame(..) => bad += 1,
        }
    }
    (good, bad)
}

macro_rules! vectors {
    ($($name:ident: $receiver:ident, $open:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let (good, bad) = run(concat!(stringify!($name), ".txt"), Side::$receiver, $open);
                assert!(good > 0 && bad > 0, "{good} good, {bad} bad");
            }
        )*

        /// Every file there is has a test.
        #[test]
        fn no_file_is_forgotten() {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/nvme_tcp");
            let mut known = vec!["type.txt"];
            known.extend([$(concat!(stringify!($name), ".txt")),*]);
            for entry in fs::read_dir(directory).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(known.contains(&name.to_str().unwrap()), "{name:?}");
            }
        }
    };
}

vectors! {
    icreq: Controller, false;
    icresp: Host, false;
    cmd: Controller, true;
    h2c_data: Controller, true;
    h2c_term: Controller, true;
    rsp: Host, true;
    c2h_data: Host, true;
    c2h_term: Host, true;
    r2t: Host, true;
}

#[test]
fn types() {
    let (good, bad) = run("type.txt", Side::Host, true);
    assert!(good == 0 && bad > 0);
}
