// SPDX-License-Identifier: GPL-2.0-only
//! Asking a discovery controller what there is to connect to.

use std::net::SocketAddr;
use std::time::Duration;

use nvme_wire::command::log;
use nvme_wire::discovery::{self, Entry, Header, Record};
use nvme_wire::nqn;

use crate::admin::{Admin, HostIdentity};
use crate::connection::Options;
use crate::error::{Deadline, HostError};

/// Most entries that are read; a log that claims more is refused.
const MOST_RECORDS: u64 = 4096;
/// Entries per Get Log Page.
const PAGE: u64 = 16;
/// How often a log that changes while it is read is read again.
const TRIES: u32 = 8;

/// The whole log, of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryLog {
    pub genctr: u64,
    pub records: Vec<Record>,
}

/// Connect to a discovery controller, read its log and disconnect.
pub fn discover(
    address: SocketAddr,
    host: &HostIdentity,
    timeout: Duration,
) -> Result<DiscoveryLog, HostError> {
    let deadline = Deadline::after(timeout);
    let mut admin = Admin::connect(
        address,
        Options::default(),
        host,
        nqn::DISCOVERY,
        Duration::ZERO,
        &deadline,
    )?;
    for _ in 0..TRIES {
        if let Some(log) = read_log(&mut admin, &deadline)? {
            return Ok(log);
        }
    }
    Err(HostError::Protocol(
        "its discovery log changes all the time",
    ))
}

/// `None` if the log has changed meanwhile.
fn read_log(admin: &mut Admin, deadline: &Deadline) -> Result<Option<DiscoveryLog>, HostError> {
    let (genctr, count) = read_header(admin, deadline)?;
    let mut records = Vec::new();
    let entry_len = size_of::<Entry>() as u64;
    let mut done = 0;
    while done < count {
        let n = PAGE.min(count - done);
        let mut page = vec![0; (n * entry_len) as usize];
        let offset = size_of::<Header>() as u64 + done * entry_len;
        admin.log_page(log::DISCOVERY, offset, &mut page, deadline)?;
        records.push(page);
        done += n;
    }
    // Only if the counter still stands where it did are the pages of one log.
    let (again, _) = read_header(admin, deadline)?;
    if again != genctr {
        return Ok(None);
    }
    let mut decoded = Vec::new();
    for page in &records {
        decoded.extend(discovery::entries(page)?);
    }
    Ok(Some(DiscoveryLog {
        genctr,
        records: decoded,
    }))
}

fn read_header(admin: &mut Admin, deadline: &Deadline) -> Result<(u64, u64), HostError> {
    let mut bytes = vec![0; size_of::<Header>()];
    admin.log_page(log::DISCOVERY, 0, &mut bytes, deadline)?;
    let header = Header::of(&bytes)?;
    Ok((header.genctr.get(), header.records(MOST_RECORDS)?))
}
