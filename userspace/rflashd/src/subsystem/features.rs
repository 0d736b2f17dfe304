// SPDX-License-Identifier: GPL-2.0-only
//! Get Features and Set Features.

use std::mem::offset_of;

use nvme_wire::command::{Sqe, async_event, feature};
use nvme_wire::status::Status;

use super::admin::{Answer, Fault, expects_nothing, expects_reply, reply, reply_data};
use super::controller::Controller;
use super::model::{MAX_IO_QUEUES, Nanos};

/// What a host has set; a reset puts it back.
#[derive(Clone, Debug)]
pub(super) struct Features {
    pub io_queues: u16,
    /// Events the host wants.
    pub events: u32,
    arbitration: u32,
    error_recovery: u32,
    write_atomicity: u32,
    /// Kelvin: over and under.
    temperature: (u16, u16),
}

impl Default for Features {
    fn default() -> Features {
        Features {
            io_queues: MAX_IO_QUEUES,
            events: 0,
            arbitration: 0,
            error_recovery: 0,
            write_atomicity: 0,
            temperature: (u16::MAX, 0),
        }
    }
}

/// Feature identifiers of a controller with namespaces, and of discovery.
pub(super) const OF_IO: &[u8] = &[
    feature::ARBITRATION,
    feature::POWER,
    feature::TEMPERATURE,
    feature::ERROR_RECOVERY,
    feature::WRITE_CACHE,
    feature::NUMBER_OF_QUEUES,
    feature::WRITE_ATOMICITY,
    feature::ASYNC_EVENTS,
    feature::KEEP_ALIVE,
    feature::HOST_ID,
];
pub(super) const OF_DISCOVERY: &[u8] = &[feature::ASYNC_EVENTS, feature::KEEP_ALIVE];

/// CDW10 bit 31 of Set Features: keep over resets.
const SAVE: u32 = 1 << 31;
/// CDW11 of Host Identifier: 128 bits.
const EXTENDED_HOST_ID: u32 = 1;

fn here(field: usize) -> Fault {
    Fault::at(Status::INVALID_FIELD, field)
}

impl Controller {
    fn feature_id(&self, sqe: &Sqe) -> Result<u8, Fault> {
        let fid = sqe.cdw10.get() as u8;
        let known = if self.is_discovery() {
            OF_DISCOVERY
        } else {
            OF_IO
        };
        match known.contains(&fid) {
            true => Ok(fid),
            false => Err(here(offset_of!(Sqe, cdw10))),
        }
    }

    pub(super) fn get_features(&self, sqe: &Sqe) -> Answer {
        let fid = self.feature_id(sqe)?;
        // SELECT: other than current values need ONCS bit 4.
        if (sqe.cdw10.get() >> 8) & 7 != 0 {
            return Err(here(offset_of!(Sqe, cdw10) + 1));
        }
        if fid == feature::HOST_ID {
            if sqe.cdw11.get() & EXTENDED_HOST_ID == 0 {
                return Err(here(offset_of!(Sqe, cdw11)));
            }
            expects_reply(sqe, 16)?;
            return reply_data(self.host_id().to_vec());
        }
        expects_nothing(sqe)?;
        let cached = self.namespaces().iter().any(|n| n.volume.volatile_cache());
        let state = self.lock();
        let features = &state.features;
        let value = match fid {
            feature::ARBITRATION => features.arbitration,
            feature::TEMPERATURE => match sqe.cdw11.get() >> 16 {
                // Composite sensor; over, under.
                0 => features.temperature.0.into(),
                0x10 => features.temperature.1.into(),
                _ => return Err(here(offset_of!(Sqe, cdw11) + 2)),
            },
            feature::ERROR_RECOVERY => features.error_recovery,
            feature::WRITE_CACHE => cached.into(),
            feature::NUMBER_OF_QUEUES => both(features.io_queues),
            feature::WRITE_ATOMICITY => features.write_atomicity,
            feature::ASYNC_EVENTS => features.events,
            feature::KEEP_ALIVE => self.kato_ms(),
            // One power state.
            _ => 0,
        };
        reply(value.into())
    }

    pub(super) fn set_features(&self, sqe: &Sqe, now: Nanos) -> Answer {
        let fid = self.feature_id(sqe)?;
        if sqe.cdw10.get() & SAVE != 0 {
            let bit = offset_of!(Sqe, cdw10) + 3;
            return Err(Fault::at(Status::FEATURE_NOT_SAVEABLE, bit));
        }
        if fid == feature::HOST_ID {
            // It came with Connect (NVMe base 2.0, 5.27.1.25).
            return Err(Fault::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        expects_nothing(sqe)?;
        let value = sqe.cdw11.get();
        let wrong = Err(here(offset_of!(Sqe, cdw11)));
        let cached = self.namespaces().iter().any(|n| n.volume.volatile_cache());
        let mut state = self.lock();
        match fid {
            feature::ARBITRATION => state.features.arbitration = value,
            feature::POWER if value & 0x1f != 0 => return wrong,
            feature::POWER => {}
            feature::TEMPERATURE => match value >> 16 {
                0 => state.features.temperature.0 = value as u16,
                0x10 => state.features.temperature.1 = value as u16,
                _ => return wrong,
            },
            // No errors for deallocated blocks (DULBE): nobody keeps count.
            feature::ERROR_RECOVERY if value & !0xffff != 0 => return wrong,
            feature::ERROR_RECOVERY => state.features.error_recovery = value,
            feature::WRITE_CACHE if (value & 1 != 0) != cached => {
                return Err(Fault::of(Status::FEATURE_NOT_CHANGEABLE));
            }
            feature::WRITE_CACHE => {}
            feature::WRITE_ATOMICITY => state.features.write_atomicity = value & 1,
            feature::NUMBER_OF_QUEUES => {
                let (sent, got) = (value as u16, (value >> 16) as u16);
                if sent == u16::MAX || got == u16::MAX {
                    return wrong;
                }
                if Controller::has_io_queues(&state) {
                    return Err(Fault::of(Status::COMMAND_SEQUENCE_ERROR));
                }
                // A queue of fabrics has both halves.
                let asked = sent.min(got) + 1;
                state.features.io_queues = asked.min(MAX_IO_QUEUES);
                return reply(both(state.features.io_queues).into());
            }
            feature::ASYNC_EVENTS => {
                let there = match self.is_discovery() {
                    true => async_event::DISCOVERY_LOG,
                    false => async_event::NAMESPACE_ATTRIBUTE,
                };
                // SMART warnings (7:0) may be asked for; there are none.
                if value & !(there | 0xff) != 0 {
                    return wrong;
                }
                state.features.events = value;
            }
            _ => {
                self.set_kato(value);
                self.touch(now);
            }
        }
        reply(0)
    }
}

/// Zero-based number of submission and of completion queues.
fn both(queues: u16) -> u32 {
    let n = u32::from(queues.saturating_sub(1));
    n | (n << 16)
}
