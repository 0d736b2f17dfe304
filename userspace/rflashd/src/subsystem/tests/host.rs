// SPDX-License-Identifier: GPL-2.0-only
//! A host without a wire, and what it connects to.

use std::net::SocketAddr;
use std::sync::Arc;

use nvme_wire::command::Sqe;
use nvme_wire::fabrics::{
    CC_ENABLE, CNTLID_ANY, CSTS_READY, ConnectCmd, ConnectData, PropertyCmd, property,
};
use nvme_wire::status::Status;
use zerocopy::little_endian::U16;

use crate::backend::Volume;
use crate::subsystem::*;

pub const NQN: &str = "nqn.2026-11.org.rflash.test:one";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef";
pub const UUID: [u8; 16] = [0x5a; 16];

pub fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn peer() -> PeerInfo {
    PeerInfo {
        local: at("192.0.2.1:4420"),
        remote: at("192.0.2.9:50000"),
    }
}

pub fn namespace(nsid: u32) -> NamespaceSpec {
    NamespaceSpec {
        nsid,
        uuid: UUID,
        block_size: 512,
        blocks: 2048 * u64::from(nsid),
        backend: Volume::null(1 << 30),
        read_only: false,
    }
}

pub fn spec() -> SubsystemSpec {
    SubsystemSpec {
        nqn: NQN.into(),
        serial: "RF0001".into(),
        model: "rflash test".into(),
        namespaces: vec![namespace(1), namespace(3)],
        allowed_hosts: Vec::new(),
        listeners: vec![at("0.0.0.0:4420")],
        tenant: None,
    }
}

pub fn target_of(specs: Vec<SubsystemSpec>) -> Arc<Target> {
    Target::new(specs, vec![at("0.0.0.0:8009")], Arc::new(OneTenant)).unwrap()
}

pub fn target() -> Arc<Target> {
    target_of(vec![spec()])
}

/// One reply.
#[derive(Debug)]
pub struct Reply {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

pub struct Host {
    pub queue: Association,
    next_cid: u16,
}

impl Host {
    /// An admin queue, not yet enabled.
    pub fn connect(target: &Arc<Target>, nqn: &str) -> Result<Host, ConnectError> {
        let data = ConnectData::new([7; 16], CNTLID_ANY, nqn, HOST).unwrap();
        let queue = target.connect(&ConnectCmd::new(0, 32, 5000, 0), &data, &peer())?;
        Ok(Host { queue, next_cid: 0 })
    }

    /// An admin queue of a ready controller.
    pub fn ready(target: &Arc<Target>, nqn: &str) -> Host {
        let mut host = Host::connect(target, nqn).unwrap();
        host.run(PropertyCmd::set(property::CC, CC_ENABLE).sqe());
        assert_eq!(host.property(property::CSTS, false), CSTS_READY);
        host
    }

    pub fn connect_io(&self, target: &Arc<Target>, qid: u16) -> Result<Association, ConnectError> {
        let cntlid = self.queue.connect_result() as u16;
        let data = ConnectData::new([7; 16], cntlid, self.queue.controller.subsys_nqn(), HOST);
        target.connect(&ConnectCmd::new(qid, 128, 0, 4), &data.unwrap(), &peer())
    }

    pub fn outcome(&mut self, mut sqe: Sqe, data: &[u8]) -> Outcome {
        sqe.cid = U16::new(self.next_cid);
        self.next_cid += 1;
        self.queue.controller.admin(&sqe, data, 0, 1)
    }

    pub fn send(&mut self, sqe: Sqe, data: &[u8]) -> Reply {
        match self.outcome(sqe, data) {
            Outcome::Reply {
                status,
                result,
                data,
            } => Reply {
                status,
                result,
                data,
            },
            other => panic!("{other:?}"),
        }
    }

    /// A command that must succeed.
    pub fn run(&mut self, sqe: Sqe) -> Reply {
        let reply = self.send(sqe, &[]);
        assert!(reply.status.is_success(), "{sqe:?}: {}", reply.status);
        reply
    }

    /// The status code of a command that must fail, for good.
    pub fn fail(&mut self, sqe: Sqe) -> u16 {
        let reply = self.send(sqe, &[]);
        assert!(reply.status.do_not_retry(), "{}", reply.status);
        assert!(reply.data.is_empty());
        reply.status.code()
    }

    pub fn property(&mut self, offset: u32, wide: bool) -> u64 {
        self.run(PropertyCmd::get(offset, wide).sqe()).result
    }

    pub fn log(&mut self, page: u8, len: u32, offset: u64) -> Vec<u8> {
        let data = self.run(Sqe::get_log_page(page, len, offset).unwrap()).data;
        assert_eq!(data.len(), len as usize);
        data
    }
}
