// SPDX-License-Identifier: GPL-2.0-only
//! What the server exports, and to whom.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use nvme_wire::fabrics::{ConnectCmd, ConnectData};
use nvme_wire::status::Status;

use super::controller::Association;
use super::model::{ConnectError, PeerInfo, SubsystemSpec, TenantControl};

/// Everything that is exported. Shared by all cores; slow path only.
pub struct Target {
    _tenants: Arc<dyn TenantControl>,
}

/// What [`Target::apply`] has done, by NQN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Namespaces, hosts, listeners or tenant differ.
    pub changed: Vec<String>,
}

/// What is wrong with a specification: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

impl Target {
    /// `discovery`: addresses that only discovery controllers are reached by;
    /// there is one on every listener of a subsystem as well.
    pub fn new(
        specs: Vec<SubsystemSpec>,
        discovery: Vec<SocketAddr>,
        tenants: Arc<dyn TenantControl>,
    ) -> Result<Arc<Target>, SpecError> {
        let target = Target { _tenants: tenants };
        target.apply(specs, discovery)?;
        Ok(Arc::new(target))
    }

    /// Replace what is exported, whole or, with an error, not at all. Hosts
    /// learn of it by asynchronous events; connections of subsystems that are
    /// gone and of hosts that may not connect any more are to be closed (see
    /// [`Association::refresh`]); all others go on.
    pub fn apply(
        &self,
        _specs: Vec<SubsystemSpec>,
        _discovery: Vec<SocketAddr>,
    ) -> Result<Changes, SpecError> {
        Ok(Changes::default())
    }

    /// Answer Connect, the first command of a connection.
    pub fn connect(
        self: &Arc<Self>,
        _cmd: &ConnectCmd,
        _data: &ConnectData,
        _peer: &PeerInfo,
    ) -> Result<Association, ConnectError> {
        Err(ConnectError {
            status: Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry(),
            result: 0,
            reason: "there is no subsystem".into(),
        })
    }

    /// How many controllers there are.
    pub fn controllers(&self) -> usize {
        0
    }
}
