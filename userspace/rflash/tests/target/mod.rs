// SPDX-License-Identifier: GPL-2.0-only
//! A small target in this process, one thread per connection: just enough of a
//! controller for a host that behaves, and ways to misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvme_wire::command::{Cqe, Sqe, admin, io, sgl};
use nvme_wire::digest;
use nvme_wire::fabrics::{self, ConnectCmd, PropertyCmd, fctype, property};
use nvme_wire::identify::{self, cns};
use nvme_wire::pdu::*;
use nvme_wire::status::Status;
use zerocopy::{FromZeros, IntoBytes};

const BLOCK: usize = 4096;
const QUEUES: u32 = 3;
const IN_CAPSULE: u32 = 8192;
/// Block that no read can be had of.
pub const BAD_BLOCK: u64 = 13;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Writes are acknowledged, not done, from the tenth on.
    Lose,
    /// Reads of `BAD_BLOCK` fail.
    Media,
    /// Each answer takes so many milliseconds.
    Slow(u64),
    /// All I/O stops for so many milliseconds once, half a second in.
    Pause(u64),
    /// The connection is closed after a hundred commands.
    Close,
}

pub struct Target {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    disk: Mutex<Vec<u8>>,
    fault: Fault,
    writes: AtomicU32,
    commands: AtomicU32,
    started: Mutex<Option<std::time::Instant>>,
}

impl Target {
    pub fn start(blocks: usize, fault: Fault) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            disk: Mutex::new(vec![0; blocks * BLOCK]),
            fault,
            writes: AtomicU32::new(0),
            commands: AtomicU32::new(0),
            started: Mutex::new(None),
        });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&all);
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || {
                    let mut connection = Connection {
                        stream,
                        link: Link::default(),
                        shared,
                        cc: 0,
                        qid: 0,
                    };
                    // The end is that the host closes the connection.
                    let _ = connection.serve();
                });
            }
        });
        Target { address, shared }
    }

    /// Bytes of the disk that are not zero.
    pub fn written(&self) -> usize {
        let disk = self.shared.disk.lock().unwrap();
        disk.iter().filter(|&&b| b != 0).count()
    }
}

struct Connection {
    stream: TcpStream,
    link: Link,
    shared: Arc<Shared>,
    cc: u64,
    qid: u16,
}

type Received = (Frame, [u8; HEAD_MAX], Vec<u8>);

impl Connection {
    fn receive(&mut self) -> std::io::Result<Received> {
        let mut head = [0; HEAD_MAX];
        self.stream.read_exact(&mut head[..8])?;
        let frame = frame(common_header(&head).unwrap(), Side::Controller, &self.link).unwrap();
        let end = frame.data_offset.max(frame.head_len);
        self.stream.read_exact(&mut head[8..end])?;
        let mut data = vec![0; frame.data_len];
        self.stream.read_exact(&mut data)?;
        if frame.data_digest {
            let mut wire = [0; 4];
            self.stream.read_exact(&mut wire)?;
            digest::check("data", &data, &wire).unwrap();
        }
        Ok((frame, head, data))
    }

    fn complete(&mut self, sqe: &Sqe, status: Status, result: u64) -> std::io::Result<()> {
        let mut out = Vec::new();
        let cqe = Cqe::new(sqe.cid.get(), status, result);
        head_bytes(&rsp_pdu(&cqe, &self.link), &self.link, &mut out);
        self.stream.write_all(&out)
    }

    /// Data and a successful completion in one PDU.
    fn give(&mut self, sqe: &Sqe, data: &[u8]) -> std::io::Result<()> {
        let header = Data {
            cid: sqe.cid.get(),
            ttag: 0,
            offset: 0,
            length: data.len() as u32,
            last: true,
            success: true,
        };
        let mut out = Vec::new();
        head_bytes(
            &data_pdu(&header, Side::Host, &self.link),
            &self.link,
            &mut out,
        );
        out.extend_from_slice(data);
        if self.link.data_digest {
            out.extend_from_slice(&digest::to_wire(digest::of(data)));
        }
        self.stream.write_all(&out)
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let (frame, head, _) = self.receive()?;
        let Pdu::IcReq(asked) = decode(&frame, &head).unwrap() else {
            panic!("no ICReq");
        };
        let granted = IcResp {
            hdr_digest: asked.hdr_digest,
            data_digest: asked.data_digest,
            align: 4,
            max_h2c_data: 8192,
        };
        self.stream.write_all(granted.pdu().as_bytes())?;
        self.link.open = true;
        self.link.hdr_digest = asked.hdr_digest;
        self.link.data_digest = asked.data_digest;
        loop {
            let (frame, head, data) = self.receive()?;
            let Pdu::CapsuleCmd(&sqe) = decode(&frame, &head).unwrap() else {
                panic!("no command");
            };
            match (sqe.opcode, self.qid) {
                (fabrics::OPCODE, _) => self.fabrics(&sqe)?,
                (_, 0) => self.admin(&sqe)?,
                _ => self.io(&sqe, data)?,
            }
        }
    }

    fn fabrics(&mut self, sqe: &Sqe) -> std::io::Result<()> {
        let property_cmd = PropertyCmd::of(sqe).unwrap();
        let offset = property_cmd.offset.get();
        match sqe.as_bytes()[4] {
            fctype::CONNECT => {
                self.qid = ConnectCmd::of(sqe).unwrap().qid.get();
                self.complete(sqe, Status::SUCCESS, 1)
            }
            fctype::PROPERTY_SET => {
                self.cc = property_cmd.value.get();
                self.complete(sqe, Status::SUCCESS, 0)
            }
            _ => {
                let value = match offset {
                    property::CAP => 127,
                    property::CSTS => self.cc & 1,
                    _ => 0,
                };
                self.complete(sqe, Status::SUCCESS, value)
            }
        }
    }

    fn admin(&mut self, sqe: &Sqe) -> std::io::Result<()> {
        match sqe.opcode {
            admin::SET_FEATURES => {
                let n = u64::from(QUEUES - 1);
                self.complete(sqe, Status::SUCCESS, n | (n << 16))
            }
            admin::IDENTIFY if sqe.cdw10.get() == u32::from(cns::CONTROLLER) => {
                let mut id = identify::Controller::new_zeroed();
                id.ioccsz = ((64 + IN_CAPSULE) / 16).into();
                id.mdts = 8;
                self.give(sqe, id.as_bytes())
            }
            admin::IDENTIFY => {
                let mut id = identify::Namespace::new_zeroed();
                if sqe.nsid.get() == 1 {
                    let blocks = (self.shared.disk.lock().unwrap().len() / BLOCK) as u64;
                    id.nsze = blocks.into();
                    id.ncap = blocks.into();
                    id.lbaf[0].ds = BLOCK.ilog2() as u8;
                }
                self.give(sqe, id.as_bytes())
            }
            _ => self.complete(sqe, Status::SUCCESS, 0),
        }
    }

    fn io(&mut self, sqe: &Sqe, inline: Vec<u8>) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let count = shared.commands.fetch_add(1, Ordering::Relaxed);
        match shared.fault {
            Fault::Slow(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Fault::Close if count >= 100 => return Err(std::io::ErrorKind::Other.into()),
            Fault::Pause(ms) => {
                let mut started = shared.started.lock().unwrap();
                let begin = *started.get_or_insert_with(std::time::Instant::now);
                if count > 0 && begin.elapsed() > Duration::from_millis(500) {
                    let far = Duration::from_secs(86_400);
                    *started = Some(begin + far);
                    std::thread::sleep(Duration::from_millis(ms));
                }
            }
            _ => {}
        }
        let at = sqe.lba() as usize * BLOCK;
        let len = sqe.sgl.length.get() as usize;
        assert_eq!(len, sqe.blocks() as usize * BLOCK);
        if sqe.opcode == io::READ {
            if shared.fault == Fault::Media && sqe.lba() == BAD_BLOCK {
                return self.complete(sqe, Status(0x281), 0);
            }
            let data = shared.disk.lock().unwrap()[at..at + len].to_vec();
            return self.give(sqe, &data);
        }
        assert_eq!(sqe.opcode, io::WRITE);
        let data = match sqe.sgl.kind {
            sgl::IN_CAPSULE => inline,
            _ => self.fetch(sqe, len)?,
        };
        assert_eq!(data.len(), len);
        let nth = shared.writes.fetch_add(1, Ordering::Relaxed);
        if shared.fault != Fault::Lose || nth < 10 {
            shared.disk.lock().unwrap()[at..at + len].copy_from_slice(&data);
        }
        self.complete(sqe, Status::SUCCESS, 0)
    }

    /// Ask for the data of a write; depth 1 only, since other commands could
    /// come first.
    fn fetch(&mut self, sqe: &Sqe, len: usize) -> std::io::Result<Vec<u8>> {
        let r2t = R2t {
            cid: sqe.cid.get(),
            ttag: 0,
            offset: 0,
            length: len as u32,
        };
        let mut out = Vec::new();
        head_bytes(&r2t_pdu(&r2t, &self.link), &self.link, &mut out);
        self.stream.write_all(&out)?;
        let mut all = Vec::new();
        while all.len() < len {
            let (frame, head, data) = self.receive()?;
            assert!(matches!(decode(&frame, &head), Ok(Pdu::H2cData(_))));
            all.extend(data);
        }
        Ok(all)
    }
}
