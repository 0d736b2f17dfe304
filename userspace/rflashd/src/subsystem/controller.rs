// SPDX-License-Identifier: GPL-2.0-only
//! A controller: what a host sees of a subsystem.

use std::sync::Arc;

use nvme_wire::command::Sqe;
use nvme_wire::status::Status;

use super::model::{NamespaceTable, Nanos, Notify, Outcome, TenantId};

/// One host's view of a subsystem, from Connect of its admin queue until that
/// queue's [`Association`] is dropped. Shared by the cores of its queues.
pub struct Controller {
    cntlid: u16,
}

/// A queue of a controller. The connection owns it; dropping it gives the queue
/// id back, and with the admin queue's the controller ends and the connections
/// of its I/O queues are to be closed.
pub struct Association {
    pub controller: Arc<Controller>,
    /// 0 is the admin queue.
    pub qid: u16,
    /// Entries of the queue, 2..=[`super::MAX_QUEUE`]: the most commands that
    /// can be outstanding, plus one unless `sq_flow_off`.
    pub entries: u32,
    /// The host does without SQ head pointers: replies may use the SUCCESS
    /// flag, and SQHD is 0.
    pub sq_flow_off: bool,
    /// As of the last [`Association::refresh`].
    pub namespaces: Arc<NamespaceTable>,
    /// As of the last [`Association::refresh`].
    pub tenant: TenantId,
    /// CPUs whose cores should serve the queue; `None`: any.
    pub cpus: Option<Arc<[u32]>>,
}

/// How a connection stands with its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Same,
    /// Namespaces, tenant or CPUs are others than before.
    Changed,
    /// Close the connection: the controller is gone, or was reset after this
    /// I/O queue was connected.
    Closed,
}

impl Association {
    /// Dword 0 of Connect's completion.
    pub fn connect_result(&self) -> u32 {
        self.controller.cntlid.into()
    }

    /// Catch up with the controller. Two relaxed loads when nothing has
    /// changed.
    #[inline]
    pub fn refresh(&mut self) -> Standing {
        Standing::Same
    }
}

impl Controller {
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    pub fn host_nqn(&self) -> &str {
        ""
    }

    pub fn subsys_nqn(&self) -> &str {
        ""
    }

    pub fn is_discovery(&self) -> bool {
        false
    }

    /// Answer an admin command (`qid` 0) or a fabrics command (any queue).
    /// `data` is what came with it, whole: in the capsule or by R2T, at most
    /// [`super::ADMIN_IN_CAPSULE`] bytes. Never panics and always answers.
    pub fn admin(&self, _sqe: &Sqe, _data: &[u8], _qid: u16, _now: Nanos) -> Outcome {
        Outcome::Reply {
            status: Status::INVALID_OPCODE.with_do_not_retry(),
            result: 0,
            data: Vec::new(),
        }
    }

    /// Asynchronous Event Requests to complete now, with success: command id
    /// and result. Each is named once.
    pub fn events(&self) -> Vec<(u16, u64)> {
        Vec::new()
    }

    /// `notify` is called when queue `qid` has something to look at: events on
    /// the admin queue, [`Association::refresh`] on any.
    pub fn set_notify(&self, _qid: u16, _notify: Notify) {}

    /// There was traffic on a queue: the keep-alive timer starts anew.
    pub fn touch(&self, _now: Nanos) {}

    /// The host has been silent for longer than its keep-alive timeout; the
    /// controller is closed by this.
    pub fn expired(&self, _now: Nanos) -> bool {
        false
    }

    /// An I/O command has failed on the backend: an entry for the error log.
    pub fn record_error(&self, _qid: u16, _sqe: &Sqe, _status: Status) {}
}
