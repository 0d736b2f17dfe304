// SPDX-License-Identifier: GPL-2.0-only
//! Subsystems, controllers and everything about them but I/O: Connect,
//! properties, admin commands, discovery. No sockets, no clock, no thread.
//!
//! [`Target`] is what the server exports. A connection that has opened begins
//! with Connect; [`Target::connect`] answers it with an [`Association`], which
//! the connection keeps as long as it lives and drops when it dies. All that
//! comes on the admin queue, and fabrics commands on any queue, go to
//! [`Controller::admin`].
//!
//! What a dataplane does, in order:
//!
//! 1. `Target::connect` with the first capsule; the completion's result is
//!    [`Association::connect_result`].
//! 2. `association.controller.set_notify(qid, wake)`.
//! 3. Per batch of capsules: [`Association::refresh`]; close the connection
//!    when it says [`Standing::Closed`].
//! 4. On the admin queue, after a wake: complete what
//!    [`Controller::events`] returns.
//! 5. Every 100 ms or so: [`Controller::touch`] if anything came since; on the
//!    admin queue `Controller::expired`, which closes the controller.
//! 6. Drop the association.
//!
//! Hazards: the locks in here are taken in the order tenancy, target, subsystem,
//! controller. None is held when a [`Notify`] is called, and none but tenancy
//! when a [`TenantControl`] is.
//!
//! References: NVMe base 2.0, NVMe over Fabrics 1.1, NVMe/TCP transport 1.0.

mod admin;
mod association;
mod connect;
mod controller;
mod discovery;
mod errors;
mod export;
mod features;
mod identify;
mod logs;
mod model;
mod property;
mod target;
mod tenants;

pub use association::{Association, Standing};
pub use controller::Controller;
pub use export::MAX_NSID;
pub use model::*;
pub use target::{Changes, SpecError, Target};

#[cfg(test)]
mod tests;
