// SPDX-License-Identifier: GPL-2.0-only
//! The wire of NVMe over TCP: PDUs, commands, Identify structures, discovery log.
//!
//! No I/O and no allocation on the data path: every structure is a fixed
//! little-endian layout that can be viewed in place in a receive buffer. What
//! comes from a peer goes through a `check` or `decode` function, which
//! returns a [`WireError`] naming the field, its value and what would be right.
//! Nothing here panics, whatever the bytes.
//!
//! References: NVMe base 2.0, NVMe over Fabrics 1.1, NVMe/TCP transport 1.0.

pub mod command;
pub mod digest;
pub mod discovery;
pub mod error;
pub mod fabrics;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod pdu;
pub mod status;
pub mod tenant;
mod text;

pub use error::{Want, WireError};
pub use text::fixed_text;
