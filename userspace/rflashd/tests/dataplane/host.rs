// SPDX-License-Identifier: GPL-2.0-only
//! A server and a host made by hand, which can do wrong what real ones do right.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nvme_wire::command::Sqe;
use nvme_wire::digest;
use nvme_wire::fabrics::*;
use nvme_wire::pdu::*;
use nvme_wire::status::Status;
use rflashd::backend::Volume;
use rflashd::dataplane::{Dataplane, Settings};
use rflashd::metrics::Registry;
use rflashd::subsystem::*;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

pub const NQN: &str = "nqn.2024-01.org.rflash:test";
pub const HOST: &str = "nqn.2024-01.org.rflash:host";
/// Namespace 1 is a RAM disk, 2 keeps nothing, 3 is a RAM disk that can't be
/// written.
pub const DISK: u64 = 16 << 20;

pub struct Server {
    pub plane: Option<Dataplane>,
    pub registry: Registry,
    pub address: SocketAddr,
}

pub fn settings() -> Settings {
    Settings {
        buffer_bytes: 8 << 20,
        // The tests share their CPUs with each other.
        spin: 1000,
        ..Settings::default()
    }
}

impl Server {
    pub fn start(settings: Settings) -> Server {
        Server::with(settings, &[], Arc::new(OneTenant))
    }

    pub fn with(
        settings: Settings,
        devices: &[Arc<qos::Shared>],
        tenants: Arc<dyn TenantControl>,
    ) -> Server {
        let namespace = |nsid: u32, backend: Volume, read_only| NamespaceSpec {
            nsid,
            uuid: [nsid as u8; 16],
            block_size: 512,
            blocks: DISK / 512,
            backend,
            read_only,
        };
        let target = Target::new(Vec::new(), Vec::new(), tenants).unwrap();
        let registry = Registry::new(settings.cpus.len().max(1), 1, 1024);
        let plane = Dataplane::start(settings, Arc::clone(&target), devices, &registry).unwrap();
        let address = plane.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let spec = SubsystemSpec {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "rflash".into(),
            namespaces: vec![
                namespace(1, Volume::ram(DISK).unwrap(), false),
                namespace(2, Volume::null(DISK), false),
                namespace(3, Volume::ram(DISK).unwrap(), true),
            ],
            allowed_hosts: Vec::new(),
            listeners: vec![address],
            tenant: None,
        };
        target.apply(vec![spec], Vec::new()).unwrap();
        Server {
            plane: Some(plane),
            registry,
            address,
        }
    }

    pub fn connections(&self) -> usize {
        self.plane.as_ref().unwrap().connections()
    }

    pub fn wait_for_connections(&self, n: usize) {
        for _ in 0..500 {
            if self.connections() == n {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} connections, not {n}", self.connections());
    }
}

#[derive(Clone, Copy)]
pub struct Options {
    pub hdr_digest: bool,
    pub data_digest: bool,
    pub align: usize,
    pub flow_off: bool,
    pub entries: u32,
}

pub const PLAIN: Options = Options {
    hdr_digest: false,
    data_digest: false,
    align: 4,
    flow_off: true,
    entries: 128,
};

/// What the controller has sent.
#[derive(Debug)]
pub enum Got {
    Data {
        cid: u16,
        offset: u32,
        success: bool,
        bytes: Vec<u8>,
    },
    Done {
        cid: u16,
        status: Status,
        result: u64,
        sq_head: u16,
    },
    R2t(R2t),
    Term(Term),
}

pub struct Host {
    pub stream: TcpStream,
    pub link: Link,
    pub max_h2c_data: u32,
    next_cid: u16,
}

/// An admin queue and one I/O queue on it.
pub struct Session {
    pub admin: Host,
    pub io: Host,
    pub cntlid: u16,
}

impl Host {
    /// Open a connection and exchange ICReq and ICResp.
    pub fn open(address: SocketAddr, options: Options) -> Host {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut host = Host {
            stream,
            link: Link::default(),
            max_h2c_data: 0,
            next_cid: 0,
        };
        let asked = IcReq {
            hdr_digest: options.hdr_digest,
            data_digest: options.data_digest,
            align: options.align,
            max_r2t: 1,
        };
        host.stream.write_all(asked.pdu().as_bytes()).unwrap();
        let mut bytes = [0; 128];
        host.stream.read_exact(&mut bytes).unwrap();
        let frame = frame(common_header(&bytes).unwrap(), Side::Host, &host.link).unwrap();
        let Pdu::IcResp(granted) = decode(&frame, &bytes).unwrap() else {
            panic!("no ICResp");
        };
        granted.check_against(&asked).unwrap();
        host.max_h2c_data = granted.max_h2c_data;
        host.link = Link {
            open: true,
            hdr_digest: granted.hdr_digest,
            data_digest: granted.data_digest,
            receive_align: options.align,
            send_align: granted.align,
            ..Link::default()
        };
        host
    }

    /// Bytes of a command capsule.
    pub fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head_bytes(
            &cmd_pdu(sqe, data.len() as u32, &self.link),
            &self.link,
            &mut out,
        );
        out.extend_from_slice(data);
        if self.link.data_digest && !data.is_empty() {
            out.extend_from_slice(&digest::to_wire(digest::of(data)));
        }
        out
    }

    /// Bytes of H2CData.
    pub fn h2c(&self, r2t: &R2t, at: usize, bytes: &[u8], last: bool) -> Vec<u8> {
        let data = Data {
            cid: r2t.cid,
            ttag: r2t.ttag,
            offset: r2t.offset + at as u32,
            length: bytes.len() as u32,
            last,
            success: false,
        };
        let mut out = Vec::new();
        let head = data_pdu(&data, Side::Controller, &self.link);
        head_bytes(&head, &self.link, &mut out);
        out.extend_from_slice(bytes);
        if self.link.data_digest {
            out.extend_from_slice(&digest::to_wire(digest::of(bytes)));
        }
        out
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next PDU, checked; `None`: the controller has closed.
    pub fn receive(&mut self) -> Option<Got> {
        let mut head = vec![0; 8];
        if self.stream.read_exact(&mut head).is_err() {
            return None;
        }
        let frame = frame(common_header(&head).unwrap(), Side::Host, &self.link).unwrap();
        head.resize(frame.data_offset.max(frame.head_len), 0);
        self.stream.read_exact(&mut head[8..]).unwrap();
        let mut data = vec![0; frame.data_len];
        self.stream.read_exact(&mut data).unwrap();
        if frame.data_digest {
            let mut wire = [0; 4];
            self.stream.read_exact(&mut wire).unwrap();
            digest::check("data", &data, &wire).unwrap();
        }
        Some(match decode(&frame, &head).unwrap() {
            Pdu::C2hData(d) => Got::Data {
                cid: d.cid,
                offset: d.offset,
                success: d.success,
                bytes: data,
            },
            Pdu::CapsuleResp(cqe) => Got::Done {
                cid: cqe.cid.get(),
                status: cqe.status(),
                result: cqe.result.get(),
                sq_head: cqe.sq_head.get(),
            },
            Pdu::R2t(r2t) => Got::R2t(r2t),
            Pdu::Term(term) => Got::Term(term),
            other => panic!("{other:?}"),
        })
    }

    /// Run one command with its data, sent in the capsule or by R2T.
    pub fn run(&mut self, sqe: Sqe, data: &[u8]) -> (Status, u64, Vec<u8>) {
        let mut sqe = sqe;
        let cid = self.cid();
        sqe.cid = U16::new(cid);
        let inline = sqe.sgl.kind == nvme_wire::command::sgl::IN_CAPSULE;
        let bytes = self.capsule(&sqe, if inline { data } else { &[] });
        self.send(&bytes);
        let mut got = Vec::new();
        loop {
            match self.receive().expect("closed") {
                Got::Data {
                    cid: c,
                    offset,
                    success,
                    bytes,
                } => {
                    assert_eq!((c, offset as usize), (cid, got.len()));
                    got.extend_from_slice(&bytes);
                    if success {
                        return (Status::SUCCESS, 0, got);
                    }
                }
                Got::Done {
                    cid: c,
                    status,
                    result,
                    ..
                } => {
                    assert_eq!(c, cid);
                    return (status, result, got);
                }
                Got::R2t(r2t) => {
                    assert_eq!(r2t.cid, cid);
                    self.answer(&r2t, data);
                }
                Got::Term(term) => panic!("{term:?}"),
            }
        }
    }

    /// Answer an R2T, in as many PDUs as the controller wants.
    pub fn answer(&mut self, r2t: &R2t, data: &[u8]) {
        let begin = r2t.offset as usize;
        let wanted = &data[begin..begin + r2t.length as usize];
        let most = self.max_h2c_data as usize;
        let count = wanted.chunks(most).count();
        for (i, chunk) in wanted.chunks(most).enumerate() {
            let bytes = self.h2c(r2t, i * most, chunk, i + 1 == count);
            self.send(&bytes);
        }
    }

    /// Connect a queue; the controller's id.
    pub fn connect(&mut self, qid: u16, cntlid: u16, options: Options) -> u16 {
        let cattr = if options.flow_off {
            CATTR_NO_SQ_FLOW
        } else {
            0
        };
        let sqe = ConnectCmd::new(qid, options.entries, 0, cattr).sqe();
        let data = ConnectData::new([9; 16], cntlid, NQN, HOST).unwrap();
        let (status, result, _) = self.run(sqe, data.as_bytes());
        assert!(status.is_success(), "{status}");
        result as u16
    }

    /// Read until the connection ends; the terminate request, if there was one.
    pub fn last_words(&mut self) -> Option<Term> {
        let mut term = None;
        while let Some(got) = self.receive() {
            if let Got::Term(t) = got {
                term = Some(t);
            }
        }
        term
    }
}

impl Session {
    pub fn open(server: &Server, options: Options) -> Session {
        let mut admin = Host::open(server.address, options);
        let admin_options = Options {
            entries: 32,
            ..options
        };
        let cntlid = admin.connect(0, CNTLID_ANY, admin_options);
        let (status, ..) = admin.run(PropertyCmd::set(property::CC, CC_ENABLE).sqe(), &[]);
        assert!(status.is_success(), "{status}");
        let mut session = Session {
            io: Host::open(server.address, options),
            admin,
            cntlid,
        };
        session.io.connect(1, cntlid, options);
        session
    }

    /// Another I/O queue.
    pub fn queue(&self, server: &Server, qid: u16, options: Options) -> Host {
        let mut host = Host::open(server.address, options);
        host.connect(qid, self.cntlid, options);
        host
    }
}

/// Bytes that tell where they stand.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

impl Host {
    /// A host on a connection on which nothing was agreed.
    pub fn raw(stream: TcpStream) -> Host {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Host {
            stream,
            link: Link::default(),
            max_h2c_data: 0,
            next_cid: 0,
        }
    }
}
