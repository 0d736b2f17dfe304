// SPDX-License-Identifier: GPL-2.0-only
//! Peers that break the rules: each loses its connection, with the right
//! terminate request, and costs the others nothing.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nvme_wire::command::Sqe;
use nvme_wire::fabrics::*;
use nvme_wire::pdu::*;
use rflashd::dataplane::Settings;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::host::*;

type Deed = (&'static str, fn(&mut Host), u16, u32);

fn write_r2t(host: &mut Host) -> R2t {
    let mut sqe = Sqe::write(1, 0, 8, 4096);
    sqe.cid = U16::new(5);
    let bytes = host.capsule(&sqe, &[]);
    host.send(&bytes);
    let Some(Got::R2t(r2t)) = host.receive() else {
        panic!("no R2T");
    };
    r2t
}

fn changed(host: &mut Host, at: usize, value: u8) {
    let mut bytes = host.capsule(&Sqe::read(1, 0, 1, 512), &[]);
    bytes[at] = value;
    host.send(&bytes);
}

fn data(host: &mut Host, change: impl Fn(&mut R2t), at: usize, len: usize, last: bool) {
    let mut r2t = write_r2t(host);
    change(&mut r2t);
    let bytes = host.h2c(&r2t, at, &vec![1; len], last);
    host.send(&bytes);
}

/// What is done, and the terminate request's FES and FEI.
const DEEDS: &[Deed] = &[
    ("a type there is not", |h| changed(h, 0, 0x0a), 1, 0),
    ("a type out of place", |h| changed(h, 0, 0x05), 2, 0),
    ("a second ICReq", |h| changed(h, 0, 0x00), 2, 0),
    ("flags", |h| changed(h, 1, 0x80), 1, 1),
    ("hlen", |h| changed(h, 2, 71), 1, 2),
    (
        "pdo",
        |h| {
            let mut bytes = h.capsule(&Sqe::write(1, 0, 1, 512).in_capsule(), &[0; 512]);
            bytes[3] = 70;
            h.send(&bytes);
        },
        1,
        3,
    ),
    ("plen too small", |h| changed(h, 4, 71), 1, 4),
    ("plen beyond the capsule", |h| changed(h, 6, 1), 1, 3),
    (
        "too much in the capsule",
        |h| {
            let bytes = h.capsule(&Sqe::write(1, 0, 17, 8704).in_capsule(), &[0; 8704]);
            h.send(&bytes);
        },
        1,
        4,
    ),
    (
        "data nobody asked for",
        |h| {
            let r2t = R2t {
                cid: 1,
                ttag: 9,
                offset: 0,
                length: 512,
            };
            let bytes = h.h2c(&r2t, 0, &[0; 512], true);
            h.send(&bytes);
        },
        1,
        10,
    ),
    (
        "another tag",
        |h| data(h, |r| r.ttag += 1, 0, 4096, true),
        1,
        10,
    ),
    (
        "another cid",
        |h| data(h, |r| r.cid += 1, 0, 4096, true),
        1,
        8,
    ),
    (
        "data with a gap",
        |h| data(h, |_| (), 512, 512, false),
        4,
        12,
    ),
    ("too much data", |h| data(h, |_| (), 0, 4608, true), 4, 16),
    ("LAST too soon", |h| data(h, |_| (), 0, 512, true), 1, 1),
    ("LAST missing", |h| data(h, |_| (), 0, 4096, false), 1, 1),
    (
        "an offset that is odd",
        |h| data(h, |r| r.offset = 3, 0, 512, false),
        1,
        12,
    ),
];

#[test]
fn each_bad_pdu_ends_its_connection_only() {
    let server = Server::start(settings());
    let mut witness = Session::open(&server, PLAIN);
    for &(what, deed, fes, fei) in DEEDS {
        let mut session = Session::open(&server, PLAIN);
        deed(&mut session.io);
        let term = session
            .io
            .last_words()
            .unwrap_or_else(|| panic!("{what}: no C2HTermReq"));
        assert_eq!((term.status as u16, term.info), (fes, fei), "{what}");
        let (status, ..) = witness.io.run(Sqe::read(1, 0, 1, 512), &[]);
        assert!(status.is_success(), "{what}");
    }
    let stats = &server.registry.core(0).unwrap().core;
    assert_eq!(stats.protocol_errors.get(), DEEDS.len() as u64);
    server.wait_for_connections(2);
}

#[test]
fn header_digest_is_checked() {
    let server = Server::start(settings());
    let options = Options {
        hdr_digest: true,
        ..PLAIN
    };
    let mut session = Session::open(&server, options);
    let mut bytes = session.io.capsule(&Sqe::read(1, 0, 1, 512), &[]);
    bytes[72] ^= 1;
    let wire = u32::from_le_bytes([bytes[72], bytes[73], bytes[74], bytes[75]]);
    session.io.send(&bytes);
    let term = session.io.last_words().unwrap();
    assert_eq!((term.status, term.info), (TermStatus::HeaderDigest, wire));
}

#[test]
fn more_commands_than_entries() {
    let server = Server::start(settings());
    let options = Options {
        entries: 4,
        ..PLAIN
    };
    let mut session = Session::open(&server, options);
    for cid in 0..5 {
        let mut sqe = Sqe::write(1, 0, 8, 4096);
        sqe.cid = U16::new(cid);
        let bytes = session.io.capsule(&sqe, &[]);
        session.io.send(&bytes);
    }
    let term = session.io.last_words().unwrap();
    assert_eq!(term.status, TermStatus::SequenceError);
}

#[test]
fn commands_before_connect() {
    let server = Server::start(settings());
    let mut host = Host::open(server.address, PLAIN);
    let bytes = host.capsule(&Sqe::read(1, 0, 1, 512), &[]);
    host.send(&bytes);
    assert_eq!(host.last_words().unwrap().status, TermStatus::SequenceError);
    // Connect data that is no such thing is refused, not fatal.
    let mut host = Host::open(server.address, PLAIN);
    let (status, ..) = host.run(ConnectCmd::new(0, 32, 0, 0).sqe(), &[0; 1024]);
    assert!(!status.is_success());
    let (status, ..) = host.run(ConnectCmd::new(0, 32, 0, 0).sqe(), &[0; 100]);
    assert!(!status.is_success());
    assert_ne!(host.connect(0, CNTLID_ANY, PLAIN), 0xffff);
}

#[test]
fn one_connect_at_a_time() {
    let server = Server::start(settings());
    let mut host = Host::open(server.address, PLAIN);
    let mut sqe = ConnectCmd::new(0, 32, 0, 0).sqe();
    sqe.sgl.kind = nvme_wire::command::sgl::TRANSPORT;
    let bytes = host.capsule(&sqe, &[]).repeat(2);
    host.send(&bytes);
    assert_eq!(host.last_words().unwrap().status, TermStatus::SequenceError);
    // By R2T it works as well as in the capsule.
    let mut host = Host::open(server.address, PLAIN);
    let data = ConnectData::new([9; 16], CNTLID_ANY, NQN, HOST).unwrap();
    let (status, ..) = host.run(sqe, data.as_bytes());
    assert!(status.is_success(), "{status}");
}

#[test]
fn wrong_version() {
    let server = Server::start(settings());
    let mut stream = TcpStream::connect(server.address).unwrap();
    let asked = IcReq {
        hdr_digest: false,
        data_digest: false,
        align: 4,
        max_r2t: 1,
    };
    let mut pdu = asked.pdu();
    pdu.pfv = U16::new(1);
    stream.write_all(pdu.as_bytes()).unwrap();
    let mut host = Host::raw(stream);
    let term = host.last_words().unwrap();
    assert_eq!(term.status, TermStatus::UnsupportedParameter);
}

#[test]
fn who_says_nothing_is_sent_away() {
    let server = Server::start(Settings {
        handshake: 200_000_000,
        stuck: 300_000_000,
        ..settings()
    });
    let begun = Instant::now();
    let silent = TcpStream::connect(server.address).unwrap();
    let half = Host::open(server.address, PLAIN);
    let mut session = Session::open(&server, PLAIN);
    // Half a command.
    let bytes = session.io.capsule(&Sqe::read(1, 0, 1, 512), &[]);
    session.io.send(&bytes[..40]);
    let mut asked = session.queue(&server, 2, PLAIN);
    write_r2t(&mut asked);
    for stream in [silent, half.stream, session.io.stream, asked.stream] {
        let mut host = Host::raw(stream);
        host.last_words();
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    server.wait_for_connections(1);
    let stats = &server.registry.core(0).unwrap().core;
    assert_eq!(stats.timeouts.get(), 4);
    assert!(session.admin.run(Sqe::keep_alive(), &[]).0.is_success());
}

/// Hosts that vanish with commands in every state.
#[test]
fn disconnect_with_commands_in_flight() {
    let server = Server::start(settings());
    let mut witness = Session::open(&server, PLAIN);
    for i in 0..30 {
        let mut session = Session::open(&server, PLAIN);
        let host = &mut session.io;
        let mut bytes = Vec::new();
        for cid in 0..40_u16 {
            let mut sqe = match cid % 3 {
                0 => Sqe::read(1, 0, 2048, 1 << 20),
                1 => Sqe::write(1, 0, 512, 256 << 10),
                _ => Sqe::flush(1),
            };
            sqe.cid = U16::new(cid);
            bytes.extend(host.capsule(&sqe, &[]));
        }
        let cut = bytes.len() - i;
        host.send(&bytes[..cut]);
        if i % 2 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(session);
    }
    server.wait_for_connections(2);
    for _ in 0..20 {
        let data = pattern(5, 512 << 10);
        assert!(
            witness
                .io
                .run(Sqe::write(1, 0, 1024, 512 << 10), &data)
                .0
                .is_success()
        );
        assert!(witness.io.run(Sqe::read(1, 0, 1024, 512 << 10), &[]).2 == data);
    }
}

/// Bytes without sense never end more than their own connection.
#[test]
fn noise() {
    let server = Server::start(settings());
    let mut witness = Session::open(&server, PLAIN);
    for seed in 0..200_u64 {
        let mut host = Host::open(server.address, PLAIN);
        if seed % 2 == 0 {
            host.connect(
                0,
                CNTLID_ANY,
                Options {
                    entries: 32,
                    ..PLAIN
                },
            );
        }
        let mut bytes = pattern(seed + 1, 3000);
        if seed % 3 == 0 {
            // A header that is right, and a command that is not.
            bytes[..8].copy_from_slice(&[4, 0, 72, 0, 72, 0, 0, 0]);
        }
        let _ = host.stream.write_all(&bytes);
        if seed % 10 == 0 {
            assert!(witness.io.run(Sqe::read(1, 0, 8, 4096), &[]).0.is_success());
        }
    }
    server.wait_for_connections(2);
}
