// SPDX-License-Identifier: GPL-2.0-only
//! Fabrics commands: Connect and properties.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::{FLAGS_SGL, Sgl, Sqe, sgl};
use crate::error::{Want, WireError, field, prefix};
use crate::nqn;

/// Opcode of all fabrics commands; FCTYPE says which.
pub const OPCODE: u8 = 0x7f;

pub mod fctype {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
}

/// Offsets of controller properties.
pub mod property {
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1c;
    /// Controller ready timeouts.
    pub const CRTO: u32 = 0x68;
}

/// CC: enable, NVM command set, round robin, 64-byte SQEs, 16-byte CQEs.
pub const CC_ENABLE: u64 = 1 | (6 << 16) | (4 << 20);
pub const CC_SHUTDOWN_NORMAL: u64 = 1 << 14;
pub const CSTS_READY: u64 = 1;
pub const CSTS_FATAL: u64 = 1 << 1;
/// Shutdown is complete.
pub const CSTS_SHUTDOWN_DONE: u64 = 2 << 2;

/// CATTR bit: submission queue flow control is off.
pub const CATTR_NO_SQ_FLOW: u8 = 1 << 2;
/// CNTLID in Connect data: any controller.
pub const CNTLID_ANY: u16 = 0xffff;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectCmd {
    pub opcode: u8,
    pub flags: u8,
    pub cid: U16,
    pub fctype: u8,
    pub reserved5: [u8; 19],
    pub sgl: Sgl,
    pub recfmt: U16,
    pub qid: U16,
    /// Zero-based.
    pub sqsize: U16,
    pub cattr: u8,
    pub reserved47: u8,
    /// Milliseconds.
    pub kato: U32,
    pub reserved52: [u8; 12],
}

/// Property Get and Set.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct PropertyCmd {
    pub opcode: u8,
    pub flags: u8,
    pub cid: U16,
    pub fctype: u8,
    pub reserved5: [u8; 35],
    /// 1 for properties of 8 bytes, 0 for those of 4.
    pub attrib: u8,
    pub reserved41: [u8; 3],
    pub offset: U32,
    pub value: U64,
    pub reserved56: [u8; 8],
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    pub hostid: [u8; 16],
    pub cntlid: U16,
    pub reserved18: [u8; 238],
    pub subsys_nqn: [u8; 256],
    pub host_nqn: [u8; 256],
    pub reserved768: [u8; 256],
}

const _: () = {
    assert!(size_of::<ConnectCmd>() == 64);
    assert!(offset_of!(ConnectCmd, fctype) == 4);
    assert!(offset_of!(ConnectCmd, sgl) == 24);
    assert!(offset_of!(ConnectCmd, recfmt) == 40);
    assert!(offset_of!(ConnectCmd, qid) == 42);
    assert!(offset_of!(ConnectCmd, sqsize) == 44);
    assert!(offset_of!(ConnectCmd, cattr) == 46);
    assert!(offset_of!(ConnectCmd, kato) == 48);
    assert!(size_of::<PropertyCmd>() == 64);
    assert!(offset_of!(PropertyCmd, attrib) == 40);
    assert!(offset_of!(PropertyCmd, offset) == 44);
    assert!(offset_of!(PropertyCmd, value) == 48);
    assert!(size_of::<ConnectData>() == 1024);
    assert!(offset_of!(ConnectData, cntlid) == 16);
    assert!(offset_of!(ConnectData, subsys_nqn) == 256);
    assert!(offset_of!(ConnectData, host_nqn) == 512);
};

/// A fabrics view as the SQE it is.
fn as_sqe<T: IntoBytes + Immutable>(view: &T) -> Sqe {
    let mut sqe = Sqe::default();
    for (to, from) in sqe.as_mut_bytes().iter_mut().zip(view.as_bytes()) {
        *to = *from;
    }
    sqe
}

impl ConnectCmd {
    /// Connect queue `qid` of `entries` (2..65536) entries, with the Connect
    /// data in the capsule.
    pub fn new(qid: u16, entries: u32, kato_ms: u32, cattr: u8) -> ConnectCmd {
        ConnectCmd {
            opcode: OPCODE,
            flags: FLAGS_SGL,
            cid: U16::ZERO,
            fctype: fctype::CONNECT,
            reserved5: [0; 19],
            sgl: Sgl {
                length: U32::new(size_of::<ConnectData>() as u32),
                kind: sgl::IN_CAPSULE,
                ..Sgl::default()
            },
            recfmt: U16::ZERO,
            qid: U16::new(qid),
            sqsize: U16::new(entries.clamp(2, 65536).wrapping_sub(1) as u16),
            cattr,
            reserved47: 0,
            kato: U32::new(kato_ms),
            reserved52: [0; 12],
        }
    }

    pub fn sqe(&self) -> Sqe {
        as_sqe(self)
    }

    pub fn of(sqe: &Sqe) -> Result<&ConnectCmd, WireError> {
        prefix("Connect", sqe.as_bytes())
    }
}

impl PropertyCmd {
    /// Get a property of 4 or, with `wide`, 8 bytes.
    pub fn get(offset: u32, wide: bool) -> PropertyCmd {
        PropertyCmd {
            opcode: OPCODE,
            flags: FLAGS_SGL,
            cid: U16::ZERO,
            fctype: fctype::PROPERTY_GET,
            reserved5: [0; 35],
            attrib: wide.into(),
            reserved41: [0; 3],
            offset: U32::new(offset),
            value: U64::ZERO,
            reserved56: [0; 8],
        }
    }

    /// Set a property of 4 bytes; all that a host may write have 4.
    pub fn set(offset: u32, value: u64) -> PropertyCmd {
        PropertyCmd {
            fctype: fctype::PROPERTY_SET,
            value: U64::new(value),
            ..PropertyCmd::get(offset, false)
        }
    }

    pub fn sqe(&self) -> Sqe {
        as_sqe(self)
    }

    pub fn of(sqe: &Sqe) -> Result<&PropertyCmd, WireError> {
        prefix("Property command", sqe.as_bytes())
    }
}

impl ConnectData {
    /// Names longer than an NQN may be are refused.
    pub fn new(
        hostid: [u8; 16],
        cntlid: u16,
        subsys_nqn: &str,
        host_nqn: &str,
    ) -> Result<ConnectData, WireError> {
        Ok(ConnectData {
            hostid,
            cntlid: U16::new(cntlid),
            reserved18: [0; 238],
            subsys_nqn: name_field("subnqn", subsys_nqn)?,
            host_nqn: name_field("hostnqn", host_nqn)?,
            reserved768: [0; 256],
        })
    }

    pub fn of(bytes: &[u8]) -> Result<&ConnectData, WireError> {
        prefix("Connect data", bytes)
    }

    pub fn subsys_nqn(&self) -> Result<&str, WireError> {
        name("Connect data", "subnqn", &self.subsys_nqn)
    }

    pub fn host_nqn(&self) -> Result<&str, WireError> {
        name("Connect data", "hostnqn", &self.host_nqn)
    }
}

fn name_field(what: &'static str, text: &str) -> Result<[u8; 256], WireError> {
    let len = text.len();
    if len == 0 || len > nqn::MAX {
        let want = Want::Range(1, nqn::MAX as u64);
        return Err(field(what, "length", len as u64, want));
    }
    let mut out = [0; 256];
    for (to, from) in out.iter_mut().zip(text.as_bytes()) {
        *to = *from;
    }
    Ok(out)
}

/// A NUL-terminated name from a peer: UTF-8, without control characters, not
/// empty and not longer than an NQN.
pub(crate) fn name<'a>(
    what: &'static str,
    field: &'static str,
    bytes: &'a [u8],
) -> Result<&'a str, WireError> {
    let bad = |why| WireError::Text { what, field, why };
    let end = bytes
        .iter()
        .position(|&b| b == 0)
        .ok_or(bad("is not terminated by a NUL"))?;
    if end == 0 {
        return Err(bad("is empty"));
    }
    if end > nqn::MAX {
        return Err(bad("is longer than 223 bytes"));
    }
    let text = std::str::from_utf8(bytes.get(..end).unwrap_or_default())
        .map_err(|_| bad("is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(bad("has control characters"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect() {
        let sqe = ConnectCmd::new(1, 128, 5000, CATTR_NO_SQ_FLOW).sqe();
        let b = sqe.as_bytes();
        assert_eq!(b[..5], [0x7f, 0x40, 0, 0, 1]);
        assert_eq!(b[32..36], 1024_u32.to_le_bytes());
        assert_eq!(b[39], 1);
        assert_eq!(b[42..47], [1, 0, 127, 0, 4]);
        assert_eq!(b[48..52], 5000_u32.to_le_bytes());
        assert_eq!(ConnectCmd::of(&sqe).unwrap().qid.get(), 1);
        assert_eq!(ConnectCmd::new(1, 65536, 0, 0).sqsize.get(), 65535);
    }

    #[test]
    fn properties() {
        let sqe = PropertyCmd::set(property::CC, CC_ENABLE).sqe();
        assert_eq!(sqe.as_bytes()[4], 0);
        assert_eq!(
            sqe.as_bytes()[44..56],
            [0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            PropertyCmd::get(property::CAP, true).sqe().as_bytes()[40],
            1
        );
    }

    #[test]
    fn names() {
        let data = ConnectData::new([7; 16], CNTLID_ANY, "nqn.a", "nqn.b").unwrap();
        let back = ConnectData::of(data.as_bytes()).unwrap();
        assert_eq!(back.subsys_nqn(), Ok("nqn.a"));
        assert_eq!(back.host_nqn(), Ok("nqn.b"));
        assert!(ConnectData::new([7; 16], 0, &"x".repeat(224), "nqn.b").is_err());
        assert!(ConnectData::new([7; 16], 0, "", "nqn.b").is_err());
        assert!(ConnectData::of(&data.as_bytes()[1..]).is_err());
        for bad in [&[b'x'; 256][..], b"\0", b"\xff\0", b"a\x1b\0"] {
            assert!(name("x", "y", bad).is_err());
        }
    }
}
