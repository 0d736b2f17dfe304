// SPDX-License-Identifier: GPL-2.0-only
//! The error log of a controller.

use std::collections::VecDeque;

use nvme_wire::command::Sqe;
use nvme_wire::log::ErrorEntry;
use nvme_wire::status::Status;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Entries that are kept (ELPE + 1).
pub(super) const MOST: usize = 64;
/// TRTYPE of TCP.
const TCP: u8 = 3;
/// No field is to blame.
const NOWHERE: u16 = 0xffff;

/// The last errors, newest first. Takes no memory until there is one.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    /// `location`: byte of the command that is to blame.
    pub fn record(&mut self, qid: u16, sqe: &Sqe, status: Status, location: Option<u16>) {
        self.count += 1;
        self.entries.truncate(MOST - 1);
        self.entries.push_front(ErrorEntry {
            error_count: U64::new(self.count),
            sqid: U16::new(qid),
            cid: sqe.cid,
            status: U16::new(status.to_wire()),
            location: U16::new(location.unwrap_or(NOWHERE)),
            lba: U64::new(if qid == 0 { 0 } else { sqe.lba() }),
            nsid: U32::new(sqe.nsid.get()),
            trtype: TCP,
            ..ErrorEntry::default()
        });
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = Vec::with_capacity(MOST * size_of::<ErrorEntry>());
        for entry in &self.entries {
            page.extend(entry.as_bytes());
        }
        page.resize(MOST * size_of::<ErrorEntry>(), 0);
        page
    }
}
