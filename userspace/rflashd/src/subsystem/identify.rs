// SPDX-License-Identifier: GPL-2.0-only
//! Identify (NVMe base 2.0, 5.17; NVM command set 1.0, 4.1.5).

use std::mem::offset_of;

use nvme_wire::command::{Sqe, async_event};
use nvme_wire::identify::{self, Identifiers, LEN, cns};
use nvme_wire::status::Status;
use nvme_wire::tenant::Signature;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::admin::{Answer, Fault, expects_reply, reply_data};
use super::controller::{Controller, KATO_UNIT_MS, MAX_EVENTS};
use super::errors;
use super::export::MAX_NSID;
use super::model::{IN_CAPSULE, MAX_QUEUE, MAX_TRANSFER, Namespace};
use super::property::VERSION;

/// The greatest id in a list of namespaces' parameter.
const MAX_LIST: u32 = 0xffff_fffe;
/// The NVM command set.
const NVM: u8 = 0;

/// CMIC: several ports, several controllers.
const CMIC: u8 = 3;
/// CTRATT: 128-bit host ids; traffic counts as keep-alive.
const CTRATT: u32 = 1 | (1 << 6);
/// ONCS: Dataset Management, Write Zeroes.
const ONCS: u16 = (1 << 2) | (1 << 3);
/// LPA: effects log; offsets and long pages; Supported Log Pages and the like.
const LPA: u8 = (1 << 1) | (1 << 2) | (1 << 5);
/// SGLs, with in-capsule offsets.
const SGLS: u32 = 1 | (1 << 20);
/// Ranges of one Dataset Management command.
const DSM_RANGES: u8 = 255;
/// What the backends like: 4 KiB.
const GRAIN: u32 = 4096;

fn wrong_namespace() -> Fault {
    Fault::at(Status::INVALID_NAMESPACE, offset_of!(Sqe, nsid))
}

impl Controller {
    pub(super) fn identify(&self, sqe: &Sqe) -> Answer {
        expects_reply(sqe, LEN)?;
        let page = match self.is_discovery() {
            true => self.identify_discovery(sqe)?,
            false => self.identify_io(sqe)?,
        };
        reply_data(page)
    }

    fn identify_discovery(&self, sqe: &Sqe) -> Result<Vec<u8>, Fault> {
        match sqe.cdw10.get() as u8 {
            cns::CONTROLLER => Ok(self.controller_page().as_bytes().to_vec()),
            _ => Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, cdw10))),
        }
    }

    fn identify_io(&self, sqe: &Sqe) -> Result<Vec<u8>, Fault> {
        let (nsid, csi) = (sqe.nsid.get(), (sqe.cdw11.get() >> 24) as u8);
        let of_command_set = || match csi {
            NVM => Ok(()),
            _ => Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, cdw11) + 3)),
        };
        match sqe.cdw10.get() as u8 {
            cns::CONTROLLER => Ok(self.controller_page().as_bytes().to_vec()),
            cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => self.of_namespace(nsid, namespace_page),
            cns::NAMESPACE_DESCRIPTORS => match self.namespaces().get(nsid) {
                Some(namespace) => Ok(identifiers(namespace).encode()),
                None => Err(wrong_namespace()),
            },
            cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES => self.list(nsid),
            cns::CSI_ACTIVE_NAMESPACES => of_command_set().and_then(|()| self.list(nsid)),
            cns::CSI_NAMESPACE => {
                of_command_set()?;
                self.of_namespace(nsid, |_| vec![0; LEN])
            }
            cns::CSI_CONTROLLER => of_command_set().map(|()| nvm_controller_page()),
            cns::COMMON_NAMESPACE => self.of_namespace(nsid, common_page),
            cns::CONTROLLERS => Ok(self.controllers(sqe)),
            cns::NAMESPACE_CONTROLLERS => match self.namespaces().get(nsid) {
                Some(_) => Ok(self.controllers(sqe)),
                None => Err(wrong_namespace()),
            },
            cns::COMMAND_SETS => {
                let mut page = vec![0; LEN];
                if let Some(first) = page.first_mut() {
                    *first = 1 << NVM;
                }
                Ok(page)
            }
            _ => Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, cdw10))),
        }
    }

    /// A page about one namespace; zeroes about one that could be and is not.
    fn of_namespace(
        &self,
        nsid: u32,
        page: impl FnOnce(&Namespace) -> Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        if !(1..=MAX_NSID).contains(&nsid) {
            return Err(wrong_namespace());
        }
        let namespaces = self.namespaces();
        Ok(namespaces.get(nsid).map_or_else(|| vec![0; LEN], page))
    }

    fn list(&self, above: u32) -> Result<Vec<u8>, Fault> {
        if above >= MAX_LIST {
            return Err(wrong_namespace());
        }
        let namespaces = self.namespaces();
        let ids = namespaces.iter().map(|namespace| namespace.nsid);
        Ok(identify::namespace_list(ids, above))
    }

    fn controllers(&self, sqe: &Sqe) -> Vec<u8> {
        let from = (sqe.cdw10.get() >> 16) as u16;
        identify::controller_list(self.siblings().into_iter(), from)
    }

    fn controller_page(&self) -> Box<identify::Controller> {
        let mut page = Box::new(identify::Controller::new_zeroed());
        self.fill_common(&mut page);
        match self.subsystem() {
            None => {
                page.cntrltype = 2;
                page.oaes = U32::new(async_event::DISCOVERY_LOG);
            }
            Some(subsystem) => {
                let live = subsystem.live();
                fill(&mut page.serial, &live.spec.serial, b' ');
                fill(&mut page.model, &live.spec.model, b' ');
                self.fill_io(&mut page);
                let cached = live.table.iter().any(|n| n.volume.volatile_cache());
                // Bits 2:1, 10b: Flush wants one namespace, not all.
                page.vwc = 0x4 | u8::from(cached);
            }
        }
        page
    }

    fn fill_common(&self, page: &mut identify::Controller) {
        fill(&mut page.serial, "rflashd", b' ');
        fill(&mut page.model, "rflash discovery", b' ');
        fill(&mut page.firmware, env!("CARGO_PKG_VERSION"), b' ');
        page.mdts = (MAX_TRANSFER / 4096).trailing_zeros() as u8;
        page.cntlid = U16::new(self.cntlid());
        page.version = U32::new(VERSION);
        page.ctratt = U32::new(CTRATT);
        page.aerl = MAX_EVENTS as u8 - 1;
        page.lpa = LPA;
        page.elpe = errors::MOST as u8 - 1;
        page.kas = U16::new((KATO_UNIT_MS / 100) as u16);
        page.maxcmd = U16::new(MAX_QUEUE as u16);
        page.sgls = U32::new(SGLS);
        fill(&mut page.subnqn, self.subsys_nqn(), 0);
        page.ioccsz = U32::new(4);
        page.iorcsz = U32::new(1);
        page.msdbd = 1;
    }

    fn fill_io(&self, page: &mut identify::Controller) {
        page.cntrltype = 1;
        page.oaes = U32::new(async_event::NAMESPACE_ATTRIBUTE);
        page.cmic = CMIC;
        page.acl = 3;
        page.avscc = 1;
        page.frmw = 0x3; // one slot, which is read only
        page.sqes = 0x66;
        page.cqes = 0x44;
        page.nn = U32::new(MAX_NSID);
        page.mnan = U32::new(MAX_NSID);
        page.oncs = U16::new(ONCS);
        page.ioccsz = U32::new((64 + IN_CAPSULE) / 16);
        let signature = Signature::new();
        let vendor = page.vendor.as_mut_bytes().iter_mut();
        for (to, from) in vendor.zip(signature.as_bytes()) {
            *to = *from;
        }
    }
}

fn fill(to: &mut [u8], text: &str, pad: u8) {
    let bytes = text.bytes().chain(std::iter::repeat(pad));
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
}

fn identifiers(namespace: &Namespace) -> Identifiers {
    Identifiers {
        nguid: Some(namespace.uuid),
        uuid: Some(namespace.uuid),
        csi: Some(NVM),
        eui64: None,
    }
}

fn namespace_page(namespace: &Namespace) -> Vec<u8> {
    let mut page = identify::Namespace::new_zeroed();
    page.nsze = U64::new(namespace.blocks);
    page.ncap = page.nsze;
    page.nuse = page.nsze;
    // OPTPERF: NPWG and the like mean something.
    page.nsfeat = 1 << 4;
    page.nmic = 1;
    let grain = (GRAIN >> namespace.block_shift).max(1) as u16 - 1;
    page.npwg = U16::new(grain);
    page.npwa = page.npwg;
    page.npdg = page.npwg;
    page.npda = page.npwg;
    page.nows = page.npwg;
    let bytes = u128::from(namespace.blocks) << namespace.block_shift;
    page.nvmcap = bytes.to_le_bytes();
    page.nsattr = namespace.read_only.into();
    page.nguid = namespace.uuid;
    if let Some(format) = page.lbaf.first_mut() {
        format.ds = namespace.block_shift as u8;
    }
    page.as_bytes().to_vec()
}

/// I/O command set independent: what is common to all kinds of namespaces.
fn common_page(namespace: &Namespace) -> Vec<u8> {
    let mut page = vec![0; LEN];
    // NSFEAT: OPTPERF. NMIC: shared. NSATTR: write protected. NSTAT: ready.
    for (offset, value) in [
        (0, 1 << 4),
        (1, 1),
        (8, namespace.read_only.into()),
        (14, 1),
    ] {
        if let Some(byte) = page.get_mut(offset) {
            *byte = value;
        }
    }
    page
}

/// Limits of commands that MDTS does not cover: DMRL at byte 3.
fn nvm_controller_page() -> Vec<u8> {
    let mut page = vec![0; LEN];
    if let Some(ranges) = page.get_mut(3) {
        *ranges = DSM_RANGES;
    }
    page
}
