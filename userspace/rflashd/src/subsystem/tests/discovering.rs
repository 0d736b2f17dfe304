// SPDX-License-Identifier: GPL-2.0-only
use nvme_wire::command::log;
use nvme_wire::discovery::{self, Header, Record, SubsystemType};
use nvme_wire::nqn;

use super::host::*;
use crate::subsystem::*;

fn named(name: &str, listeners: &[&str]) -> SubsystemSpec {
    SubsystemSpec {
        nqn: format!("nqn.2026-11.org.rflash.test:{name}"),
        listeners: listeners.iter().map(|l| at(l)).collect(),
        ..spec()
    }
}

/// The log as hosts read it: header, then entries in pieces.
fn read(host: &mut Host, piece: u32) -> Vec<Record> {
    let count = Header::of(&host.log(log::DISCOVERY, 1024, 0))
        .unwrap()
        .records(1000)
        .unwrap();
    let mut bytes = Vec::new();
    let end = 1024 * (count + 1);
    let mut offset = 1024;
    while offset < end {
        let len = u64::from(piece).min(end - offset);
        bytes.extend(host.log(log::DISCOVERY, len as u32, offset));
        offset += len;
    }
    discovery::entries(&bytes).unwrap()
}

#[test]
fn what_there_is_to_connect_to() {
    let mut hidden = named("hidden", &["192.0.2.1:4420"]);
    hidden.allowed_hosts = vec!["nqn.2026-11.org.rflash.test:friend".into()];
    let target = target_of(vec![
        named(
            "a",
            &["0.0.0.0:4420", "10.0.0.1:4421", "[2001:db8::1]:4420"],
        ),
        hidden,
        named("b", &["10.0.0.1:4420"]),
        named("none", &[]),
    ]);
    let mut host = Host::ready(&target, nqn::DISCOVERY);
    let records = read(&mut host, 1024);
    let seen: Vec<(&str, &str, &str)> = records
        .iter()
        .map(|r| {
            (
                r.subnqn.rsplit(':').next().unwrap(),
                r.traddr.as_str(),
                r.trsvcid.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (nqn::DISCOVERY, "192.0.2.1", "4420"),
            ("a", "192.0.2.1", "4420"),
            ("a", "10.0.0.1", "4421"),
            ("a", "2001:db8::1", "4420"),
            ("b", "10.0.0.1", "4420"),
        ]
    );
    assert_eq!(records[0].subtype, SubsystemType::Discovery);
    assert_eq!(records[3].adrfam.to_string(), "ipv6");
    for piece in [4, 512, 4096, 1 << 20] {
        assert_eq!(
            read(&mut host, piece),
            records,
            "in pieces of {piece} bytes"
        );
    }
    // Up to the end, and not beyond.
    assert_eq!(host.log(log::DISCOVERY, 8, 6 * 1024), [0; 8]);
    let beyond = nvme_wire::command::Sqe::get_log_page(log::DISCOVERY, 8, 6 * 1024 + 4);
    assert_eq!(host.fail(beyond.unwrap()), 0x002);
}
