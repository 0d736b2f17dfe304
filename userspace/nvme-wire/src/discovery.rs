// SPDX-License-Identifier: GPL-2.0-only
//! The discovery log page: what a discovery controller knows to connect to.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Want, WireError, field, prefix};
use crate::fabrics;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Changes whenever the log does.
    pub genctr: U64,
    pub numrec: U64,
    pub recfmt: U16,
    pub reserved18: [[u8; 503]; 2],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Entry {
    pub trtype: u8,
    pub adrfam: u8,
    pub subtype: u8,
    pub treq: u8,
    pub portid: U16,
    pub cntlid: U16,
    pub asqsz: U16,
    pub eflags: U16,
    pub reserved12: [u8; 20],
    pub trsvcid: [u8; 32],
    pub reserved64: [u8; 192],
    pub subnqn: [u8; 256],
    pub traddr: [u8; 256],
    pub tsas: [u8; 256],
}

const _: () = {
    assert!(size_of::<Header>() == 1024);
    assert!(offset_of!(Header, recfmt) == 16);
    assert!(size_of::<Entry>() == 1024);
    assert!(offset_of!(Entry, portid) == 4);
    assert!(offset_of!(Entry, cntlid) == 6);
    assert!(offset_of!(Entry, eflags) == 10);
    assert!(offset_of!(Entry, trsvcid) == 32);
    assert!(offset_of!(Entry, subnqn) == 256);
    assert!(offset_of!(Entry, traddr) == 512);
    assert!(offset_of!(Entry, tsas) == 768);
};

/// EFLAGS: the same is to be had from other discovery controllers; discovery
/// controllers take a keep-alive timeout and keep the connection.
pub const EFLAGS_DISCOVERY: u16 = 0x3;
/// TREQ: submission queue flow control may be turned off.
pub const TREQ_NO_SQ_FLOW: u8 = 1 << 2;

impl Header {
    pub fn new(genctr: u64, numrec: u64) -> Header {
        Header {
            genctr: U64::new(genctr),
            numrec: U64::new(numrec),
            ..Header::new_zeroed()
        }
    }

    pub fn of(bytes: &[u8]) -> Result<&Header, WireError> {
        prefix("discovery log", bytes)
    }

    /// Number of entries, refused above `most`.
    pub fn records(&self, most: u64) -> Result<u64, WireError> {
        let what = "discovery log";
        if self.recfmt.get() != 0 {
            return Err(field(what, "recfmt", self.recfmt.get().into(), Want::Is(0)));
        }
        let numrec = self.numrec.get();
        if numrec > most {
            return Err(field(what, "numrec", numrec, Want::AtMost(most)));
        }
        Ok(numrec)
    }
}

/// An entry, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub trtype: TransportType,
    pub adrfam: AddressFamily,
    pub subtype: SubsystemType,
    pub treq: u8,
    pub portid: u16,
    pub cntlid: u16,
    pub eflags: u16,
    pub trsvcid: String,
    pub subnqn: String,
    pub traddr: String,
    /// TSAS byte 0 of TCP: 0 no security, 1 TLS 1.2, 2 TLS 1.3.
    pub sectype: u8,
}

macro_rules! wire_names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $value:literal => $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant,)*
            Other(u8),
        }

        impl $name {
            pub fn from_wire(value: u8) -> $name {
                match value {
                    $($value => $name::$variant,)*
                    other => $name::Other(other),
                }
            }

            pub fn to_wire(self) -> u8 {
                match self {
                    $($name::$variant => $value,)*
                    $name::Other(other) => other,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $($name::$variant => f.write_str($text),)*
                    $name::Other(other) => write!(f, "unknown {other}"),
                }
            }
        }
    };
}

wire_names! {
    /// TRTYPE.
    TransportType { Rdma = 1 => "rdma", Fc = 2 => "fc", Tcp = 3 => "tcp", Loop = 254 => "loop" }
}
wire_names! {
    /// ADRFAM.
    AddressFamily { Ipv4 = 1 => "ipv4", Ipv6 = 2 => "ipv6", Infiniband = 3 => "ib", Fc = 4 => "fc", Loop = 254 => "loop" }
}
wire_names! {
    /// SUBTYPE.
    SubsystemType { Referral = 1 => "discovery subsystem referral", Nvme = 2 => "nvme subsystem", Discovery = 3 => "current discovery subsystem" }
}

impl Entry {
    pub fn decode(&self) -> Result<Record, WireError> {
        let what = "discovery log entry";
        Ok(Record {
            trtype: TransportType::from_wire(self.trtype),
            adrfam: AddressFamily::from_wire(self.adrfam),
            subtype: SubsystemType::from_wire(self.subtype),
            treq: self.treq,
            portid: self.portid.get(),
            cntlid: self.cntlid.get(),
            eflags: self.eflags.get(),
            trsvcid: ascii(what, "trsvcid", &self.trsvcid)?,
            subnqn: fabrics::name(what, "subnqn", &self.subnqn)?.to_string(),
            traddr: ascii(what, "traddr", &self.traddr)?,
            sectype: self.tsas.first().copied().unwrap_or(0),
        })
    }
}

impl Record {
    /// The entry that says this. What is too long for its field is an error.
    pub fn encode(&self) -> Result<Entry, WireError> {
        let mut entry = Entry {
            trtype: self.trtype.to_wire(),
            adrfam: self.adrfam.to_wire(),
            subtype: self.subtype.to_wire(),
            treq: self.treq,
            portid: U16::new(self.portid),
            cntlid: U16::new(self.cntlid),
            asqsz: U16::new(ADMIN_QUEUE),
            eflags: U16::new(self.eflags),
            ..Entry::new_zeroed()
        };
        fill("trsvcid", &mut entry.trsvcid, &self.trsvcid, b' ')?;
        fill("traddr", &mut entry.traddr, &self.traddr, b' ')?;
        // The name must end with a NUL.
        fill(
            "subnqn",
            entry
                .subnqn
                .split_last_mut()
                .map_or(&mut [], |(_, name)| name),
            &self.subnqn,
            0,
        )?;
        if let Some(first) = entry.tsas.first_mut() {
            *first = self.sectype;
        }
        Ok(entry)
    }
}

/// Entries of an admin queue, ASQSZ.
const ADMIN_QUEUE: u16 = 32;

fn fill(name: &'static str, to: &mut [u8], text: &str, pad: u8) -> Result<(), WireError> {
    if text.len() > to.len() {
        let want = Want::AtMost(to.len() as u64);
        return Err(field(name, "length", text.len() as u64, want));
    }
    let bytes = text.bytes().chain(std::iter::repeat(pad));
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    Ok(())
}

/// A space- or NUL-padded ASCII field; what is not printable is refused.
fn ascii(what: &'static str, field: &'static str, bytes: &[u8]) -> Result<String, WireError> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let text = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    if !text.iter().all(|b| matches!(b, 0x20..=0x7e)) {
        let why = "has characters other than printable ASCII";
        return Err(WireError::Text { what, field, why });
    }
    Ok(text.iter().map(|&b| char::from(b)).collect())
}

/// Decode consecutive entries; the number of bytes must be a multiple of theirs.
pub fn entries(bytes: &[u8]) -> Result<Vec<Record>, WireError> {
    let chunks = bytes.chunks_exact(size_of::<Entry>());
    let rest = chunks.remainder().len();
    if rest != 0 {
        return Err(WireError::Short {
            what: "discovery log entry",
            have: rest,
            need: size_of::<Entry>(),
        });
    }
    chunks
        .map(|e| prefix::<Entry>("discovery log entry", e)?.decode())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(trsvcid: &[u8], traddr: &[u8], subnqn: &[u8]) -> Entry {
        let mut e = Entry::new_zeroed();
        e.trtype = 3;
        e.adrfam = 1;
        e.subtype = 2;
        e.trsvcid = [b' '; 32];
        e.traddr = [b' '; 256];
        e.trsvcid[..trsvcid.len()].copy_from_slice(trsvcid);
        e.traddr[..traddr.len()].copy_from_slice(traddr);
        e.subnqn[..subnqn.len()].copy_from_slice(subnqn);
        e
    }

    #[test]
    fn good_entry() {
        let record = entry(b"4420", b"192.0.2.1", b"nqn.2024-01.io.example:a")
            .decode()
            .unwrap();
        assert_eq!(record.trsvcid, "4420");
        assert_eq!(record.traddr, "192.0.2.1");
        assert_eq!(record.trtype.to_string(), "tcp");
        assert_eq!(record.subtype.to_string(), "nvme subsystem");
    }

    #[test]
    fn round_trip() {
        let record = Record {
            trtype: TransportType::Tcp,
            adrfam: AddressFamily::Ipv6,
            subtype: SubsystemType::Nvme,
            treq: TREQ_NO_SQ_FLOW,
            portid: 3,
            cntlid: 0xffff,
            eflags: 0,
            trsvcid: "4420".into(),
            subnqn: "nqn.2024-01.io.example:a".into(),
            traddr: "2001:db8::1".into(),
            sectype: 0,
        };
        let entry = record.encode().unwrap();
        assert_eq!(entry.asqsz.get(), 32);
        assert_eq!(entry.decode(), Ok(record.clone()));
        let traddr = "x".repeat(257);
        assert!(Record { traddr, ..record }.encode().is_err());
        assert_eq!(Header::new(7, 2).records(2), Ok(2));
    }

    #[test]
    fn bad_entries() {
        assert!(entry(b"44\n20", b"a", b"nqn.x").decode().is_err());
        assert!(entry(b"4420", b"a\x1b[2J", b"nqn.x").decode().is_err());
        assert!(entry(b"4420", b"a", b"").decode().is_err());
        let good = entry(b"4420", b"a", b"nqn.x");
        assert_eq!(entries(good.as_bytes()).unwrap().len(), 1);
        assert!(entries(&good.as_bytes()[..1000]).is_err());
    }

    #[test]
    fn record_count() {
        let mut h = Header::new_zeroed();
        h.numrec = U64::new(u64::MAX);
        assert!(h.records(1024).is_err());
        h.numrec = U64::new(3);
        assert_eq!(h.records(1024), Ok(3));
        h.recfmt = U16::new(1);
        assert!(h.records(1024).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let _ = entries(&bytes);
            if let Ok(h) = Header::of(&bytes) {
                let _ = h.records(100);
            }
        }
    }
}
