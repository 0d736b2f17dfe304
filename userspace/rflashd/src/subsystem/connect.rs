// SPDX-License-Identifier: GPL-2.0-only
//! Connect: what a host must say to get a queue (NVMe over Fabrics 1.1, 3.3).

use std::mem::offset_of;
use std::sync::Arc;

use nvme_wire::fabrics::{CATTR_NO_SQ_FLOW, CNTLID_ANY, ConnectCmd, ConnectData};
use nvme_wire::nqn;
use nvme_wire::status::Status;

use super::association::{Association, Denial, Queue};
use super::controller::{Controller, Kind};
use super::model::{ConnectError, MAX_QUEUE, PeerInfo, TenantId};
use super::target::Target;

/// Keep-alive timeout of a discovery controller whose host asks for none:
/// nobody else would notice that the host is gone. As the kernel's target.
const DISCOVERY_KATO_MS: u32 = 120_000;

/// A wrong field of the command, by its offset.
fn wrong_command(offset: usize, reason: String) -> ConnectError {
    ConnectError {
        status: Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry(),
        result: offset as u32,
        reason,
    }
}

/// A wrong field of the data, by its offset: IATTR is set.
fn wrong_data(offset: usize, reason: String) -> ConnectError {
    ConnectError {
        result: (1 << 16) | offset as u32,
        ..wrong_command(0, reason)
    }
}

fn refused(status: Status, reason: String) -> ConnectError {
    ConnectError {
        status,
        result: 0,
        reason,
    }
}

/// What is asked for, once its form is right.
struct Asked<'a> {
    queue: Queue,
    kato_ms: u32,
    cntlid: u16,
    host_id: [u8; 16],
    host_nqn: &'a str,
    subsys_nqn: &'a str,
}

fn decode<'a>(cmd: &ConnectCmd, data: &'a ConnectData) -> Result<Asked<'a>, ConnectError> {
    if cmd.recfmt.get() != 0 {
        return Err(refused(
            Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry(),
            format!("record format {} of Connect is unknown", cmd.recfmt.get()),
        ));
    }
    let subsys_nqn = data
        .subsys_nqn()
        .map_err(|why| wrong_data(offset_of!(ConnectData, subsys_nqn), why.to_string()))?;
    let host_nqn = data
        .host_nqn()
        .map_err(|why| wrong_data(offset_of!(ConnectData, host_nqn), why.to_string()))?;
    let entries = u32::from(cmd.sqsize.get()) + 1;
    if !(2..=MAX_QUEUE).contains(&entries) {
        let offset = offset_of!(ConnectCmd, sqsize);
        let reason = format!("a queue of {entries} entries; 2 to {MAX_QUEUE} can be had");
        return Err(wrong_command(offset, reason));
    }
    Ok(Asked {
        queue: Queue {
            qid: cmd.qid.get(),
            entries,
            sq_flow_off: cmd.cattr & CATTR_NO_SQ_FLOW != 0,
        },
        kato_ms: cmd.kato.get(),
        cntlid: data.cntlid.get(),
        host_id: data.hostid,
        host_nqn,
        subsys_nqn,
    })
}

impl Target {
    /// Answer Connect, the first command of a connection.
    pub fn connect(
        self: &Arc<Self>,
        cmd: &ConnectCmd,
        data: &ConnectData,
        peer: &PeerInfo,
    ) -> Result<Association, ConnectError> {
        let asked = decode(cmd, data)?;
        if asked.queue.qid == 0 {
            self.connect_admin(&asked, peer)
        } else {
            self.connect_io(&asked)
        }
    }

    fn connect_admin(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        peer: &PeerInfo,
    ) -> Result<Association, ConnectError> {
        if asked.cntlid != CNTLID_ANY {
            let offset = offset_of!(ConnectData, cntlid);
            let reason = format!(
                "controller {:#06x} is asked for; controllers are made on demand (0xffff)",
                asked.cntlid
            );
            return Err(wrong_data(offset, reason));
        }
        let tenancy = self.lock_tenancy();
        let (kind, tenant) = self.admit(asked, peer)?;
        let kato_ms = match (&kind, asked.kato_ms) {
            (Kind::Discovery, 0) => DISCOVERY_KATO_MS,
            (_, ms) => ms,
        };
        let add = |cntlid| {
            let (host, id) = (asked.host_nqn, asked.host_id);
            let target = Arc::downgrade(self);
            let controller = Controller::new(cntlid, kind, host, id, *peer, target);
            controller.begin(kato_ms, tenant);
            controller
        };
        let controller = self.add_controller(asked.subsys_nqn, add).ok_or_else(|| {
            self.forget(asked.host_nqn, asked.subsys_nqn);
            let reason = "no controller id is free, or the subsystem has just gone";
            refused(Status::CONNECT_CONTROLLER_BUSY, reason.into())
        })?;
        drop(tenancy);
        self.associate(controller, asked.queue)
    }

    /// May this host have a controller of what it names, here?
    fn admit(&self, asked: &Asked<'_>, peer: &PeerInfo) -> Result<(Kind, TenantId), ConnectError> {
        let (host, name) = (asked.host_nqn, asked.subsys_nqn);
        if name == nqn::DISCOVERY {
            return Ok((Kind::Discovery, TenantId(0)));
        }
        let unknown = |reason| wrong_data(offset_of!(ConnectData, subsys_nqn), reason);
        let subsystem = self
            .subsystem(name)
            .ok_or_else(|| unknown(format!("there is no subsystem \"{name}\"")))?;
        let spec = subsystem.live().spec;
        if !spec.listens_at(peer.local) {
            let reason = format!("subsystem \"{name}\" is not to be had at {}", peer.local);
            return Err(unknown(reason));
        }
        if !spec.admits(host) {
            return Err(ConnectError {
                status: Status::CONNECT_INVALID_HOST.with_do_not_retry(),
                ..wrong_data(
                    offset_of!(ConnectData, host_nqn),
                    format!("host \"{host}\" is not among the allowed hosts of \"{name}\""),
                )
            });
        }
        let tenant = match &spec.tenant {
            Some(tenant) => tenant.id,
            None => self.tenants().of(host, name).map_err(|why| {
                let reason = format!("host \"{host}\" can't be a tenant of \"{name}\": {why}");
                refused(Status::CONNECT_CONTROLLER_BUSY, reason)
            })?,
        };
        Ok((Kind::Io(subsystem), tenant))
    }

    fn connect_io(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Association, ConnectError> {
        let cntlid = asked.cntlid;
        let controller = self.controller(cntlid).ok_or_else(|| {
            let offset = offset_of!(ConnectData, cntlid);
            wrong_data(offset, format!("there is no controller {cntlid}"))
        })?;
        let other = |offset, what: &str| {
            let reason = format!("controller {cntlid} belongs to another {what}");
            Err(wrong_data(offset, reason))
        };
        if controller.subsys_nqn() != asked.subsys_nqn {
            return other(offset_of!(ConnectData, subsys_nqn), "subsystem");
        }
        if controller.host_nqn() != asked.host_nqn {
            return other(offset_of!(ConnectData, host_nqn), "host");
        }
        if *controller.host_id() != asked.host_id {
            return other(offset_of!(ConnectData, hostid), "host id");
        }
        self.associate(controller, asked.queue)
    }

    fn associate(
        self: &Arc<Self>,
        controller: Arc<Controller>,
        queue: Queue,
    ) -> Result<Association, ConnectError> {
        let qid = queue.qid;
        let sequence = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
        Association::new(self, controller, queue).map_err(|denial| match denial {
            Denial::NotReady => {
                let reason = format!("queue {qid} of a controller that is not enabled");
                refused(sequence, reason)
            }
            Denial::InUse => refused(sequence, format!("queue {qid} is connected already")),
            Denial::TooHigh(most) => wrong_command(
                offset_of!(ConnectCmd, qid),
                format!("queue {qid}; this controller has {most} I/O queues"),
            ),
        })
    }
}
