// SPDX-License-Identifier: GPL-2.0-only
//! The command `rflash`, as a library so that its parts can be tested.

pub mod address;
pub mod cli;
pub mod config;
pub mod control;
pub mod device;
pub mod error;
pub mod histogram;
pub mod identity;
pub mod netlink;
pub mod options;
pub mod promise;
pub mod system;
pub mod table;
pub mod uapi;
pub mod verbs;
