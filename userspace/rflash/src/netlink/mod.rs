// SPDX-License-Identifier: GPL-2.0-only
//! A generic-netlink client: one family, requests and dumps, extended acks.

pub mod attr;
pub mod client;
pub mod message;

pub use attr::{Attr, Attrs, Builder};
pub use client::{Client, Port, Socket};
pub use message::Refusal;

use std::fmt;
use std::io;

#[derive(Debug)]
pub enum NetlinkError {
    /// The family is not registered: the module is not loaded.
    NoFamily,
    /// The kernel refused the request.
    Refused(Refusal),
    /// The kernel sent what this program does not understand.
    Malformed(&'static str),
    Io(io::Error),
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetlinkError::NoFamily => {
                f.write_str("the rflash driver is not loaded: run `modprobe rflash` first")
            }
            NetlinkError::Refused(refusal) => write!(f, "{refusal}"),
            NetlinkError::Malformed(what) => write!(
                f,
                "the driver's answer is not understood ({what}): \
                 are the driver and this program of the same version?"
            ),
            NetlinkError::Io(error) => write!(f, "netlink: {error}"),
        }
    }
}

impl std::error::Error for NetlinkError {}

impl From<io::Error> for NetlinkError {
    fn from(error: io::Error) -> Self {
        NetlinkError::Io(error)
    }
}
