// SPDX-License-Identifier: GPL-2.0-only
//! An admin queue and the controller behind it.

use std::net::SocketAddr;
use std::time::Duration;

use nvme_wire::command::Sqe;
use nvme_wire::fabrics::{
    CC_ENABLE, CNTLID_ANY, CSTS_FATAL, CSTS_READY, ConnectCmd, ConnectData, PropertyCmd, property,
};
use nvme_wire::identify::{self, cns};
use zerocopy::IntoBytes;

use crate::connection::{Connection, Options, Request};
use crate::error::{Deadline, HostError};

/// Entries of the admin queue.
const ENTRIES: u32 = 32;
/// How often to look whether the controller is ready.
const POLL: Duration = Duration::from_millis(5);

/// Who this host says it is.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    pub nqn: String,
    pub id: [u8; 16],
}

pub struct Admin {
    connection: Connection,
    /// The target's id of the controller.
    pub cntlid: u16,
}

impl Admin {
    /// Connect to a controller of `subsys_nqn` and enable it. `kato` is its
    /// keep-alive timeout; zero turns it off.
    pub fn connect(
        address: SocketAddr,
        options: Options,
        host: &HostIdentity,
        subsys_nqn: &str,
        kato: Duration,
        deadline: &Deadline,
    ) -> Result<Admin, HostError> {
        let mut connection = Connection::open(address, options, deadline)?;
        let kato = u32::try_from(kato.as_millis()).unwrap_or(u32::MAX);
        let sqe = ConnectCmd::new(0, ENTRIES, kato, 0).sqe();
        let data = ConnectData::new(host.id, CNTLID_ANY, subsys_nqn, &host.nqn)?;
        let request = Request::in_capsule("Connect", sqe, data.as_bytes());
        let cqe = connection.run(request, deadline)?;
        let mut admin = Admin {
            connection,
            cntlid: cqe.result.get() as u16,
        };
        admin.enable(deadline)?;
        Ok(admin)
    }

    fn enable(&mut self, deadline: &Deadline) -> Result<(), HostError> {
        self.set_property("enabling the controller", property::CC, CC_ENABLE, deadline)?;
        loop {
            let csts = self.property(
                "reading the controller's status",
                property::CSTS,
                false,
                deadline,
            )?;
            if csts & CSTS_FATAL != 0 {
                return Err(HostError::Protocol("its controller has failed (CSTS.CFS)"));
            }
            if csts & CSTS_READY != 0 {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Read a property of 8 bytes (`wide`) or 4.
    pub fn property(
        &mut self,
        name: &'static str,
        offset: u32,
        wide: bool,
        deadline: &Deadline,
    ) -> Result<u64, HostError> {
        let sqe = PropertyCmd::get(offset, wide).sqe();
        let cqe = self.connection.run(Request::new(name, sqe), deadline)?;
        let value = cqe.result.get();
        Ok(if wide {
            value
        } else {
            value & u64::from(u32::MAX)
        })
    }

    pub fn set_property(
        &mut self,
        name: &'static str,
        offset: u32,
        value: u64,
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let sqe = PropertyCmd::set(offset, value).sqe();
        self.connection
            .run(Request::new(name, sqe), deadline)
            .map(drop)
    }

    pub fn identify_controller(
        &mut self,
        deadline: &Deadline,
    ) -> Result<Box<identify::Controller>, HostError> {
        let mut bytes = vec![0; identify::LEN];
        let sqe = Sqe::identify(0, cns::CONTROLLER, identify::LEN as u32);
        let request = Request::reading("Identify Controller", sqe, &mut bytes);
        self.connection.run(request, deadline)?;
        Ok(Box::new(*identify::Controller::of(&bytes)?))
    }

    pub fn identify_namespace(
        &mut self,
        nsid: u32,
        deadline: &Deadline,
    ) -> Result<Box<identify::Namespace>, HostError> {
        let mut bytes = vec![0; identify::LEN];
        let sqe = Sqe::identify(nsid, cns::NAMESPACE, identify::LEN as u32);
        let request = Request::reading("Identify Namespace", sqe, &mut bytes);
        self.connection.run(request, deadline)?;
        Ok(Box::new(*identify::Namespace::of(&bytes)?))
    }

    /// Ask for I/O queues, 1 to 65535; what is granted, at least 1.
    pub fn set_queue_count(&mut self, queues: u16, deadline: &Deadline) -> Result<u16, HostError> {
        let sqe = Sqe::set_queue_count(queues);
        let request = Request::new("Set Features (number of queues)", sqe);
        let granted = self.connection.run(request, deadline)?.result.get();
        let least = (granted & 0xffff).min((granted >> 16) & 0xffff);
        Ok(u16::try_from(least + 1).unwrap_or(u16::MAX))
    }

    pub fn keep_alive(&mut self, deadline: &Deadline) -> Result<(), HostError> {
        let request = Request::new("Keep Alive", Sqe::keep_alive());
        self.connection.run(request, deadline).map(drop)
    }

    /// Fill `into` with a log page from `offset`.
    pub fn log_page(
        &mut self,
        lid: u8,
        offset: u64,
        into: &mut [u8],
        deadline: &Deadline,
    ) -> Result<(), HostError> {
        let len = u32::try_from(into.len()).unwrap_or(0);
        let sqe = Sqe::get_log_page(lid, len, offset)?;
        self.connection
            .run(Request::reading("Get Log Page", sqe, into), deadline)?;
        Ok(())
    }
}
