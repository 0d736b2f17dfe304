// SPDX-License-Identifier: GPL-2.0-only
//! A queue of a controller, as its connection holds it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::controller::Controller;
use super::model::{NamespaceTable, TenantId};
use super::target::Target;

/// A queue of a controller. The connection owns it; dropping it gives the queue
/// id back, and with the admin queue's the controller ends and the connections
/// of its I/O queues are to be closed.
pub struct Association {
    pub controller: Arc<Controller>,
    /// 0 is the admin queue.
    pub qid: u16,
    /// Entries of the queue, 2..=[`super::MAX_QUEUE`]. One less than that can
    /// be outstanding.
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
    target: Arc<Target>,
    /// Of the controller when this queue was connected.
    epoch: u64,
    /// Of the controller at the last refresh.
    generation: u64,
}

/// What a connection asked for.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    pub qid: u16,
    pub entries: u32,
    pub sq_flow_off: bool,
}

/// Why there is no such queue.
pub(super) enum Denial {
    NotReady,
    InUse,
    /// The controller has this many I/O queues.
    TooHigh(u16),
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
    pub(super) fn new(
        target: &Arc<Target>,
        controller: Arc<Controller>,
        queue: Queue,
    ) -> Result<Association, Denial> {
        let generation = controller.generation.load(Ordering::Acquire);
        let epoch = controller.open_queue(queue.qid)?;
        let mut association = Association {
            qid: queue.qid,
            entries: queue.entries,
            sq_flow_off: queue.sq_flow_off,
            namespaces: Arc::default(),
            tenant: TenantId(0),
            cpus: None,
            target: Arc::clone(target),
            epoch,
            generation,
            controller,
        };
        association.catch_up();
        Ok(association)
    }

    /// Dword 0 of Connect's completion.
    pub fn connect_result(&self) -> u32 {
        self.controller.cntlid().into()
    }

    /// Catch up with the controller. One load when nothing has changed.
    #[inline]
    pub fn refresh(&mut self) -> Standing {
        let generation = self.controller.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return Standing::Same;
        }
        if self.controller.closed_to(self.qid, self.epoch) {
            return Standing::Closed;
        }
        self.generation = generation;
        self.catch_up();
        Standing::Changed
    }

    fn catch_up(&mut self) {
        self.tenant = self.controller.tenant();
        if let Some(subsystem) = self.controller.subsystem() {
            let live = subsystem.live();
            self.namespaces = live.table;
            let tenant = live.spec.tenant.as_ref();
            self.cpus = tenant.and_then(|t| t.cpus.as_deref().map(Arc::from));
        }
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.controller.close_queue(self.qid, self.epoch);
        if self.qid == 0 {
            self.target.remove_controller(&self.controller);
        }
    }
}
