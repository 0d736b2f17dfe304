// SPDX-License-Identifier: GPL-2.0-only
//! Identify data structures.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Want, WireError, field, prefix};

/// Bytes of every Identify data structure.
pub const LEN: usize = 4096;

/// Controller or Namespace Structure: what Identify returns.
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Of the I/O command set in CDW11 31:24.
    pub const CSI_NAMESPACE: u8 = 0x05;
    pub const CSI_CONTROLLER: u8 = 0x06;
    pub const CSI_ACTIVE_NAMESPACES: u8 = 0x07;
    pub const COMMON_NAMESPACE: u8 = 0x08;
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    pub const CONTROLLERS: u8 = 0x13;
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Identify Controller.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Controller {
    pub vid: U16,
    pub ssvid: U16,
    pub serial: [u8; 20],
    pub model: [u8; 40],
    pub firmware: [u8; 8],
    pub rab: u8,
    pub ieee: [u8; 3],
    pub cmic: u8,
    /// Log2 of the greatest transfer in units of the least page size; 0 is no
    /// limit.
    pub mdts: u8,
    pub cntlid: U16,
    pub version: U32,
    pub rtd3r: U32,
    pub rtd3e: U32,
    pub oaes: U32,
    pub ctratt: U32,
    pub reserved100: [u8; 11],
    /// 1 I/O, 2 discovery, 3 administrative; 0 not reported.
    pub cntrltype: u8,
    pub fguid: [u8; 16],
    pub reserved128: [u8; 128],
    pub oacs: U16,
    pub acl: u8,
    pub aerl: u8,
    pub frmw: u8,
    pub lpa: u8,
    pub elpe: u8,
    pub npss: u8,
    /// Bit 0: vendor-specific commands have the standard's format.
    pub avscc: u8,
    pub reserved265: [u8; 55],
    /// Granularity of keep-alive, units of 100 ms.
    pub kas: U16,
    pub reserved322: [u8; 190],
    pub sqes: u8,
    pub cqes: u8,
    pub maxcmd: U16,
    pub nn: U32,
    pub oncs: U16,
    pub fuses: U16,
    pub fna: u8,
    /// Bit 0: there is a volatile write cache.
    pub vwc: u8,
    pub awun: U16,
    pub awupf: U16,
    pub reserved530: [u8; 6],
    pub sgls: U32,
    pub mnan: U32,
    pub reserved544: [u8; 224],
    pub subnqn: [u8; 256],
    pub reserved1024: [u8; 768],
    /// Size of an I/O command capsule, units of 16 bytes.
    pub ioccsz: U32,
    pub iorcsz: U32,
    pub icdoff: U16,
    pub fcatt: u8,
    pub msdbd: u8,
    pub ofcs: U16,
    pub reserved1806: [u8; 242],
    pub psd: [[u8; 32]; 32],
    pub vendor: [[u8; 256]; 4],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// Bytes of metadata per block.
    pub ms: U16,
    /// Log2 of the block size.
    pub ds: u8,
    pub rp: u8,
}

/// Identify Namespace.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Namespace {
    pub nsze: U64,
    pub ncap: U64,
    pub nuse: U64,
    pub nsfeat: u8,
    /// Number of LBA formats, zero-based.
    pub nlbaf: u8,
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub dlfeat: u8,
    pub nawun: U16,
    pub nawupf: U16,
    pub nacwu: U16,
    pub nabsn: U16,
    pub nabo: U16,
    pub nabspf: U16,
    pub noiob: U16,
    pub nvmcap: [u8; 16],
    pub npwg: U16,
    pub npwa: U16,
    pub npdg: U16,
    pub npda: U16,
    pub nows: U16,
    pub mssrl: U16,
    pub mcl: U32,
    pub msrc: u8,
    pub reserved81: [u8; 11],
    pub anagrpid: U32,
    pub reserved96: [u8; 3],
    /// Bit 0: write protected.
    pub nsattr: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [LbaFormat; 64],
    pub vendor: [[u8; 64]; 58],
}

const _: () = {
    assert!(size_of::<Controller>() == LEN);
    assert!(offset_of!(Controller, serial) == 4);
    assert!(offset_of!(Controller, model) == 24);
    assert!(offset_of!(Controller, firmware) == 64);
    assert!(offset_of!(Controller, mdts) == 77);
    assert!(offset_of!(Controller, cntlid) == 78);
    assert!(offset_of!(Controller, version) == 80);
    assert!(offset_of!(Controller, oaes) == 92);
    assert!(offset_of!(Controller, cntrltype) == 111);
    assert!(offset_of!(Controller, oacs) == 256);
    assert!(offset_of!(Controller, kas) == 320);
    assert!(offset_of!(Controller, sqes) == 512);
    assert!(offset_of!(Controller, maxcmd) == 514);
    assert!(offset_of!(Controller, nn) == 516);
    assert!(offset_of!(Controller, oncs) == 520);
    assert!(offset_of!(Controller, vwc) == 525);
    assert!(offset_of!(Controller, sgls) == 536);
    assert!(offset_of!(Controller, subnqn) == 768);
    assert!(offset_of!(Controller, ioccsz) == 1792);
    assert!(offset_of!(Controller, icdoff) == 1800);
    assert!(offset_of!(Controller, psd) == 2048);
    assert!(size_of::<Namespace>() == LEN);
    assert!(offset_of!(Namespace, flbas) == 26);
    assert!(offset_of!(Namespace, noiob) == 46);
    assert!(offset_of!(Namespace, nvmcap) == 48);
    assert!(offset_of!(Namespace, nows) == 72);
    assert!(offset_of!(Namespace, anagrpid) == 92);
    assert!(offset_of!(Namespace, nsattr) == 99);
    assert!(offset_of!(Namespace, nguid) == 104);
    assert!(offset_of!(Namespace, eui64) == 120);
    assert!(offset_of!(Namespace, lbaf) == 128);
    assert!(offset_of!(Namespace, vendor) == 384);
};

impl Controller {
    pub fn of(bytes: &[u8]) -> Result<&Controller, WireError> {
        prefix("Identify Controller", bytes)
    }

    /// Bytes of data an I/O command capsule may carry.
    pub fn in_capsule_data(&self) -> Result<u32, WireError> {
        let units = self.ioccsz.get();
        match units
            .checked_mul(16)
            .and_then(|bytes| bytes.checked_sub(64))
        {
            Some(bytes) => Ok(bytes),
            None => {
                let want = Want::Words("4 (a capsule without data) to 268435455");
                Err(field("Identify Controller", "ioccsz", units.into(), want))
            }
        }
    }

    /// Greatest transfer in bytes, given CAP.MPSMIN; `None` is no limit.
    pub fn max_transfer(&self, mpsmin: u8) -> Option<u64> {
        let shift = 12 + u32::from(mpsmin) + u32::from(self.mdts);
        (self.mdts != 0 && shift < 64).then(|| 1 << shift)
    }
}

impl Namespace {
    pub fn of(bytes: &[u8]) -> Result<&Namespace, WireError> {
        prefix("Identify Namespace", bytes)
    }

    /// The format in use.
    pub fn format(&self) -> Result<&LbaFormat, WireError> {
        let what = "Identify Namespace";
        // FLBAS has the low four bits of the index in 3:0, the high two in 6:5.
        let index = usize::from(self.flbas & 0xf | (self.flbas >> 1) & 0x30);
        if index > usize::from(self.nlbaf) {
            let want = Want::Words("the index of a format there is (see nlbaf)");
            return Err(field(what, "flbas", index as u64, want));
        }
        let format = self
            .lbaf
            .get(index)
            .ok_or_else(|| field(what, "flbas", index as u64, Want::AtMost(63)))?;
        if !(9..=16).contains(&format.ds) {
            let want = Want::Range(9, 16);
            return Err(field(what, "lbads", format.ds.into(), want));
        }
        Ok(format)
    }

    /// Block size and size of the namespace, both in bytes.
    pub fn geometry(&self) -> Result<(u32, u64), WireError> {
        let shift = u32::from(self.format()?.ds);
        let blocks = self.nsze.get();
        if blocks.leading_zeros() < shift {
            let want = Want::Words("a number of blocks whose bytes fit into 64 bits");
            return Err(field("Identify Namespace", "nsze", blocks, want));
        }
        Ok((1 << shift, blocks << shift))
    }
}

/// The namespace ids of an active namespace list: ascending, up to the first 0.
pub fn active_namespaces(bytes: &[u8]) -> Result<Vec<u32>, WireError> {
    let list: &[U32; LEN / 4] = prefix("active namespace list", bytes)?;
    let ids: Vec<u32> = list
        .iter()
        .map(|n| n.get())
        .take_while(|&n| n != 0)
        .collect();
    for pair in ids.windows(2) {
        if let [before, after] = *pair {
            if after <= before {
                let want = Want::AtLeast(u64::from(before) + 1);
                return Err(field("active namespace list", "nsid", after.into(), want));
            }
        }
    }
    Ok(ids)
}

/// A list of namespaces: the `ids` above `above`, as many as there is room for;
/// they must ascend.
pub fn namespace_list(ids: impl Iterator<Item = u32>, above: u32) -> Vec<u8> {
    let ids = ids.filter(|&id| id > above).take(LEN / 4);
    padded(ids.flat_map(u32::to_le_bytes).collect())
}

/// A list of controllers: the `ids` from `from` on, as many as there is room
/// for; they must ascend.
pub fn controller_list(ids: impl Iterator<Item = u16>, from: u16) -> Vec<u8> {
    let ids: Vec<u16> = ids.filter(|&id| id >= from).take(LEN / 2 - 1).collect();
    let count = u16::try_from(ids.len()).unwrap_or(u16::MAX);
    let all = std::iter::once(count).chain(ids);
    padded(all.flat_map(u16::to_le_bytes).collect())
}

/// `bytes` as long as an Identify data structure.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(LEN, 0);
    bytes
}

/// What identifies a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    pub eui64: Option<[u8; 8]>,
    pub nguid: Option<[u8; 16]>,
    pub uuid: Option<[u8; 16]>,
    pub csi: Option<u8>,
}

impl Identifiers {
    /// The list of descriptors that [`descriptors`] decodes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        let mut add = |kind: u8, value: &[u8]| {
            out.extend([kind, value.len() as u8, 0, 0]);
            out.extend(value);
        };
        self.eui64.iter().for_each(|id| add(1, id));
        self.nguid.iter().for_each(|id| add(2, id));
        self.uuid.iter().for_each(|id| add(3, id));
        self.csi.iter().for_each(|csi| add(4, &[*csi]));
        padded(out)
    }
}

/// A list of namespace identification descriptors, up to the first of length 0;
/// types nobody knows yet are skipped.
pub fn descriptors(bytes: &[u8]) -> Result<Identifiers, WireError> {
    let what = "namespace descriptor";
    let mut rest = bytes.get(..LEN.min(bytes.len())).unwrap_or_default();
    let mut found = Identifiers::default();
    while let Some((&[nidt, nidl, _, _], tail)) = rest.split_first_chunk::<4>() {
        if nidl == 0 {
            break;
        }
        let (value, tail) = tail.split_at_checked(nidl.into()).ok_or(WireError::Short {
            what,
            have: tail.len(),
            need: nidl.into(),
        })?;
        let wrong = |want| field(what, "nidl", nidl.into(), Want::Is(want));
        match nidt {
            1 => found.eui64 = Some(value.try_into().map_err(|_| wrong(8))?),
            2 => found.nguid = Some(value.try_into().map_err(|_| wrong(16))?),
            3 => found.uuid = Some(value.try_into().map_err(|_| wrong(16))?),
            4 => {
                let &[csi] = value else {
                    return Err(wrong(1));
                };
                found.csi = Some(csi);
            }
            _ => {}
        }
        rest = tail;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    #[test]
    fn geometry() {
        let mut ns = Namespace::new_zeroed();
        ns.nsze = U64::new(1000);
        assert!(ns.geometry().is_err(), "a block size of 1 byte");
        ns.lbaf[0].ds = 12;
        assert_eq!(ns.geometry(), Ok((4096, 4_096_000)));
        ns.nsze = U64::new(1 << 52);
        assert!(ns.geometry().is_err(), "2^64 bytes");
        ns.flbas = 1;
        assert!(ns.format().is_err(), "a format that does not exist");
        ns.nlbaf = 63;
        ns.flbas = 0x6f;
        ns.lbaf[63].ds = 9;
        ns.nsze = U64::new(1);
        assert_eq!(ns.geometry(), Ok((512, 512)));
    }

    #[test]
    fn limits() {
        let mut c = Controller::new_zeroed();
        assert!(c.in_capsule_data().is_err());
        c.ioccsz = U32::new(4);
        assert_eq!(c.in_capsule_data(), Ok(0));
        c.ioccsz = U32::new((8192 + 64) / 16);
        assert_eq!(c.in_capsule_data(), Ok(8192));
        assert_eq!(c.max_transfer(0), None);
        c.mdts = 5;
        assert_eq!(c.max_transfer(0), Some(128 << 10));
        c.mdts = 255;
        assert_eq!(c.max_transfer(15), None);
    }

    #[test]
    fn namespace_lists() {
        let list = |ids: &[u32]| {
            let mut bytes = vec![0; LEN];
            for (i, id) in ids.iter().enumerate() {
                bytes[i * 4..i * 4 + 4].copy_from_slice(&id.to_le_bytes());
            }
            bytes
        };
        assert_eq!(active_namespaces(&list(&[1, 2, 9])), Ok(vec![1, 2, 9]));
        assert_eq!(active_namespaces(&list(&[])), Ok(vec![]));
        assert!(active_namespaces(&list(&[2, 2])).is_err());
        assert!(active_namespaces(&list(&[2])[1..]).is_err());
    }

    #[test]
    fn lists_made_here() {
        let ids = [1, 2, 9, 4000];
        let list = namespace_list(ids.into_iter(), 0);
        assert_eq!(active_namespaces(&list), Ok(ids.to_vec()));
        let list = namespace_list(ids.into_iter(), 2);
        assert_eq!(active_namespaces(&list), Ok(vec![9, 4000]));
        let list = namespace_list(1..5000, 100);
        assert_eq!(active_namespaces(&list).unwrap().len(), 1024);
        let list = controller_list([3, 5, 7].into_iter(), 5);
        assert_eq!(
            (list.len(), &list[..8]),
            (LEN, &[2, 0, 5, 0, 7, 0, 0, 0][..])
        );
        let all = Identifiers {
            eui64: Some([1; 8]),
            nguid: Some([2; 16]),
            uuid: Some([3; 16]),
            csi: Some(0),
        };
        assert_eq!(descriptors(&all.encode()), Ok(all));
    }

    #[test]
    fn descriptor_lists() {
        let mut bytes = vec![3, 16, 0, 0];
        bytes.extend([9; 16]);
        bytes.extend([99, 2, 0, 0, 1, 1]);
        bytes.extend([4, 1, 0, 0, 2]);
        bytes.resize(LEN, 0);
        let found = descriptors(&bytes).unwrap();
        assert_eq!(found.uuid, Some([9; 16]));
        assert_eq!(found.csi, Some(2));
        bytes[1] = 8;
        assert!(matches!(
            descriptors(&bytes),
            Err(WireError::Field { field: "nidl", .. })
        ));
        assert!(descriptors(&[1, 8, 0, 0, 1]).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = descriptors(&bytes);
            let _ = active_namespaces(&bytes);
            if let Ok(ns) = Namespace::of(&bytes) {
                let _ = ns.geometry();
            }
            if let Ok(c) = Controller::of(&bytes) {
                let _ = c.in_capsule_data();
                let _ = c.max_transfer(bytes[0]);
            }
        }
    }
}
