// SPDX-License-Identifier: GPL-2.0-only
//! Submission and completion queue entries, and the commands made of them.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Want, WireError, field};
use crate::status::Status;

/// Opcodes of the admin queue.
pub mod admin {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of the NVM command set.
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Log page identifiers.
pub mod log {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERRORS: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const EFFECTS: u8 = 0x05;
    pub const FEATURE_EFFECTS: u8 = 0x12;
    /// Of the management interface's commands.
    pub const INTERFACE_EFFECTS: u8 = 0x13;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const DISCOVERY: u8 = 0x70;
}

/// Feature identifiers.
pub mod feature {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const HOST_ID: u8 = 0x81;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const ASYNC_EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
}

/// Which events a host wants and a controller has: OAES, and feature 0x0b.
pub mod async_event {
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    pub const DISCOVERY_LOG: u32 = 1 << 31;

    /// Dword 0 of the completion: notice, information, log page.
    pub const fn notice(info: u8, log: u8) -> u32 {
        2 | ((info as u32) << 8) | ((log as u32) << 16)
    }
}

/// Commands use an SGL, no PRPs: bits 7:6 of the flags.
pub const FLAGS_SGL: u8 = 0x40;
/// FUSE and PSDT bits of the flags.
pub const FLAGS_MASK: u8 = 0xc3;
/// Force Unit Access, in CDW12 of Write.
pub const FUA: u32 = 1 << 30;

/// SGL descriptor types with their subtype.
pub mod sgl {
    /// Data block at an offset into the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Data block the transport moves: C2HData, or R2T and H2CData.
    pub const TRANSPORT: u8 = 0x5a;
}

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
pub struct Sgl {
    pub address: U64,
    pub length: U32,
    pub reserved: [u8; 3],
    pub kind: u8,
}

/// A submission queue entry; fabrics commands have their own views of it in
/// [`crate::fabrics`].
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
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub cid: U16,
    pub nsid: U32,
    pub cdw2: U32,
    pub cdw3: U32,
    pub metadata: U64,
    pub sgl: Sgl,
    pub cdw10: U32,
    pub cdw11: U32,
    pub cdw12: U32,
    pub cdw13: U32,
    pub cdw14: U32,
    pub cdw15: U32,
}

/// A completion queue entry.
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
pub struct Cqe {
    /// Dwords 0 and 1.
    pub result: U64,
    pub sq_head: U16,
    pub sq_id: U16,
    pub cid: U16,
    /// Status with the phase bit, see [`Status::from_wire`].
    pub status: U16,
}

/// One range of a Dataset Management command.
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
pub struct DsmRange {
    pub attributes: U32,
    pub blocks: U32,
    pub lba: U64,
}

const _: () = {
    assert!(size_of::<Sgl>() == 16);
    assert!(offset_of!(Sgl, length) == 8);
    assert!(offset_of!(Sgl, kind) == 15);
    assert!(size_of::<Sqe>() == 64);
    assert!(offset_of!(Sqe, cid) == 2);
    assert!(offset_of!(Sqe, nsid) == 4);
    assert!(offset_of!(Sqe, metadata) == 16);
    assert!(offset_of!(Sqe, sgl) == 24);
    assert!(offset_of!(Sqe, cdw10) == 40);
    assert!(offset_of!(Sqe, cdw15) == 60);
    assert!(size_of::<Cqe>() == 16);
    assert!(offset_of!(Cqe, sq_head) == 8);
    assert!(offset_of!(Cqe, cid) == 12);
    assert!(offset_of!(Cqe, status) == 14);
    assert!(size_of::<DsmRange>() == 16);
};

impl Cqe {
    pub fn new(cid: u16, status: Status, result: u64) -> Cqe {
        Cqe {
            result: U64::new(result),
            cid: U16::new(cid),
            status: U16::new(status.to_wire()),
            ..Cqe::default()
        }
    }

    pub fn status(&self) -> Status {
        Status::from_wire(self.status.get())
    }
}

impl Sqe {
    /// A command whose data, if any, the transport moves.
    pub fn new(opcode: u8, nsid: u32, data_len: u32) -> Sqe {
        Sqe {
            opcode,
            flags: FLAGS_SGL,
            nsid: U32::new(nsid),
            sgl: Sgl {
                length: U32::new(data_len),
                kind: sgl::TRANSPORT,
                ..Sgl::default()
            },
            ..Sqe::default()
        }
    }

    /// Say that the data to be written stands in the capsule.
    pub fn in_capsule(mut self) -> Sqe {
        self.sgl.kind = sgl::IN_CAPSULE;
        self
    }

    pub fn identify(nsid: u32, cns: u8, data_len: u32) -> Sqe {
        let mut sqe = Sqe::new(admin::IDENTIFY, nsid, data_len);
        sqe.cdw10 = U32::new(cns.into());
        sqe
    }

    /// `len` bytes of a log page from `offset`, both multiples of 4 and `len`
    /// not 0.
    pub fn get_log_page(lid: u8, len: u32, offset: u64) -> Result<Sqe, WireError> {
        let what = "Get Log Page";
        if len == 0 || len % 4 != 0 {
            let want = Want::Words("a multiple of 4, at least 4");
            return Err(field(what, "length", len.into(), want));
        }
        if offset % 4 != 0 {
            return Err(field(what, "offset", offset, Want::MultipleOf(4)));
        }
        let dwords = len / 4 - 1;
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0, len);
        sqe.cdw10 = U32::new(u32::from(lid) | ((dwords & 0xffff) << 16));
        sqe.cdw11 = U32::new(dwords >> 16);
        sqe.cdw12 = U32::new(offset as u32);
        sqe.cdw13 = U32::new((offset >> 32) as u32);
        Ok(sqe)
    }

    pub fn keep_alive() -> Sqe {
        Sqe::new(admin::KEEP_ALIVE, 0, 0)
    }

    /// Ask for `queues` (1..65535) I/O queues.
    pub fn set_queue_count(queues: u16) -> Sqe {
        let n = u32::from(queues.saturating_sub(1));
        let mut sqe = Sqe::new(admin::SET_FEATURES, 0, 0);
        sqe.cdw10 = U32::new(feature::NUMBER_OF_QUEUES.into());
        sqe.cdw11 = U32::new(n | (n << 16));
        sqe
    }

    /// Read `blocks` (1..65536) blocks.
    pub fn read(nsid: u32, lba: u64, blocks: u32, data_len: u32) -> Sqe {
        Sqe::transfer(io::READ, nsid, lba, blocks, data_len)
    }

    /// Write `blocks` (1..65536) blocks.
    pub fn write(nsid: u32, lba: u64, blocks: u32, data_len: u32) -> Sqe {
        Sqe::transfer(io::WRITE, nsid, lba, blocks, data_len)
    }

    pub fn write_zeroes(nsid: u32, lba: u64, blocks: u32) -> Sqe {
        Sqe::transfer(io::WRITE_ZEROES, nsid, lba, blocks, 0)
    }

    pub fn flush(nsid: u32) -> Sqe {
        Sqe::new(io::FLUSH, nsid, 0)
    }

    /// Deallocate `ranges` (1..256) ranges, sent as [`DsmRange`]s.
    pub fn deallocate(nsid: u32, ranges: u16) -> Sqe {
        let len = u32::from(ranges) * size_of::<DsmRange>() as u32;
        let mut sqe = Sqe::new(io::DATASET_MANAGEMENT, nsid, len);
        sqe.cdw10 = U32::new(u32::from(ranges).saturating_sub(1) & 0xff);
        sqe.cdw11 = U32::new(1 << 2);
        sqe
    }

    fn transfer(opcode: u8, nsid: u32, lba: u64, blocks: u32, data_len: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode, nsid, data_len);
        sqe.cdw10 = U32::new(lba as u32);
        sqe.cdw11 = U32::new((lba >> 32) as u32);
        sqe.cdw12 = U32::new(blocks.saturating_sub(1) & 0xffff);
        sqe
    }

    /// First block of Read, Write or Write Zeroes.
    pub fn lba(&self) -> u64 {
        (u64::from(self.cdw11.get()) << 32) | u64::from(self.cdw10.get())
    }

    /// Number of blocks of Read, Write or Write Zeroes.
    pub fn blocks(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_page_numbers() {
        let sqe = Sqe::get_log_page(log::DISCOVERY, 0x50_0000, 0x1_0000_0400).unwrap();
        assert_eq!(sqe.cdw10.get(), 0xffff_0070);
        assert_eq!(sqe.cdw11.get(), 0x13);
        assert_eq!(sqe.cdw12.get(), 0x400);
        assert_eq!(sqe.cdw13.get(), 1);
        assert!(Sqe::get_log_page(log::DISCOVERY, 0, 0).is_err());
        assert!(Sqe::get_log_page(log::DISCOVERY, 4, 2).is_err());
    }

    #[test]
    fn reads_and_writes() {
        let sqe = Sqe::read(3, 0x1_2345_6789, 65536, 4096);
        assert_eq!(
            (sqe.lba(), sqe.blocks(), sqe.nsid.get()),
            (0x1_2345_6789, 65536, 3)
        );
        assert_eq!(sqe.as_bytes()[..2], [0x02, 0x40]);
        assert_eq!(sqe.as_bytes()[32..36], 4096_u32.to_le_bytes());
        assert_eq!(sqe.as_bytes()[39], 0x5a);
        assert_eq!(Sqe::write(1, 0, 1, 512).in_capsule().as_bytes()[39], 0x01);
    }

    #[test]
    fn completion() {
        let cqe = Cqe::new(7, Status::INVALID_FIELD, 9);
        assert_eq!(cqe.as_bytes()[12..], [7, 0, 4, 0]);
        assert_eq!(cqe.status(), Status::INVALID_FIELD);
    }
}
