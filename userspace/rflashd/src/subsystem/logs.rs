// SPDX-License-Identifier: GPL-2.0-only
//! Get Log Page (NVMe base 2.0, 5.16).

use std::mem::offset_of;

use nvme_wire::command::{Sqe, admin, async_event, io, log};
use nvme_wire::log::{Firmware, Smart, effects, supported};
use nvme_wire::status::Status;
use nvme_wire::tenant::opcode;
use zerocopy::{FromZeros, IntoBytes};

use super::admin::{Answer, Fault, expects_reply, reply_data};
use super::controller::Controller;
use super::features;
use super::model::{MAX_TRANSFER, Nanos};

/// Log pages of a controller with namespaces, and of discovery.
const OF_IO: &[u8] = &[
    log::SUPPORTED,
    log::ERRORS,
    log::SMART,
    log::FIRMWARE,
    log::CHANGED_NAMESPACES,
    log::EFFECTS,
    log::FEATURE_EFFECTS,
    log::INTERFACE_EFFECTS,
];
const OF_DISCOVERY: &[u8] = &[log::SUPPORTED, log::ERRORS, log::DISCOVERY];

/// Commands, and whether they change what is stored.
const ADMIN_COMMANDS: &[(u8, bool)] = &[
    (admin::GET_LOG_PAGE, false),
    (admin::IDENTIFY, false),
    (admin::ABORT, false),
    (admin::SET_FEATURES, false),
    (admin::GET_FEATURES, false),
    (admin::ASYNC_EVENT, false),
    (admin::KEEP_ALIVE, false),
    (opcode::TENANT_SET, false),
    (opcode::TENANT_GET, false),
];
const IO_COMMANDS: &[(u8, bool)] = &[
    (io::FLUSH, false),
    (io::WRITE, true),
    (io::READ, false),
    (io::WRITE_ZEROES, true),
    (io::DATASET_MANAGEMENT, true),
];

/// No list of namespaces is longer.
const LIST_BYTES: usize = 4096;
const NANOS_PER_HOUR: u64 = 3_600_000_000_000;

/// What part of which page is wanted.
struct Wanted {
    page: u8,
    offset: u64,
    len: usize,
    /// Retain Asynchronous Event: what was read is not settled.
    retain: bool,
}

impl Wanted {
    fn of(sqe: &Sqe) -> Result<Wanted, Fault> {
        let (low, high) = (sqe.cdw10.get(), sqe.cdw11.get());
        let dwords = (u64::from(high & 0xffff) << 16) | u64::from(low >> 16);
        let len = (dwords + 1) * 4;
        let wrong = |at| Err(Fault::at(Status::INVALID_FIELD, at));
        if len > MAX_TRANSFER.into() {
            return wrong(offset_of!(Sqe, cdw10) + 2);
        }
        let offset = (u64::from(sqe.cdw13.get()) << 32) | u64::from(sqe.cdw12.get());
        if offset % 4 != 0 {
            return wrong(offset_of!(Sqe, cdw12));
        }
        // Offset type: no page here is an array that is counted by entries.
        if sqe.cdw14.get() & (1 << 23) != 0 {
            return wrong(offset_of!(Sqe, cdw14) + 2);
        }
        expects_reply(sqe, len as usize)?;
        Ok(Wanted {
            page: low as u8,
            offset,
            len: len as usize,
            retain: low & (1 << 15) != 0,
        })
    }

    /// The wanted part of a page, with zeroes where it ends.
    fn cut(&self, page: &[u8]) -> Answer {
        let begin = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let Some(rest) = page.get(begin..) else {
            return Err(beyond());
        };
        let mut data = rest
            .get(..self.len.min(rest.len()))
            .unwrap_or(rest)
            .to_vec();
        data.resize(self.len, 0);
        reply_data(data)
    }
}

/// The offset lies behind the page's end.
fn beyond() -> Fault {
    Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, cdw12))
}

impl Controller {
    pub(super) fn get_log_page(&self, sqe: &Sqe, now: Nanos) -> Answer {
        let wanted = Wanted::of(sqe)?;
        let known = if self.is_discovery() {
            OF_DISCOVERY
        } else {
            OF_IO
        };
        if !known.contains(&wanted.page) {
            return Err(Fault::at(Status::INVALID_LOG_PAGE, offset_of!(Sqe, cdw10)));
        }
        // Controllers and subsystems have pages here, namespaces have none.
        if wanted.page == log::SMART && !matches!(sqe.nsid.get(), 0 | u32::MAX) {
            return Err(Fault::at(Status::INVALID_FIELD, offset_of!(Sqe, nsid)));
        }
        match wanted.page {
            log::SUPPORTED => wanted.cut(&supported(known)),
            log::ERRORS => wanted.cut(&self.lock().errors.page()),
            log::SMART => wanted.cut(self.smart(now).as_bytes()),
            log::FIRMWARE => wanted.cut(firmware().as_bytes()),
            log::CHANGED_NAMESPACES => wanted.cut(&self.take_changed(&wanted)),
            log::EFFECTS => wanted.cut(&effects(ADMIN_COMMANDS, IO_COMMANDS)),
            log::FEATURE_EFFECTS => wanted.cut(&supported(features::OF_IO)),
            log::INTERFACE_EFFECTS => wanted.cut(&[0; 4096]),
            _ => self.discovery_page(&wanted),
        }
    }

    fn take_changed(&self, wanted: &Wanted) -> Vec<u8> {
        let mut state = self.lock();
        // Who reads the rest of a page has not seen its beginning by that.
        let settle = !wanted.retain && wanted.offset == 0;
        if settle {
            Controller::rearm(&mut state, async_event::NAMESPACE_ATTRIBUTE);
        }
        let nsids = Controller::changed_namespaces(&mut state, settle);
        let mut page: Vec<u8> = nsids.into_iter().flat_map(u32::to_le_bytes).collect();
        page.resize(LIST_BYTES, 0);
        page
    }

    fn discovery_page(&self, wanted: &Wanted) -> Answer {
        if !wanted.retain {
            Controller::rearm(&mut self.lock(), async_event::DISCOVERY_LOG);
        }
        let page = self.discovery_log(wanted.offset, wanted.len);
        page.map_or_else(|| Err(beyond()), reply_data)
    }

    fn smart(&self, now: Nanos) -> Smart {
        let usage = self.usage();
        let mut page = Smart::new_zeroed();
        page.available_spare = 100;
        page.data_units_read = Smart::units(usage.read_bytes);
        page.data_units_written = Smart::units(usage.write_bytes);
        page.host_reads = u128::from(usage.reads).to_le_bytes();
        page.host_writes = u128::from(usage.writes).to_le_bytes();
        page.power_on_hours = u128::from(now / NANOS_PER_HOUR).to_le_bytes();
        page.media_errors = u128::from(usage.errors).to_le_bytes();
        page.error_entries = u128::from(self.lock().errors.count()).to_le_bytes();
        page
    }
}

fn firmware() -> Firmware {
    let mut page = Firmware::new_zeroed();
    page.active = 1;
    if let Some(slot) = page.slots.first_mut() {
        let version = env!("CARGO_PKG_VERSION").bytes();
        let bytes = version.chain(std::iter::repeat(b' '));
        slot.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    }
    page
}
