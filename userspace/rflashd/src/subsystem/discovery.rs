// SPDX-License-Identifier: GPL-2.0-only
//! The discovery log: what the host of a discovery controller may connect to.

use std::net::SocketAddr;

use nvme_wire::discovery::{
    AddressFamily, EFLAGS_DISCOVERY, Entry, Header, Record, SubsystemType, TREQ_NO_SQ_FLOW,
    TransportType,
};
use nvme_wire::fabrics::CNTLID_ANY;
use nvme_wire::nqn;
use zerocopy::IntoBytes;

use super::controller::Controller;
use super::export::plain;

/// Bytes of the header and of an entry.
const UNIT: u64 = size_of::<Entry>() as u64;

impl Controller {
    /// `len` bytes of the log from `offset`, with zeroes where it ends; `None`
    /// if it ends before. Only the entries that are wanted are made: hosts read
    /// a long log in many pieces.
    pub(super) fn discovery_log(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let (genctr, specs) = self.target()?.visible_to(self.host_nqn());
        let local = plain(self.peer.local);
        let listeners = specs.iter().flat_map(|spec| {
            let at = move |&listener| (spec.nqn.as_str(), address(listener, local));
            spec.listeners.iter().map(at)
        });
        let count = 1 + specs.iter().map(|s| s.listeners.len() as u64).sum::<u64>();
        if offset > (count + 1) * UNIT {
            return None;
        }
        let mut out = Vec::with_capacity(len + 2 * UNIT as usize);
        let first = offset / UNIT;
        if first == 0 {
            out.extend(Header::new(genctr, count).as_bytes());
        }
        let this = (nqn::DISCOVERY, local);
        let records = std::iter::once(this).chain(listeners);
        let skipped = usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = len + (offset % UNIT) as usize;
        for (index, (name, at)) in records.enumerate().skip(skipped) {
            if out.len() >= end {
                break;
            }
            // Names were checked when they were configured.
            if let Ok(entry) = record(name, at, index).encode() {
                out.extend(entry.as_bytes());
            }
        }
        out.drain(..(offset % UNIT) as usize);
        out.resize(len, 0);
        Some(out)
    }
}

/// A wildcard listener is where the host came by.
fn address(listener: SocketAddr, local: SocketAddr) -> SocketAddr {
    let listener = plain(listener);
    if listener.ip().is_unspecified() {
        SocketAddr::new(local.ip(), listener.port())
    } else {
        listener
    }
}

fn record(name: &str, at: SocketAddr, index: usize) -> Record {
    let discovery = name == nqn::DISCOVERY;
    Record {
        trtype: TransportType::Tcp,
        adrfam: match at {
            SocketAddr::V4(_) => AddressFamily::Ipv4,
            SocketAddr::V6(_) => AddressFamily::Ipv6,
        },
        subtype: match discovery {
            true => SubsystemType::Discovery,
            false => SubsystemType::Nvme,
        },
        treq: TREQ_NO_SQ_FLOW,
        portid: index as u16,
        cntlid: CNTLID_ANY,
        eflags: if discovery { EFLAGS_DISCOVERY } else { 0 },
        trsvcid: at.port().to_string(),
        subnqn: name.to_string(),
        traddr: at.ip().to_string(),
        sectype: 0,
    }
}
