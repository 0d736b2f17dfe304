// SPDX-License-Identifier: GPL-2.0-only
//! Discovery against a model of a target: a thread that speaks just enough
//! NVMe/TCP, rightly or wrongly as a test wants it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme_host::{DiscoveryLog, HostError, HostIdentity, discover};
use nvme_wire::command::{Cqe, Sqe, admin};
use nvme_wire::fabrics::{self, ConnectCmd, ConnectData, PropertyCmd, fctype, property};
use nvme_wire::pdu::*;
use nvme_wire::status::Status;
use nvme_wire::{discovery, nqn};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, Immutable, IntoBytes};

const HOST: &str = "nqn.2024-01.io.example:host";

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Accepts, and says nothing.
    Silent,
    /// Closes as soon as it has accepted.
    Close,
    /// Sends something that is not NVMe.
    Garbage,
    /// Grants digests nobody asked for.
    WrongDigest,
    /// Answers the ICReq with a terminate request.
    Terminate,
    /// Refuses Connect.
    Refuse(Status),
    /// Says nothing after Connect.
    SilentAfterConnect,
    /// Never becomes ready.
    NeverReady,
    /// Has failed.
    Fatal,
    /// Sends one byte of log too many.
    TooMuch,
    /// Sends less log than asked for.
    TooLittle,
    /// Sends data at the wrong offset.
    WrongOffset,
    /// Completes another command.
    WrongCid,
    /// Asks for data of a read.
    R2t,
    /// Claims to have this many records.
    Claims(u64),
    /// The generation counter changes that often.
    Changes(u64),
    /// A record with control characters.
    BadRecord,
    /// Sends one byte a second.
    Slow,
}

struct Target {
    stream: TcpStream,
    fault: Fault,
    records: u64,
    genctr: u64,
    changes: u64,
    link: Link,
    /// SUCCESS flag instead of a response capsule.
    success: bool,
}

fn start(fault: Fault, records: u64, success: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut target = Target {
            stream,
            fault,
            records,
            genctr: 7,
            changes: match fault {
                Fault::Changes(n) => n,
                _ => 0,
            },
            link: Link::default(),
            success,
        };
        // The host closes the connection when it has what it wants.
        let _ = target.serve();
    });
    (address, thread)
}

impl Target {
    fn send<T: IntoBytes + Immutable>(&mut self, pdu: &T, data: &[u8]) -> std::io::Result<()> {
        let mut out = Vec::new();
        head_bytes(pdu, &self.link, &mut out);
        out.extend_from_slice(data);
        if self.fault == Fault::Slow {
            for byte in out {
                self.stream.write_all(&[byte])?;
                std::thread::sleep(Duration::from_millis(100));
            }
            return Ok(());
        }
        self.stream.write_all(&out)
    }

    fn wait_for_close(&mut self) -> std::io::Result<()> {
        self.stream.read_to_end(&mut Vec::new()).map(drop)
    }

    fn serve(&mut self) -> std::io::Result<()> {
        match self.fault {
            Fault::Silent => return self.wait_for_close(),
            Fault::Close => return Ok(()),
            Fault::Garbage => {
                self.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
                return self.wait_for_close();
            }
            _ => {}
        }
        let mut icreq = [0; 128];
        self.stream.read_exact(&mut icreq)?;
        if self.fault == Fault::Terminate {
            let term = Term {
                status: TermStatus::UnsupportedParameter,
                info: 8,
            };
            self.send(&term_pdu(&term, Side::Host, 16), &icreq[..16])?;
            return self.wait_for_close();
        }
        let resp = IcResp {
            hdr_digest: self.fault == Fault::WrongDigest,
            data_digest: false,
            align: 4,
            max_h2c_data: 131_072,
        };
        self.send(&resp.pdu(), &[])?;
        self.link.open = true;
        loop {
            let mut head = [0; HEAD_MAX];
            self.stream.read_exact(&mut head[..8])?;
            let frame = frame(common_header(&head).unwrap(), Side::Controller, &self.link).unwrap();
            self.stream.read_exact(&mut head[8..frame.head_len])?;
            let Pdu::CapsuleCmd(&sqe) = decode(&frame, &head).unwrap() else {
                panic!("the host sent no command");
            };
            let mut data = vec![0; frame.data_len];
            self.stream.read_exact(&mut data)?;
            self.command(&sqe, &data)?;
        }
    }

    fn complete(&mut self, sqe: &Sqe, status: Status, result: u64) -> std::io::Result<()> {
        let cid = sqe
            .cid
            .get()
            .wrapping_add((self.fault == Fault::WrongCid).into());
        self.send(&rsp_pdu(&Cqe::new(cid, status, result), &self.link), &[])
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) -> std::io::Result<()> {
        match sqe.opcode {
            fabrics::OPCODE => match ConnectCmd::of(sqe).unwrap().fctype {
                fctype::CONNECT => {
                    let connect = ConnectData::of(data).unwrap();
                    assert_eq!(connect.subsys_nqn(), Ok(nqn::DISCOVERY));
                    assert_eq!(connect.host_nqn(), Ok(HOST));
                    match self.fault {
                        Fault::Refuse(status) => self.complete(sqe, status, 0),
                        Fault::SilentAfterConnect => self.wait_for_close(),
                        _ => self.complete(sqe, Status::SUCCESS, 1),
                    }
                }
                fctype::PROPERTY_GET => {
                    assert_eq!(PropertyCmd::of(sqe).unwrap().offset.get(), property::CSTS);
                    let csts = match self.fault {
                        Fault::NeverReady => 0,
                        Fault::Fatal => 2,
                        _ => 1,
                    };
                    self.complete(sqe, Status::SUCCESS, csts)
                }
                fctype::PROPERTY_SET => self.complete(sqe, Status::SUCCESS, 0),
                other => panic!("fabrics command {other}"),
            },
            admin::GET_LOG_PAGE => self.log_page(sqe),
            other => panic!("opcode {other}"),
        }
    }

    fn log_page(&mut self, sqe: &Sqe) -> std::io::Result<()> {
        let len = sqe.sgl.length.get() as usize;
        let offset = ((u64::from(sqe.cdw13.get()) << 32) | u64::from(sqe.cdw12.get())) as usize;
        if offset == 0 && self.changes > 0 {
            self.changes -= 1;
            self.genctr += 1;
        }
        let log = self.log();
        let mut data = log
            .get(offset..offset + len)
            .map(<[u8]>::to_vec)
            .unwrap_or(vec![0; len]);
        let mut at = 0;
        match self.fault {
            Fault::TooMuch => data.push(0),
            Fault::TooLittle => data.truncate(len / 2),
            Fault::WrongOffset => at = 4,
            Fault::R2t => {
                let r2t = R2t {
                    cid: sqe.cid.get(),
                    ttag: 1,
                    offset: 0,
                    length: 4,
                };
                self.send(&r2t_pdu(&r2t, &self.link), &[])?;
            }
            _ => {}
        }
        // In two pieces, as a target may.
        let middle = data.len() / 8 * 4;
        let cid = sqe.cid.get();
        for (piece, begin, last) in [(&data[..middle], 0, false), (&data[middle..], middle, true)] {
            let pdu = Data {
                cid,
                ttag: 0,
                offset: (at + begin) as u32,
                length: piece.len() as u32,
                last,
                success: last && self.success,
            };
            self.send(&data_pdu(&pdu, Side::Host, &self.link), piece)?;
        }
        if self.success {
            Ok(())
        } else {
            self.complete(sqe, Status::SUCCESS, 0)
        }
    }

    fn log(&self) -> Vec<u8> {
        let mut header = discovery::Header::new_zeroed();
        header.genctr = U64::new(self.genctr);
        header.numrec = U64::new(match self.fault {
            Fault::Claims(n) => n,
            _ => self.records,
        });
        let mut log = header.as_bytes().to_vec();
        for i in 0..self.records {
            let mut e = discovery::Entry::new_zeroed();
            (e.trtype, e.adrfam, e.subtype) = (3, 1, 2);
            e.trsvcid[..4].copy_from_slice(b"4420");
            let nqn = format!("nqn.2024-01.io.example:flash{i}");
            e.subnqn[..nqn.len()].copy_from_slice(nqn.as_bytes());
            e.traddr[..9].copy_from_slice(b"192.0.2.1");
            if self.fault == Fault::BadRecord {
                e.traddr[..4].copy_from_slice(b"\x1b[2J");
            }
            log.extend_from_slice(e.as_bytes());
        }
        log
    }
}

fn ask(
    fault: Fault,
    records: u64,
    success: bool,
    timeout: Duration,
) -> Result<DiscoveryLog, HostError> {
    let (address, thread) = start(fault, records, success);
    let host = HostIdentity {
        nqn: HOST.to_string(),
        id: [1; 16],
    };
    let result = discover(address, &host, timeout);
    thread.join().expect("the model did not panic");
    result
}

fn error_of(fault: Fault) -> String {
    ask(fault, 2, false, Duration::from_secs(10))
        .unwrap_err()
        .to_string()
}

#[test]
fn whole_log_in_pages() {
    for success in [false, true] {
        for records in [0, 1, 16, 17, 40] {
            let log = ask(Fault::None, records, success, Duration::from_secs(10)).unwrap();
            assert_eq!(log.genctr, 7);
            assert_eq!(log.records.len() as u64, records);
            for (i, r) in log.records.iter().enumerate() {
                assert_eq!(r.subnqn, format!("nqn.2024-01.io.example:flash{i}"));
                assert_eq!(
                    (r.traddr.as_str(), r.trsvcid.as_str()),
                    ("192.0.2.1", "4420")
                );
            }
        }
    }
}

#[test]
fn log_that_changes_is_read_again() {
    let log = ask(Fault::Changes(3), 20, false, Duration::from_secs(10)).unwrap();
    assert_eq!((log.genctr, log.records.len()), (10, 20));
    assert!(error_of(Fault::Changes(1000)).contains("changes all the time"));
}

#[test]
fn time_is_bounded() {
    for (fault, part) in [
        (
            Fault::Silent,
            "accepted the connection but did not answer in 1 s",
        ),
        (Fault::SilentAfterConnect, "no answer to Connect in 1 s"),
        (Fault::NeverReady, "in 1 s"),
        (Fault::Slow, "did not answer in 1 s"),
    ] {
        let start = Instant::now();
        let error = ask(fault, 2, false, Duration::from_secs(1)).unwrap_err();
        assert!(error.is_timeout(), "{fault:?}: {error}");
        assert!(error.to_string().contains(part), "{fault:?}: {error}");
        assert!(start.elapsed() >= Duration::from_secs(1), "{fault:?}");
    }
}

#[test]
fn refusals() {
    let refuse = |status| error_of(Fault::Refuse(status));
    assert_eq!(
        refuse(Status::CONNECT_INVALID_HOST.with_do_not_retry()),
        "it refused Connect: host not admitted (status 0x184)"
    );
    assert_eq!(
        refuse(Status::CONNECT_INVALID_PARAMETERS),
        "it refused Connect: invalid Connect parameters (status 0x182)"
    );
    assert_eq!(
        error_of(Fault::Terminate),
        "it ended the connection: unsupported parameter (0x8)"
    );
}

#[test]
fn broken_peers() {
    for (fault, part) in [
        (Fault::Close, "closed the connection during initialization"),
        (
            Fault::Garbage,
            "PDU: type is 72, must be 1 (ICResp) or 3 (C2HTermReq)",
        ),
        (Fault::WrongDigest, "ICResp: dgst is 1, must be 0"),
        (Fault::Fatal, "its controller has failed"),
        (Fault::TooMuch, "more data than was asked for"),
        (Fault::TooLittle, "less data than was asked for"),
        (Fault::WrongOffset, "out of order"),
        (Fault::WrongCid, "a command nobody sent"),
        (Fault::R2t, "asked for data there is not"),
        (Fault::Claims(4097), "numrec is 4097, must be at most 4096"),
        (
            Fault::BadRecord,
            "traddr has characters other than printable ASCII",
        ),
    ] {
        let error = error_of(fault);
        assert!(error.contains(part), "{fault:?}: {error}");
    }
}

#[test]
fn nobody_there() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let host = HostIdentity {
        nqn: HOST.to_string(),
        id: [1; 16],
    };
    let error = discover(address, &host, Duration::from_secs(5)).unwrap_err();
    assert!(!error.is_timeout());
    assert!(
        error.to_string().starts_with("the TCP connection failed"),
        "{error}"
    );
}
