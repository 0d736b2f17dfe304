// SPDX-License-Identifier: GPL-2.0-only
//! Netlink messages and what they acknowledge.

use std::fmt;
use std::io;

use super::NetlinkError;
use super::attr::{Attrs, aligned};

pub const HEADER_LEN: usize = 16;
pub const GENL_HEADER_LEN: usize = 4;

pub const NLMSG_NOOP: u16 = 1;
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSG_OVERRUN: u16 = 4;

pub const F_REQUEST: u16 = 0x001;
pub const F_ACK: u16 = 0x004;
pub const F_DUMP_INTR: u16 = 0x010;
pub const F_DUMP: u16 = 0x300;
pub const F_CAPPED: u16 = 0x100;
pub const F_ACK_TLVS: u16 = 0x200;

const ERR_MSG: u16 = 1;
const ERR_OFFS: u16 = 2;
const ERR_MISS_TYPE: u16 = 5;

/// One message out of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub payload: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

/// A whole request.
pub fn request(family: u16, flags: u16, seq: u32, cmd: u8, version: u8, attrs: &[u8]) -> Vec<u8> {
    let len = HEADER_LEN + GENL_HEADER_LEN + attrs.len();
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&(len as u32).to_ne_bytes());
    out.extend_from_slice(&family.to_ne_bytes());
    out.extend_from_slice(&(flags | F_REQUEST).to_ne_bytes());
    out.extend_from_slice(&seq.to_ne_bytes());
    out.extend_from_slice(&0_u32.to_ne_bytes());
    out.extend_from_slice(&[cmd, version, 0, 0]);
    out.extend_from_slice(attrs);
    out
}

/// The messages of a datagram.
pub fn split(datagram: &[u8]) -> Result<Vec<Message<'_>>, NetlinkError> {
    let bad = || NetlinkError::Malformed("a message is cut off");
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = datagram.get(at..).filter(|r| !r.is_empty()) {
        let len = u32_at(rest, 0).ok_or_else(bad)? as usize;
        let payload = rest.get(HEADER_LEN..len).ok_or_else(bad)?;
        found.push(Message {
            kind: u16_at(rest, 4).ok_or_else(bad)?,
            flags: u16_at(rest, 6).ok_or_else(bad)?,
            seq: u32_at(rest, 8).ok_or_else(bad)?,
            payload,
        });
        at += aligned(len);
    }
    Ok(found)
}

/// Why the kernel refused a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// As in errno.h.
    pub errno: i32,
    /// The extended ack's sentence.
    pub message: Option<String>,
    /// The attribute of our request that is to blame.
    pub attr: Option<u16>,
    /// The attribute that is missing.
    pub missing: Option<u16>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => f.write_str(message),
            None => f.write_str(&errno_text(self.errno)),
        }
    }
}

/// What errno says, in the words of libc.
pub fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text.get(..end).unwrap_or(&text).to_lowercase(),
        None => text,
    }
}

/// The end of a request or dump: an ERROR or DONE message. Errno 0 is success.
/// `sent` is our request, into which the extended ack points.
pub fn acknowledgement(message: &Message<'_>, sent: &[u8]) -> Result<Refusal, NetlinkError> {
    let bad = NetlinkError::Malformed("an acknowledgement is cut off");
    let payload = message.payload;
    let Some(code) = u32_at(payload, 0) else {
        // A dump's DONE may come without a code.
        return if message.kind == NLMSG_DONE {
            Ok(Refusal::default())
        } else {
            Err(bad)
        };
    };
    let mut refusal = Refusal {
        errno: (code as i32).checked_neg().unwrap_or(i32::MAX).max(0),
        ..Refusal::default()
    };
    if message.flags & F_ACK_TLVS == 0 {
        return Ok(refusal);
    }
    let tlvs = if message.kind == NLMSG_DONE {
        4
    } else {
        // Our request follows the code: its header, and unless capped the rest.
        let echoed = if message.flags & F_CAPPED != 0 {
            HEADER_LEN
        } else {
            u32_at(payload, 4).ok_or(bad)? as usize
        };
        4 + aligned(echoed)
    };
    let tlvs = payload
        .get(tlvs..)
        .ok_or(NetlinkError::Malformed("an extended ack is cut off"))?;
    for attr in Attrs::new(tlvs) {
        let attr = attr?;
        match attr.kind {
            ERR_MSG => refusal.message = Some(attr.string()).filter(|m| !m.is_empty()),
            ERR_OFFS => refusal.attr = attribute_at(sent, attr.u32()? as usize),
            ERR_MISS_TYPE => refusal.missing = attr.u32()?.try_into().ok(),
            _ => {}
        }
    }
    Ok(refusal)
}

/// The top-level attribute of a request that covers an offset into it.
fn attribute_at(sent: &[u8], offset: usize) -> Option<u16> {
    let start = HEADER_LEN + GENL_HEADER_LEN;
    let offset = offset.checked_sub(start)?;
    Attrs::new(sent.get(start..)?)
        .flatten()
        .find(|attr| offset < attr.at + 4 + attr.value.len() && offset >= attr.at)
        .map(|attr| attr.kind)
}

#[cfg(test)]
mod tests {
    use super::super::Builder;
    use super::*;
    use proptest::prelude::*;

    /// A refusal of a request as 6.12 sends it with capped acks.
    #[cfg(target_endian = "little")]
    const CAPPED: &[u8] = &[
        0x4c, 0, 0, 0, 2, 0, 0, 3, 9, 0, 0, 0, 0, 0, 0, 0, // header, seq 9
        0xea, 0xff, 0xff, 0xff, // -22
        0x2c, 0, 0, 0, 0x20, 0, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0, // our header
        24, 0, 1, 0, b'q', b'u', b'e', b'u', b'e', b' ', b's', b'i', b'z', b'e', b' ', b'o', b'd',
        b'd', b'!', b'!', b'!', b'!', b'!', 0, // message
        8, 0, 2, 0, 28, 0, 0, 0, // offset
        8, 0, 9, 0, 1, 0, 0, 0, // something newer
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn refusal_with_extended_ack() {
        let attrs = Builder::new().string(4, "tcp").u32(13, 3).into_bytes();
        let sent = request(0x20, F_ACK, 9, 1, 1, &attrs);
        let messages = split(CAPPED).unwrap();
        let refusal = acknowledgement(&messages[0], &sent).unwrap();
        assert_eq!(refusal.errno, 22);
        assert_eq!(refusal.message.as_deref(), Some("queue size odd!!!!!"));
        assert_eq!(refusal.attr, Some(13));
        assert_eq!(refusal.missing, None);
    }

    #[test]
    fn success_and_plain_refusal() {
        let ack = |code: i32| {
            let mut payload = code.to_ne_bytes().to_vec();
            payload.extend([0; 16]);
            payload
        };
        for (code, errno) in [(0, 0), (-2, 2), (i32::MIN, i32::MAX)] {
            let payload = ack(code);
            let message = Message {
                kind: NLMSG_ERROR,
                flags: F_CAPPED,
                seq: 1,
                payload: &payload,
            };
            assert_eq!(acknowledgement(&message, &[]).unwrap().errno, errno);
        }
        let done = Message {
            kind: NLMSG_DONE,
            flags: 0,
            seq: 1,
            payload: &[],
        };
        assert_eq!(acknowledgement(&done, &[]).unwrap(), Refusal::default());
    }

    #[test]
    fn words_of_errno() {
        assert_eq!(errno_text(libc::ENODEV), "no such device");
        assert_eq!(
            Refusal {
                errno: libc::EINVAL,
                ..Refusal::default()
            }
            .to_string(),
            "invalid argument"
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), flags: u16, done: bool) {
            if let Ok(messages) = split(&bytes) {
                for m in messages {
                    let _ = acknowledgement(&m, &bytes);
                }
            }
            let kind = if done { NLMSG_DONE } else { NLMSG_ERROR };
            let _ = acknowledgement(&Message { kind, flags, seq: 0, payload: &bytes }, &bytes);
        }
    }
}
