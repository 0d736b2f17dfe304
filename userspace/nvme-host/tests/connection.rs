// SPDX-License-Identifier: GPL-2.0-only
//! Data both ways on one connection, digests on, against a model of a target.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use nvme_host::{Connection, Deadline, HostError, Options, Request};
use nvme_wire::command::{Cqe, Sqe, io};
use nvme_wire::digest;
use nvme_wire::pdu::*;
use nvme_wire::status::Status;
use zerocopy::{Immutable, IntoBytes};

/// The least a controller may announce, so that a write takes several PDUs.
const MAX_H2C_DATA: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The digest of read data is wrong.
    DataDigest,
    /// The digest of a response is wrong.
    HeaderDigest,
    /// An R2T for more than the command has.
    Greedy,
    /// An R2T for another command.
    WrongCid,
}

/// A disk of a few bytes behind a model of a target.
struct Model {
    stream: TcpStream,
    link: Link,
    disk: Vec<u8>,
    fault: Fault,
}

fn start(fault: Fault, cpda: usize) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let link = Link {
            receive_align: (cpda + 1) * 4,
            ..Link::default()
        };
        let mut model = Model {
            stream,
            link,
            disk: vec![0; 64 * 1024],
            fault,
        };
        // The end is that the host closes the connection.
        let _ = model.serve();
        model.disk
    });
    (address, thread)
}

impl Model {
    fn send<T: IntoBytes + Immutable>(&mut self, pdu: &T, data: &[u8]) -> std::io::Result<()> {
        let mut out = Vec::new();
        head_bytes(pdu, &self.link, &mut out);
        if self.fault == Fault::HeaderDigest && self.link.open && data.is_empty() {
            *out.last_mut().unwrap() ^= 1;
        }
        if !data.is_empty() {
            out.extend_from_slice(data);
            let wrong = u32::from(self.fault == Fault::DataDigest);
            out.extend_from_slice(&digest::to_wire(digest::of(data) ^ wrong));
        }
        self.stream.write_all(&out)
    }

    /// The next PDU and its data.
    fn receive(&mut self, head: &mut [u8; HEAD_MAX]) -> std::io::Result<(Frame, Vec<u8>)> {
        self.stream.read_exact(&mut head[..8])?;
        let frame = frame(common_header(head).unwrap(), Side::Controller, &self.link).unwrap();
        self.stream.read_exact(&mut head[8..frame.data_offset])?;
        let mut data = vec![0; frame.data_len];
        self.stream.read_exact(&mut data)?;
        if frame.data_digest {
            let mut wire = [0; 4];
            self.stream.read_exact(&mut wire)?;
            digest::check("data", &data, &wire).unwrap();
        }
        Ok((frame, data))
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let mut head = [0; HEAD_MAX];
        let (frame, _) = self.receive(&mut head)?;
        let Pdu::IcReq(asked) = decode(&frame, &head).unwrap() else {
            panic!("no ICReq");
        };
        assert!(asked.hdr_digest && asked.data_digest);
        let granted = IcResp {
            hdr_digest: true,
            data_digest: true,
            align: self.link.receive_align,
            max_h2c_data: MAX_H2C_DATA,
        };
        self.send(&granted.pdu(), &[])?;
        self.link.open = true;
        self.link.hdr_digest = true;
        self.link.data_digest = true;
        loop {
            let (frame, _) = self.receive(&mut head)?;
            let Pdu::CapsuleCmd(&sqe) = decode(&frame, &head).unwrap() else {
                panic!("no command");
            };
            let at = sqe.lba() as usize * 512;
            let len = sqe.sgl.length.get() as usize;
            match sqe.opcode {
                io::READ => {
                    let data = self.disk[at..at + len].to_vec();
                    let pdu = Data {
                        cid: sqe.cid.get(),
                        ttag: 0,
                        offset: 0,
                        length: len as u32,
                        last: true,
                        success: false,
                    };
                    self.send(&data_pdu(&pdu, Side::Host, &self.link), &data)?;
                }
                io::WRITE => self.write(&sqe, at, len)?,
                other => panic!("opcode {other}"),
            }
            let cqe = Cqe::new(sqe.cid.get(), Status::SUCCESS, 0);
            self.send(&rsp_pdu(&cqe, &self.link), &[])?;
        }
    }

    /// Ask for the data in two halves.
    fn write(&mut self, sqe: &Sqe, at: usize, len: usize) -> std::io::Result<()> {
        let half = len / 8 * 4;
        for (begin, end) in [(0, half), (half, len)] {
            let greedy = u32::from(self.fault == Fault::Greedy);
            let r2t = R2t {
                cid: sqe.cid.get() + u16::from(self.fault == Fault::WrongCid),
                ttag: 7,
                offset: begin as u32,
                length: (end - begin) as u32 + greedy * 65536,
            };
            self.send(&r2t_pdu(&r2t, &self.link), &[])?;
            let mut got = begin;
            while got < end {
                let mut head = [0; HEAD_MAX];
                let (frame, data) = self.receive(&mut head)?;
                let Pdu::H2cData(d) = decode(&frame, &head).unwrap() else {
                    panic!("no H2CData");
                };
                assert_eq!((d.cid, d.ttag), (sqe.cid.get(), 7));
                assert_eq!(d.offset as usize, got);
                assert!(d.length <= MAX_H2C_DATA);
                self.disk[at + got..][..data.len()].copy_from_slice(&data);
                got += data.len();
                assert_eq!(d.last, got == end);
            }
        }
        Ok(())
    }
}

fn open(address: SocketAddr) -> (Connection, Deadline) {
    let deadline = Deadline::after(Duration::from_secs(10));
    let options = Options {
        hdr_digest: true,
        data_digest: true,
    };
    (
        Connection::open(address, options, &deadline).unwrap(),
        deadline,
    )
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    for cpda in [0, 1, 31] {
        let (address, thread) = start(Fault::None, cpda);
        let (mut connection, deadline) = open(address);
        let data = pattern(20_480);
        let sqe = Sqe::write(1, 8, 40, data.len() as u32);
        connection
            .run(Request::writing("Write", sqe, &data), &deadline)
            .unwrap();
        let mut back = vec![0; 1024];
        let sqe = Sqe::read(1, 10, 2, 1024);
        connection
            .run(Request::reading("Read", sqe, &mut back), &deadline)
            .unwrap();
        assert_eq!(back, data[1024..2048]);
        drop(connection);
        let disk = thread.join().expect("the model did not panic");
        assert_eq!(disk[4096..][..data.len()], data);
    }
}

fn failure(fault: Fault, write: bool) -> HostError {
    let (address, thread) = start(fault, 0);
    let (mut connection, deadline) = open(address);
    let data = pattern(4096);
    let mut back = vec![0; 4096];
    let request = match write {
        true => Request::writing("Write", Sqe::write(1, 0, 8, 4096), &data),
        false => Request::reading("Read", Sqe::read(1, 0, 8, 4096), &mut back),
    };
    let error = connection.run(request, &deadline).unwrap_err();
    drop(connection);
    thread.join().expect("the model did not panic");
    error
}

#[test]
fn wrong_digests_are_found() {
    let error = failure(Fault::DataDigest, false).to_string();
    assert!(
        error.starts_with("it broke the protocol: data digest is 0x"),
        "{error}"
    );
    let error = failure(Fault::HeaderDigest, true).to_string();
    assert!(
        error.starts_with("it broke the protocol: header digest is 0x"),
        "{error}"
    );
}

#[test]
fn only_the_command_s_own_data_is_given_away() {
    for fault in [Fault::Greedy, Fault::WrongCid] {
        let error = failure(fault, true).to_string();
        assert_eq!(
            error,
            "it broke the protocol: it asked for data there is not"
        );
    }
}
