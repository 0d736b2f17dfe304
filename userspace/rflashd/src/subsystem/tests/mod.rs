// SPDX-License-Identifier: GPL-2.0-only
//! The subsystem as a host sees it, decoded by the host's own decoders.

mod bad;
mod connecting;
mod discovering;
mod events;
mod host;
mod identifying;
mod tenants;
