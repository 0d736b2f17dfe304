// SPDX-License-Identifier: GPL-2.0-only
//! Tenant Set and Tenant Get, the commands beyond the standard.

use std::mem::offset_of;

use nvme_wire::command::Sqe;
use nvme_wire::status::Status;
use nvme_wire::tenant::{LEN, TenantData};
use zerocopy::IntoBytes;

use super::admin::{Answer, Fault, expects_reply, reply, reply_data};
use super::controller::Controller;
use super::model::Usage;

/// Both move this many dwords, and NSID is 0.
fn check(sqe: &Sqe) -> Result<(), Fault> {
    if sqe.nsid.get() != 0 {
        return Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, nsid)));
    }
    if sqe.cdw10.get() as usize != LEN / 4 {
        return Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, cdw10)));
    }
    Ok(())
}

impl Controller {
    pub(super) fn tenant_set(&self, sqe: &Sqe, data: &[u8]) -> Answer {
        check(sqe)?;
        if data.len() != LEN || sqe.sgl.length.get() as usize != LEN {
            let length = offset_of!(Sqe, sgl) + 8;
            return Err(Fault::at(Status::SGL_DATA_LENGTH, length));
        }
        let (host, name) = (self.host_nqn(), self.subsys_nqn());
        let class = TenantData::decode(data).map_err(|why| {
            log::warn!("host \"{host}\" of \"{name}\" sends a bad Tenant Set: {why}");
            Fault::of(Status::INVALID_FIELD)
        })?;
        let target = self.target().ok_or(Fault::of(Status::INTERNAL))?;
        match target.tenants().set(host, name, class) {
            Ok(tenant) => {
                log::info!("host \"{host}\" of \"{name}\" is {class}");
                target.move_tenant(host, name, tenant);
                reply(0)
            }
            Err(why) => {
                log::warn!("host \"{host}\" of \"{name}\" can't be {class}: {why}");
                Err(Fault::of(Status::TENANT_REFUSED))
            }
        }
    }

    pub(super) fn tenant_get(&self, sqe: &Sqe) -> Answer {
        check(sqe)?;
        expects_reply(sqe, LEN)?;
        let target = self.target().ok_or(Fault::of(Status::INTERNAL))?;
        let class = target.tenants().get(self.host_nqn(), self.subsys_nqn());
        let data = class.map_or_else(TenantData::default, |class| class.data());
        reply_data(data.as_bytes().to_vec())
    }

    pub(super) fn usage(&self) -> Usage {
        let target = self.target();
        target.map_or_else(Usage::default, |t| t.tenants().usage(self.tenant()))
    }
}
