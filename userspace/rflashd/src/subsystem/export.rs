// SPDX-License-Identifier: GPL-2.0-only
//! One subsystem as it is exported now, and the check of what it shall be.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use nvme_wire::nqn;

use super::model::{BLOCK_SIZES, Namespace, NamespaceSpec, NamespaceTable, SubsystemSpec};
use super::target::SpecError;

/// Highest namespace id (Identify Controller, NN).
pub const MAX_NSID: u32 = 1024;

/// A subsystem, from the configuration that brings it to the one that takes it
/// away.
pub(super) struct Subsystem {
    pub nqn: String,
    live: Mutex<Live>,
}

/// What a subsystem is at one moment.
#[derive(Clone)]
pub(super) struct Live {
    pub spec: Arc<SubsystemSpec>,
    pub table: Arc<NamespaceTable>,
    /// Taken away: nobody may connect any more.
    pub removed: bool,
}

/// What a new specification has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Namespaces that came, went, or are not what they were.
    pub namespaces: BTreeSet<u32>,
    pub hosts: bool,
    pub listeners: bool,
    pub tenant: bool,
}

impl Difference {
    pub fn any(&self) -> bool {
        !self.namespaces.is_empty() || self.hosts || self.listeners || self.tenant
    }
}

impl Subsystem {
    pub fn new(spec: SubsystemSpec) -> Subsystem {
        Subsystem {
            nqn: spec.nqn.clone(),
            live: Mutex::new(Live {
                table: Arc::new(table(&spec)),
                spec: Arc::new(spec),
                removed: false,
            }),
        }
    }

    pub fn live(&self) -> Live {
        self.lock().clone()
    }

    pub fn remove(&self) {
        self.lock().removed = true;
    }

    pub fn replace(&self, spec: SubsystemSpec) -> Difference {
        let mut live = self.lock();
        let difference = difference(&live.spec, &spec);
        live.table = Arc::new(table(&spec));
        live.spec = Arc::new(spec);
        difference
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubsystemSpec {
    pub(super) fn admits(&self, host_nqn: &str) -> bool {
        self.allowed_hosts.is_empty() || self.allowed_hosts.iter().any(|nqn| nqn == host_nqn)
    }

    /// Whether the subsystem is to be had at the address a host came by.
    pub(super) fn listens_at(&self, local: SocketAddr) -> bool {
        self.listeners.is_empty() || self.listeners.iter().any(|&at| covers(at, local))
    }
}

/// An IPv4 address that came by an IPv6 socket, as the IPv4 address it is.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn covers(listener: SocketAddr, local: SocketAddr) -> bool {
    let (listener, local) = (plain(listener), plain(local));
    let anywhere = match listener.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && local.is_ipv4(),
        // A wildcard of IPv6 takes IPv4 as well, unless the socket forbids it.
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    listener.port() == local.port() && (anywhere || listener.ip() == local.ip())
}

fn table(spec: &SubsystemSpec) -> NamespaceTable {
    NamespaceTable::new(spec.namespaces.iter().map(|namespace| Namespace {
        nsid: namespace.nsid,
        block_shift: namespace.block_size.trailing_zeros(),
        blocks: namespace.blocks,
        read_only: namespace.read_only,
        volume: namespace.backend.clone(),
        uuid: namespace.uuid,
    }))
}

fn difference(old: &SubsystemSpec, new: &SubsystemSpec) -> Difference {
    let shape = |n: &NamespaceSpec| (n.uuid, n.block_size, n.blocks, n.read_only);
    let missing = |from: &SubsystemSpec, to: &SubsystemSpec| -> Vec<u32> {
        let same = |n: &NamespaceSpec| {
            to.namespaces
                .iter()
                .any(|m| m.nsid == n.nsid && shape(m) == shape(n))
        };
        from.namespaces
            .iter()
            .filter(|n| !same(n))
            .map(|n| n.nsid)
            .collect()
    };
    Difference {
        namespaces: missing(old, new)
            .into_iter()
            .chain(missing(new, old))
            .collect(),
        hosts: old.allowed_hosts != new.allowed_hosts,
        listeners: old.listeners != new.listeners,
        tenant: old.tenant != new.tenant,
    }
}

/// Refuse what no host could use, before anything of it is exported.
pub(super) fn check(specs: &[SubsystemSpec]) -> Result<(), SpecError> {
    let mut names = BTreeSet::new();
    for spec in specs {
        let name = spec.nqn.as_str();
        let wrong = |why: String| Err(SpecError(format!("subsystem \"{name}\": {why}")));
        if let Err(why) = nqn::check(name) {
            return wrong(format!("its NQN is wrong: {why}"));
        }
        if name == nqn::DISCOVERY {
            return wrong("this name belongs to discovery controllers; take another".into());
        }
        if !names.insert(name) {
            return wrong("there are two of it; names must be unique".into());
        }
        for (what, text, most) in [("serial", &spec.serial, 20), ("model", &spec.model, 40)] {
            let printable = text.bytes().all(|b| (0x20..=0x7e).contains(&b));
            if text.trim().is_empty() || text.len() > most || !printable {
                return wrong(format!(
                    "its {what} is {text:?}; it must be 1 to {most} printable ASCII characters"
                ));
            }
        }
        for host in &spec.allowed_hosts {
            if let Err(why) = nqn::check(host) {
                return wrong(format!("allowed host {host:?}: {why}"));
            }
        }
        if let Err(SpecError(why)) = check_namespaces(&spec.namespaces) {
            return wrong(why);
        }
    }
    Ok(())
}

fn check_namespaces(namespaces: &[NamespaceSpec]) -> Result<(), SpecError> {
    let mut ids = BTreeSet::new();
    for namespace in namespaces {
        let (nsid, size) = (namespace.nsid, namespace.block_size);
        let wrong = |why: String| Err(SpecError(format!("namespace {nsid}: {why}")));
        if !(1..=MAX_NSID).contains(&nsid) {
            return wrong(format!("its id must be 1 to {MAX_NSID}"));
        }
        if !ids.insert(nsid) {
            return wrong("there are two of it; ids must be unique".into());
        }
        if !BLOCK_SIZES.contains(&size) {
            return wrong(format!(
                "its block size is {size}; it must be one of {BLOCK_SIZES:?}"
            ));
        }
        let bytes = namespace.blocks.checked_mul(size.into());
        let fits = bytes.is_some_and(|bytes| bytes > 0 && bytes <= namespace.backend.bytes());
        if !fits {
            return wrong(format!(
                "it has {} blocks of {size} bytes; its backend has room for 1 to {}",
                namespace.blocks,
                namespace.backend.bytes() / u64::from(size)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let at = |s: &str| s.parse::<SocketAddr>().unwrap();
        assert!(covers(at("0.0.0.0:4420"), at("192.0.2.1:4420")));
        assert!(!covers(at("0.0.0.0:4420"), at("192.0.2.1:4421")));
        assert!(covers(at("[::]:4420"), at("[::ffff:192.0.2.1]:4420")));
        assert!(covers(at("192.0.2.1:1"), at("[::ffff:192.0.2.1]:1")));
        assert!(!covers(at("192.0.2.1:1"), at("192.0.2.2:1")));
        assert!(!covers(at("0.0.0.0:1"), at("[2001:db8::1]:1")));
    }
}
