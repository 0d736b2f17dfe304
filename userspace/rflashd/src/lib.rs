// SPDX-License-Identifier: GPL-2.0-only
//! The flash server.

pub mod backend;
pub mod cli;
pub mod config;
pub mod dataplane;
pub mod metrics;
pub mod service;
pub mod subsystem;
