// SPDX-License-Identifier: GPL-2.0-only
//! Log pages of a controller with namespaces; the discovery log has its own
//! file.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{WireError, prefix};

/// One entry of the error log.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Counts up over all errors; 0 is an empty entry.
    pub error_count: U64,
    pub sqid: U16,
    pub cid: U16,
    /// Status with the phase bit.
    pub status: U16,
    /// Byte of the command the error is about, its bit in 10:8; 0xffff: none.
    pub location: U16,
    pub lba: U64,
    pub nsid: U32,
    pub vendor: u8,
    /// 3 is TCP.
    pub trtype: u8,
    pub reserved30: [u8; 2],
    pub specific: U64,
    pub transport: U16,
    pub reserved42: [u8; 22],
}

/// SMART / Health Information.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Smart {
    pub critical_warning: u8,
    /// Kelvin; 0: not reported.
    pub temperature: U16,
    /// Percent.
    pub available_spare: u8,
    pub spare_threshold: u8,
    pub percentage_used: u8,
    pub reserved6: [u8; 26],
    /// Units of 1000 * 512 bytes, rounded up; 128 bits as all that follow.
    pub data_units_read: [u8; 16],
    pub data_units_written: [u8; 16],
    pub host_reads: [u8; 16],
    pub host_writes: [u8; 16],
    /// Minutes.
    pub busy_time: [u8; 16],
    pub power_cycles: [u8; 16],
    pub power_on_hours: [u8; 16],
    pub unsafe_shutdowns: [u8; 16],
    pub media_errors: [u8; 16],
    pub error_entries: [u8; 16],
    pub reserved192: [[u8; 160]; 2],
}

/// Firmware Slot Information.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Firmware {
    /// The slot that is active, bits 2:0.
    pub active: u8,
    pub reserved1: [u8; 7],
    pub slots: [[u8; 8]; 7],
    pub reserved64: [[u8; 224]; 2],
}

const _: () = {
    assert!(size_of::<ErrorEntry>() == 64);
    assert!(offset_of!(ErrorEntry, lba) == 16);
    assert!(offset_of!(ErrorEntry, trtype) == 29);
    assert!(offset_of!(ErrorEntry, specific) == 32);
    assert!(size_of::<Smart>() == 512);
    assert!(offset_of!(Smart, data_units_read) == 32);
    assert!(offset_of!(Smart, error_entries) == 176);
    assert!(size_of::<Firmware>() == 512);
};

impl ErrorEntry {
    pub fn of(bytes: &[u8]) -> Result<&ErrorEntry, WireError> {
        prefix("error log entry", bytes)
    }
}

impl Smart {
    pub fn of(bytes: &[u8]) -> Result<&Smart, WireError> {
        prefix("SMART log", bytes)
    }

    /// Bytes as data units.
    pub fn units(bytes: u64) -> [u8; 16] {
        u128::from(bytes.div_ceil(512_000)).to_le_bytes()
    }
}

/// Commands that are supported, as an effects log: opcode, and whether the
/// command changes what is stored (LBCC).
pub fn effects(admin: &[(u8, bool)], io: &[(u8, bool)]) -> Vec<u8> {
    let mut out = vec![0; 4096];
    let half = size_of::<U32>() * 256;
    for (base, commands) in [(0, admin), (half, io)] {
        for &(opcode, changes) in commands {
            let value = 1 | (u8::from(changes) << 1);
            if let Some(byte) = out.get_mut(base + usize::from(opcode) * 4) {
                *byte = value;
            }
        }
    }
    out
}

/// A page of 256 dwords in which bit 0 of each says that its identifier is
/// supported: Supported Log Pages, and the head of Feature Identifiers Supported.
pub fn supported(ids: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 1024];
    for &id in ids {
        if let Some(byte) = out.get_mut(usize::from(id) * 4) {
            *byte = 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let page = effects(&[(0x06, false)], &[(0x01, true)]);
        assert_eq!((page[0x18], page[1024 + 4], page.len()), (1, 3, 4096));
        assert_eq!(supported(&[2])[8], 1);
        assert_eq!(Smart::units(512_001)[0], 2);
    }
}
