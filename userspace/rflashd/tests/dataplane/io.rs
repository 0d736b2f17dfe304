// SPDX-License-Identifier: GPL-2.0-only
//! Commands and their data.

use std::io::Write;
use std::time::Duration;

use nvme_wire::command::{DsmRange, FUA, Sqe, admin, io};
use nvme_wire::digest;
use nvme_wire::status::Status;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::host::*;

fn read(lba: u64, bytes: usize) -> Sqe {
    Sqe::read(1, lba, (bytes / 512) as u32, bytes as u32)
}

fn write(lba: u64, bytes: usize) -> Sqe {
    Sqe::write(1, lba, (bytes / 512) as u32, bytes as u32)
}

fn all_options() -> Vec<Options> {
    let mut all = Vec::new();
    for hdr_digest in [false, true] {
        for data_digest in [false, true] {
            for flow_off in [false, true] {
                all.push(Options {
                    hdr_digest,
                    data_digest,
                    flow_off,
                    align: if hdr_digest { 64 } else { 4 },
                    entries: 64,
                });
            }
        }
    }
    all
}

#[test]
fn writes_of_many_sizes_are_read_back() {
    let server = Server::start(settings());
    for (seed, options) in all_options().into_iter().enumerate() {
        let mut session = Session::open(&server, options);
        let host = &mut session.io;
        for (i, len) in [
            512,
            1024,
            4096,
            8192,
            8704,
            65536,
            262_144,
            262_656,
            1 << 20,
        ]
        .into_iter()
        .enumerate()
        {
            let data = pattern((seed * 100 + i) as u64, len);
            let lba = (i * 3000) as u64;
            let mut sqe = write(lba, len);
            if len <= 8192 && i % 2 == 0 {
                sqe = sqe.in_capsule();
            }
            let (status, ..) = host.run(sqe, &data);
            assert!(status.is_success(), "{status}");
            let (status, _, back) = host.run(read(lba, len), &[]);
            assert!(status.is_success(), "{status}");
            assert!(back == data, "{len} bytes differ");
        }
    }
}

#[test]
fn every_opcode() {
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let host = &mut session.io;
    let data = pattern(1, 4096);
    let mut fua = write(8, 4096).in_capsule();
    fua.cdw12 = U32::new(fua.cdw12.get() | FUA);
    assert!(host.run(fua, &data).0.is_success());
    assert!(host.run(Sqe::flush(1), &[]).0.is_success());
    assert_eq!(host.run(read(8, 4096), &[]).2, data);
    assert!(host.run(Sqe::write_zeroes(1, 9, 2), &[]).0.is_success());
    let back = host.run(read(8, 4096), &[]).2;
    assert_eq!(back[512..1536], [0; 1024]);
    assert_eq!(back[1536..], data[1536..]);

    let ranges = [(8_u64, 1_u32), (0, 0), (14, 2)].map(|(lba, blocks)| DsmRange {
        lba: U64::new(lba),
        blocks: U32::new(blocks),
        ..DsmRange::default()
    });
    for in_capsule in [true, false] {
        assert!(host.run(write(8, 4096).in_capsule(), &data).0.is_success());
        let mut sqe = Sqe::deallocate(1, 3);
        if in_capsule {
            sqe = sqe.in_capsule();
        }
        let (status, ..) = host.run(sqe, ranges.as_bytes());
        assert!(status.is_success(), "{status}");
        let back = host.run(read(8, 4096), &[]).2;
        assert_eq!(back[..512], [0; 512]);
        assert_eq!(back[512..3072], data[512..3072]);
        assert_eq!(back[3072..], [0; 1024]);
    }
    let (status, ..) = host.run(Sqe::new(0x55, 1, 0), &[]);
    assert_eq!(status.code(), Status::INVALID_OPCODE.code());
    // Namespace 2 keeps nothing and reads as zeroes.
    let mut sqe = write(0, 4096).in_capsule();
    sqe.nsid = U32::new(2);
    assert!(host.run(sqe, &data).0.is_success());
    let mut sqe = read(0, 1 << 20);
    sqe.nsid = U32::new(2);
    assert!(host.run(sqe, &[]).2 == vec![0; 1 << 20]);
}

#[test]
fn what_can_not_be_is_refused_and_the_queue_goes_on() {
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let host = &mut session.io;
    let last = DISK / 512;
    let with = |mut sqe: Sqe, f: &dyn Fn(&mut Sqe)| {
        f(&mut sqe);
        sqe
    };
    let cases: Vec<(Sqe, usize, u16)> = vec![
        (read(last, 512), 0, 0x080),
        (read(last - 1, 1024), 0, 0x080),
        (read(u64::MAX, 512), 0, 0x080),
        (write(last - 1, 1024).in_capsule(), 1024, 0x080),
        (Sqe::write_zeroes(1, last, 1), 0, 0x080),
        (with(read(0, 512), &|s| s.nsid = U32::new(4)), 0, 0x00b),
        (with(read(0, 512), &|s| s.nsid = U32::new(0)), 0, 0x00b),
        (
            with(read(0, 512), &|s| s.sgl.length = U32::new(1024)),
            0,
            0x00f,
        ),
        (with(read(0, 512), &|s| s.sgl.kind = 0x42), 0, 0x011),
        (
            with(write(0, 512).in_capsule(), &|s| {
                s.sgl.length = U32::new(1024)
            }),
            512,
            0x00f,
        ),
        (
            with(write(0, 512).in_capsule(), &|s| {
                s.sgl.address = U64::new(64)
            }),
            512,
            0x016,
        ),
        (
            with(write(0, 512).in_capsule(), &|s| s.nsid = U32::new(3)),
            512,
            0x020,
        ),
        (Sqe::read(1, 0, 4096, 4096 * 512), 0, 0x002),
    ];
    for (i, (sqe, data, want)) in cases.into_iter().enumerate() {
        let (status, ..) = host.run(sqe, &vec![1; data]);
        assert_eq!(status.code(), want, "case {i}: {status}");
        assert!(status.do_not_retry());
        assert!(host.run(read(0, 512), &[]).0.is_success());
    }
    let outside = DsmRange {
        lba: U64::new(last),
        blocks: U32::new(1),
        ..DsmRange::default()
    };
    let (status, ..) = host.run(Sqe::deallocate(1, 1).in_capsule(), outside.as_bytes());
    assert_eq!(status.code(), 0x080);
}

#[test]
fn one_byte_at_a_time() {
    let server = Server::start(settings());
    for options in [
        PLAIN,
        Options {
            hdr_digest: true,
            data_digest: true,
            ..PLAIN
        },
    ] {
        let mut session = Session::open(&server, options);
        let host = &mut session.io;
        let data = pattern(3, 512);
        let mut sqe = write(5, 512).in_capsule();
        sqe.cid = U16::new(77);
        let mut bytes = host.capsule(&sqe, &data);
        let mut sqe = read(5, 512);
        sqe.cid = U16::new(78);
        bytes.extend(host.capsule(&sqe, &[]));
        for byte in bytes {
            host.send(&[byte]);
            std::thread::sleep(Duration::from_micros(20));
        }
        assert!(
            matches!(host.receive(), Some(Got::Done { cid: 77, status, .. }) if status.is_success())
        );
        let Some(Got::Data {
            cid: 78,
            bytes,
            success: true,
            ..
        }) = host.receive()
        else {
            panic!("no data");
        };
        assert_eq!(bytes, data);
        // The same by R2T.
        let mut sqe = write(9, 1024);
        sqe.cid = U16::new(79);
        let capsule = host.capsule(&sqe, &[]);
        host.send(&capsule);
        let Some(Got::R2t(r2t)) = host.receive() else {
            panic!("no R2T");
        };
        let data = pattern(4, 1024);
        for byte in host.h2c(&r2t, 0, &data, true) {
            host.send(&[byte]);
            std::thread::sleep(Duration::from_micros(20));
        }
        assert!(
            matches!(host.receive(), Some(Got::Done { cid: 79, status, .. }) if status.is_success())
        );
        assert_eq!(host.run(read(9, 1024), &[]).2, data);
    }
}

#[test]
fn many_pdus_in_one_segment() {
    let server = Server::start(settings());
    let mut session = Session::open(
        &server,
        Options {
            entries: 1024,
            ..PLAIN
        },
    );
    let host = &mut session.io;
    let mut bytes = Vec::new();
    for i in 0..500_u16 {
        let data = pattern(i.into(), 512);
        let mut sqe = write(i.into(), 512).in_capsule();
        sqe.cid = U16::new(i);
        bytes.extend(host.capsule(&sqe, &data));
        let mut sqe = read(i.into(), 512);
        sqe.cid = U16::new(i + 500);
        bytes.extend(host.capsule(&sqe, &[]));
    }
    host.send(&bytes);
    for i in 0..500 {
        assert!(matches!(host.receive(), Some(Got::Done { cid, .. }) if cid == i));
        let Some(Got::Data { cid, bytes, .. }) = host.receive() else {
            panic!("no data");
        };
        assert_eq!(cid, i + 500);
        assert_eq!(bytes, pattern(i.into(), 512));
    }
    let stats = &server.registry.core(0).unwrap().core;
    assert!(
        stats.receives.get() < 500,
        "{} receives",
        stats.receives.get()
    );
}

/// The host takes replies slowly while many are outstanding: they wait, in
/// order and whole, with and without digests.
#[test]
fn short_sends() {
    let server = Server::start(settings());
    for data_digest in [false, true] {
        let options = Options {
            data_digest,
            entries: 64,
            ..PLAIN
        };
        let mut session = Session::open(&server, options);
        let host = &mut session.io;
        let data = pattern(8, 1 << 20);
        assert!(host.run(write(0, 1 << 20), &data).0.is_success());
        rustix::net::sockopt::set_socket_recv_buffer_size(&host.stream, 65536).unwrap();
        let mut bytes = Vec::new();
        for i in 0..48_u16 {
            let mut sqe = read(u64::from(i) * 16, 256 << 10);
            sqe.cid = U16::new(i);
            bytes.extend(host.capsule(&sqe, &[]));
        }
        host.send(&bytes);
        std::thread::sleep(Duration::from_millis(100));
        let mut seen = [false; 48];
        for _ in 0..48 {
            let Some(Got::Data {
                cid,
                bytes,
                success: true,
                ..
            }) = host.receive()
            else {
                panic!("no data");
            };
            let begin = usize::from(cid) * 16 * 512;
            assert!(
                bytes == data[begin..begin + (256 << 10)],
                "read {cid} differs"
            );
            assert!(!std::mem::replace(&mut seen[usize::from(cid)], true));
        }
        assert!(host.run(read(0, 512), &[]).0.is_success());
    }
}

/// Many R2T writes at once: more than there are buffers for, and data in any
/// order.
#[test]
fn more_writes_than_buffers() {
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let host = &mut session.io;
    let (count, len) = (64_u16, 128 << 10);
    for i in 0..count {
        let mut sqe = write(u64::from(i) * 256, len);
        sqe.cid = U16::new(i);
        let bytes = host.capsule(&sqe, &[]);
        host.send(&bytes);
    }
    let mut waiting = Vec::new();
    let mut done = 0;
    while done < count {
        if waiting.len() == 8 || (done + waiting.len() as u16) == count {
            let r2t: nvme_wire::pdu::R2t = waiting.pop().unwrap();
            let data = pattern(r2t.cid.into(), len);
            host.answer(&r2t, &data);
            // Whatever comes first now.
        }
        match host.receive().unwrap() {
            Got::R2t(r2t) => waiting.push(r2t),
            Got::Done { status, .. } => {
                assert!(status.is_success());
                done += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    for i in 0..count {
        let back = host.run(read(u64::from(i) * 256, len), &[]).2;
        assert!(back == pattern(i.into(), len), "write {i} differs");
    }
}

#[test]
fn more_commands_than_slots() {
    let server = Server::start(rflashd::dataplane::Settings {
        slots: 4,
        ..settings()
    });
    let mut session = Session::open(&server, PLAIN);
    let host = &mut session.io;
    let mut left: Vec<u16> = (0..32).collect();
    for _ in 0..200 {
        if left.is_empty() {
            break;
        }
        for &cid in &left {
            let mut sqe = write(u64::from(cid) * 32, 16384);
            sqe.cid = U16::new(cid);
            let bytes = host.capsule(&sqe, &[]);
            host.send(&bytes);
        }
        for _ in 0..left.len() {
            loop {
                match host.receive().unwrap() {
                    Got::R2t(r2t) => {
                        let data = pattern(r2t.cid.into(), 16384);
                        host.answer(&r2t, &data);
                    }
                    Got::Done { cid, status, .. } => {
                        // Interrupted: try again.
                        assert!(status.is_success() || status.code() == 0x21, "{status}");
                        if status.is_success() {
                            left.retain(|&c| c != cid);
                        }
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(left.is_empty(), "{left:?}");
    for cid in 0..32_u16 {
        let back = host.run(read(u64::from(cid) * 32, 16384), &[]).2;
        assert!(back == pattern(cid.into(), 16384));
    }
}

#[test]
fn sq_head_goes_round() {
    let server = Server::start(settings());
    let options = Options {
        flow_off: false,
        entries: 4,
        ..PLAIN
    };
    let mut session = Session::open(&server, options);
    let host = &mut session.io;
    // Connect was the first command.
    for i in 2..20_u16 {
        let mut sqe = read(0, 512);
        sqe.cid = U16::new(i);
        let bytes = host.capsule(&sqe, &[]);
        host.send(&bytes);
        assert!(matches!(
            host.receive(),
            Some(Got::Data { success: false, .. })
        ));
        let Some(Got::Done { cid, sq_head, .. }) = host.receive() else {
            panic!("no completion");
        };
        assert_eq!((cid, sq_head), (i, i % 4));
    }
}

#[test]
fn bad_data_digest_ends_the_command_only() {
    let server = Server::start(settings());
    let options = Options {
        data_digest: true,
        ..PLAIN
    };
    let mut session = Session::open(&server, options);
    let host = &mut session.io;
    let data = pattern(1, 4096);
    assert!(host.run(write(0, 4096).in_capsule(), &data).0.is_success());
    let mut sqe = write(0, 4096).in_capsule();
    sqe.cid = U16::new(500);
    let mut bytes = host.capsule(&sqe, &[7; 4096]);
    *bytes.last_mut().unwrap() ^= 1;
    host.send(&bytes);
    assert!(
        matches!(host.receive(), Some(Got::Done { cid: 500, status, .. }) if status.code() == 0x22)
    );
    let mut sqe = write(0, 4096);
    sqe.cid = U16::new(501);
    let bytes = host.capsule(&sqe, &[]);
    host.send(&bytes);
    let Some(Got::R2t(r2t)) = host.receive() else {
        panic!("no R2T");
    };
    let mut bytes = host.h2c(&r2t, 0, &[7; 4096], true);
    *bytes.last_mut().unwrap() ^= 1;
    host.send(&bytes);
    assert!(
        matches!(host.receive(), Some(Got::Done { cid: 501, status, .. }) if status.code() == 0x22)
    );
    let back = host.run(read(0, 4096), &[]).2;
    assert_eq!(digest::of(&back), digest::of(&data));
}

#[test]
fn admin_queue_beside_io() {
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let (status, _, data) = session.admin.run(Sqe::identify(0, 1, 4096), &[]);
    assert!(status.is_success(), "{status}");
    assert_eq!(data.len(), 4096);
    assert!(session.admin.run(Sqe::keep_alive(), &[]).0.is_success());
    // Asynchronous Event Requests stay until something happens.
    let mut aer = Sqe::new(admin::ASYNC_EVENT, 0, 0);
    aer.cid = U16::new(900);
    let bytes = session.admin.capsule(&aer, &[]);
    session.admin.stream.write_all(&bytes).unwrap();
    assert!(session.admin.run(Sqe::keep_alive(), &[]).0.is_success());
    // There is nothing to abort on queue 1.
    let mut abort = Sqe::new(admin::ABORT, 0, 0);
    abort.cdw10 = U32::new(1 | (55 << 16));
    let (status, result, _) = session.admin.run(abort, &[]);
    assert!(status.is_success());
    assert_eq!(result & 1, 1);
    let _ = io::FLUSH;
}
