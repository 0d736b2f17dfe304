// SPDX-License-Identifier: GPL-2.0-only
//! What the subsystem's callers give it and get from it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use nvme_wire::status::Status;
use nvme_wire::tenant::Class;

pub use qos::TenantId;

use crate::backend::Volume;

/// Nanoseconds of CLOCK_MONOTONIC.
pub type Nanos = u64;

/// Least and greatest size of a block, bytes. Hosts of today take no block
/// larger than a page.
pub const BLOCK_SIZES: [u32; 4] = [512, 1024, 2048, 4096];
/// Greatest transfer of one command, bytes (MDTS).
pub const MAX_TRANSFER: u32 = 1 << 20;
/// Most data in the capsule of an I/O command, bytes (IOCCSZ).
pub const IN_CAPSULE: u32 = 8192;
/// Most data in the capsule of an admin or fabrics command, bytes (NVMe/TCP
/// 1.0, 3.3.1.1).
pub const ADMIN_IN_CAPSULE: u32 = 8192;
/// Most entries of a queue (CAP.MQES + 1).
pub const MAX_QUEUE: u32 = 1024;
/// Most I/O queues of a controller.
pub const MAX_IO_QUEUES: u16 = 128;

/// What is exported under one name.
#[derive(Clone, Debug)]
pub struct SubsystemSpec {
    /// Unique among subsystems, not the discovery name.
    pub nqn: String,
    /// 1..=20 printable ASCII characters. Must stay the same over restarts:
    /// hosts refuse a subsystem whose serial number has changed.
    pub serial: String,
    /// 1..=40 printable ASCII characters.
    pub model: String,
    pub namespaces: Vec<NamespaceSpec>,
    /// NQNs of the hosts that may connect; empty: any.
    pub allowed_hosts: Vec<String>,
    /// Where hosts may connect to it and what the discovery log says. An
    /// unspecified address (0.0.0.0, ::) stands for the one the host came by.
    pub listeners: Vec<SocketAddr>,
    /// `None`: hosts get the tenant that [`TenantControl::of`] says.
    pub tenant: Option<TenantSpec>,
}

/// The tenant that all hosts of a subsystem are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    pub id: TenantId,
    /// CPUs whose cores serve the tenant; `None`: where the packets arrive.
    pub cpus: Option<Vec<u32>>,
}

/// One namespace of a subsystem.
#[derive(Clone, Debug)]
pub struct NamespaceSpec {
    /// 1..=[`super::MAX_NSID`], unique in the subsystem.
    pub nsid: u32,
    /// Unique in the world and the same over restarts.
    pub uuid: [u8; 16],
    /// One of [`BLOCK_SIZES`].
    pub block_size: u32,
    /// At least 1; `blocks * block_size` bytes lie within the volume.
    pub blocks: u64,
    pub backend: Volume,
    pub read_only: bool,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Why Connect is refused: what the host is told, and what the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    pub status: Status,
    /// Dword 0 of the completion: with Connect Invalid Parameters, the offset
    /// of the wrong field (IPO) and, in bit 16 (IATTR), whether it lies in the
    /// data rather than in the command (NVMe over Fabrics 1.1, 3.3).
    pub result: u32,
    /// One sentence for the log.
    pub reason: String,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.status)
    }
}

impl std::error::Error for ConnectError {}

/// What is to be done about an admin or fabrics command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send `data` (C2HData), then the completion. `data` is never longer than
    /// the command's SGL, and empty unless the command succeeds.
    Reply {
        status: Status,
        /// Dwords 0 and 1.
        result: u64,
        data: Vec<u8>,
    },
    /// An Asynchronous Event Request, kept until [`super::Controller::events`]
    /// names it.
    Hold,
    /// Abort command `cid` of queue `sqid` if it has not begun, then complete
    /// the Abort itself with success and result 0 if that was done, 1 if not.
    Abort { sqid: u16, cid: u16 },
    /// Close the connection: what was sent can't be answered.
    Close,
}

/// A namespace as the dataplane needs it.
#[derive(Clone, Debug)]
pub struct Namespace {
    pub nsid: u32,
    /// Log2 of the block size: 9..=12.
    pub block_shift: u32,
    pub blocks: u64,
    pub read_only: bool,
    pub volume: Volume,
    pub uuid: [u8; 16],
}

/// The namespaces of a subsystem at one moment; never changes.
#[derive(Clone, Debug, Default)]
pub struct NamespaceTable {
    /// Index is the namespace id minus 1.
    slots: Vec<Option<Namespace>>,
}

impl NamespaceTable {
    /// `None`: there is no such namespace. Constant time.
    #[inline]
    pub fn get(&self, nsid: u32) -> Option<&Namespace> {
        let index = usize::try_from(nsid.checked_sub(1)?).ok()?;
        self.slots.get(index)?.as_ref()
    }

    /// In ascending order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.slots.iter().flatten()
    }

    pub(super) fn new(namespaces: impl Iterator<Item = Namespace>) -> NamespaceTable {
        let mut slots: Vec<Option<Namespace>> = Vec::new();
        for namespace in namespaces {
            let Some(index) = namespace.nsid.checked_sub(1) else {
                continue;
            };
            let index = index as usize;
            if slots.len() <= index {
                slots.resize_with(index + 1, || None);
            }
            if let Some(slot) = slots.get_mut(index) {
                *slot = Some(namespace);
            }
        }
        NamespaceTable { slots }
    }
}

/// Why a tenant can't have what it asks for: one sentence, with what would fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a tenant has done, for the SMART log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
}

/// Who is which tenant, and what it has been promised. Implemented over the
/// scheduler's control by the service; never on the hot path. `of` and `gone` are
/// called under the lock that orders comings and goings: they must not call the
/// target.
pub trait TenantControl: Send + Sync {
    /// The tenant of a host in a subsystem without one of its own. `Err`: the
    /// host can't be admitted; it is told that the controller is busy.
    fn of(&self, host_nqn: &str, subsys_nqn: &str) -> Result<TenantId, Refusal>;

    /// Promise `class` to the host, whole or not at all. The tenant may get
    /// another id; its connections learn of it by [`super::Association::refresh`].
    fn set(&self, host_nqn: &str, subsys_nqn: &str, class: Class) -> Result<TenantId, Refusal>;

    /// What is promised; `None`: nothing yet.
    fn get(&self, host_nqn: &str, subsys_nqn: &str) -> Option<Class>;

    /// The last connection of the host is gone.
    fn gone(&self, _host_nqn: &str, _subsys_nqn: &str) {}

    fn usage(&self, _tenant: TenantId) -> Usage {
        Usage::default()
    }
}

/// Every host is one tenant, and nothing is promised.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneTenant;

impl TenantControl for OneTenant {
    fn of(&self, _host_nqn: &str, _subsys_nqn: &str) -> Result<TenantId, Refusal> {
        Ok(TenantId(0))
    }

    fn set(&self, _host_nqn: &str, _subsys_nqn: &str, _class: Class) -> Result<TenantId, Refusal> {
        Err(Refusal("this server makes no promises to tenants".into()))
    }

    fn get(&self, _host_nqn: &str, _subsys_nqn: &str) -> Option<Class> {
        None
    }
}

/// Wakes the core of a connection; called by any thread, without locks.
pub type Notify = Arc<dyn Fn() + Send + Sync>;
