// SPDX-License-Identifier: GPL-2.0-only
//! NVMe/TCP protocol data units.
//!
//! A receiver reads the [`CommonHeader`], lets [`frame`] check it, reads as
//! many more bytes as the [`Frame`] says and hands them to [`decode`]. A
//! sender uses the `*_pdu` functions, which return finished headers.
//!
//! Fields are checked in the order type, flags, hlen, pdo, plen, then those of
//! the PDU itself from its first byte to its last; the first that is wrong is
//! reported. What the standard reserves outside the flags is not looked at.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod encode;

pub use encode::{cmd_pdu, data_pdu, head_bytes, r2t_pdu, rsp_pdu, term_pdu};

use crate::command::{Cqe, Sqe};
use crate::digest;
use crate::error::{Want, WireError, field, prefix};

/// PDU format version 1.0, as ICReq and ICResp carry it.
pub const PFV_1_0: u16 = 0;
/// Least MAXH2CDATA a controller may announce.
pub const MIN_MAXH2CDATA: u32 = 4096;
/// Greatest alignment of data.
pub const ALIGN_MAX: usize = 128;
/// Greatest PDO of H2CData and C2HData, whose headers are shorter than the
/// greatest alignment.
const DATA_PDO_MAX: usize = ALIGN_MAX;
/// Greatest PDO of a command capsule: 72 bytes of header and 4 of digest, with
/// data aligned to 72 bytes.
const CMD_PDO_MAX: usize = 144;
/// Greatest number of bytes in front of the data of any PDU.
pub const HEAD_MAX: usize = CMD_PDO_MAX;
/// Greatest number of bytes of the offending PDU in a terminate request.
pub const TERM_DATA_MAX: usize = 128;

/// Bits of the FLAGS field.
pub mod flags {
    pub const HDGST: u8 = 1 << 0;
    pub const DDGST: u8 = 1 << 1;
    pub const LAST: u8 = 1 << 2;
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bits of the DGST field of ICReq and ICResp.
pub mod dgst {
    pub const HEADER: u8 = 1 << 0;
    pub const DATA: u8 = 1 << 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PduType {
    IcReq = 0x00,
    IcResp = 0x01,
    H2cTermReq = 0x02,
    C2hTermReq = 0x03,
    CapsuleCmd = 0x04,
    CapsuleResp = 0x05,
    H2cData = 0x06,
    C2hData = 0x07,
    R2t = 0x09,
}

impl PduType {
    pub fn from_wire(value: u8) -> Option<PduType> {
        Some(match value {
            0x00 => PduType::IcReq,
            0x01 => PduType::IcResp,
            0x02 => PduType::H2cTermReq,
            0x03 => PduType::C2hTermReq,
            0x04 => PduType::CapsuleCmd,
            0x05 => PduType::CapsuleResp,
            0x06 => PduType::H2cData,
            0x07 => PduType::C2hData,
            0x09 => PduType::R2t,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            PduType::IcReq => "ICReq",
            PduType::IcResp => "ICResp",
            PduType::H2cTermReq => "H2CTermReq",
            PduType::C2hTermReq => "C2HTermReq",
            PduType::CapsuleCmd => "CapsuleCmd",
            PduType::CapsuleResp => "CapsuleResp",
            PduType::H2cData => "H2CData",
            PduType::C2hData => "C2HData",
            PduType::R2t => "R2T",
        }
    }

    /// Length of the header, as HLEN has it.
    pub fn header_len(self) -> usize {
        match self {
            PduType::IcReq | PduType::IcResp => size_of::<IcPdu>(),
            PduType::H2cTermReq | PduType::C2hTermReq => size_of::<TermPdu>(),
            PduType::CapsuleCmd => size_of::<CmdPdu>(),
            PduType::CapsuleResp => size_of::<RspPdu>(),
            PduType::H2cData | PduType::C2hData => size_of::<DataPdu>(),
            PduType::R2t => size_of::<R2tPdu>(),
        }
    }

    /// Who receives PDUs of this type.
    pub fn receiver(self) -> Side {
        match self {
            PduType::IcReq | PduType::H2cTermReq | PduType::CapsuleCmd | PduType::H2cData => {
                Side::Controller
            }
            _ => Side::Host,
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Controller,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    pub pdu_type: u8,
    pub flags: u8,
    /// Bytes of the header, digest not counted.
    pub hlen: u8,
    /// Where data begins, from the first byte of the PDU; 0 without data.
    pub pdo: u8,
    /// Bytes of the whole PDU, digests counted.
    pub plen: U32,
}

/// ICReq and ICResp, which have one layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcPdu {
    pub header: CommonHeader,
    pub pfv: U16,
    /// HPDA or CPDA: alignment of data sent to the sender of this PDU, in
    /// dwords, zero-based.
    pub pda: u8,
    pub dgst: u8,
    /// MAXR2T (zero-based) in an ICReq, MAXH2CDATA in an ICResp.
    pub max: U32,
    pub reserved: [u8; 112],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TermPdu {
    pub header: CommonHeader,
    pub fes: U16,
    pub fei: U32,
    pub reserved: [u8; 10],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CmdPdu {
    pub header: CommonHeader,
    pub sqe: Sqe,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RspPdu {
    pub header: CommonHeader,
    pub cqe: Cqe,
}

/// H2CData and C2HData, which have one layout.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataPdu {
    pub header: CommonHeader,
    pub cid: U16,
    /// From the R2T in H2CData, reserved in C2HData.
    pub ttag: U16,
    pub offset: U32,
    pub length: U32,
    pub reserved: [u8; 4],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2tPdu {
    pub header: CommonHeader,
    pub cid: U16,
    pub ttag: U16,
    pub offset: U32,
    pub length: U32,
    pub reserved: [u8; 4],
}

const _: () = {
    assert!(size_of::<CommonHeader>() == 8);
    assert!(offset_of!(CommonHeader, plen) == 4);
    assert!(size_of::<IcPdu>() == 128);
    assert!(offset_of!(IcPdu, pfv) == 8);
    assert!(offset_of!(IcPdu, pda) == 10);
    assert!(offset_of!(IcPdu, dgst) == 11);
    assert!(offset_of!(IcPdu, max) == 12);
    assert!(size_of::<TermPdu>() == 24);
    assert!(offset_of!(TermPdu, fes) == 8);
    assert!(offset_of!(TermPdu, fei) == 10);
    assert!(size_of::<CmdPdu>() == 72);
    assert!(size_of::<RspPdu>() == 24);
    assert!(size_of::<DataPdu>() == 24);
    assert!(offset_of!(DataPdu, cid) == 8);
    assert!(offset_of!(DataPdu, ttag) == 10);
    assert!(offset_of!(DataPdu, offset) == 12);
    assert!(offset_of!(DataPdu, length) == 16);
    assert!(size_of::<R2tPdu>() == 24);
    assert!(offset_of!(R2tPdu, offset) == 12);
    assert!(offset_of!(R2tPdu, length) == 16);
};

/// What both ends agreed on when the connection was opened, and what the
/// receiver is ready to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// ICReq and ICResp have been exchanged: before, only they are expected,
    /// after, they are errors.
    pub open: bool,
    pub hdr_digest: bool,
    pub data_digest: bool,
    /// Alignment of data sent to us, which we asked for, bytes: 4..128.
    pub receive_align: usize,
    /// Alignment of data sent by us, bytes: 4..128, a multiple of 4.
    pub send_align: usize,
    /// Most bytes of data in a command capsule.
    pub max_capsule_data: u32,
    /// Most bytes of data in one H2CData PDU.
    pub max_h2c_data: u32,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            open: false,
            hdr_digest: false,
            data_digest: false,
            receive_align: 4,
            send_align: 4,
            max_capsule_data: 8192,
            max_h2c_data: u32::MAX,
        }
    }
}

impl Link {
    fn hdr_digest_len(&self) -> usize {
        if self.hdr_digest { digest::LEN } else { 0 }
    }

    fn data_digest_len(&self) -> usize {
        if self.data_digest { digest::LEN } else { 0 }
    }

    fn digest_flags(&self) -> u8 {
        (if self.hdr_digest { flags::HDGST } else { 0 })
            | (if self.data_digest { flags::DDGST } else { 0 })
    }

    fn data_offset(&self, hlen: usize) -> usize {
        (hlen + self.hdr_digest_len()).next_multiple_of(self.send_align.max(4))
    }
}

/// A checked common header: where the parts of the PDU are, counted from its
/// first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: PduType,
    pub flags: u8,
    /// Header without digest.
    pub header_len: usize,
    /// Header with its digest, if there is one.
    pub head_len: usize,
    /// First byte of data.
    pub data_offset: usize,
    /// Bytes of data; 0 if the PDU has none.
    pub data_len: usize,
    /// A digest follows the data.
    pub data_digest: bool,
    /// The whole PDU.
    pub pdu_len: usize,
}

/// The types a side may receive, for the error.
fn types(receiver: Side, open: bool) -> Want {
    Want::Words(match (receiver, open) {
        (Side::Host, false) => "1 (ICResp) or 3 (C2HTermReq)",
        (Side::Host, true) => "3 (C2HTermReq), 5 (CapsuleResp), 7 (C2HData) or 9 (R2T)",
        (Side::Controller, false) => "0 (ICReq) or 2 (H2CTermReq)",
        (Side::Controller, true) => "2 (H2CTermReq), 4 (CapsuleCmd) or 6 (H2CData)",
    })
}

/// Check a common header as soon as its eight bytes are there.
pub fn frame(header: &CommonHeader, receiver: Side, link: &Link) -> Result<Frame, WireError> {
    let expected = |kind: &PduType| {
        kind.receiver() == receiver
            && match kind {
                PduType::IcReq | PduType::IcResp => !link.open,
                PduType::H2cTermReq | PduType::C2hTermReq => true,
                _ => link.open,
            }
    };
    let kind = PduType::from_wire(header.pdu_type)
        .filter(expected)
        .ok_or_else(|| {
            let want = types(receiver, link.open);
            field("PDU", "type", header.pdu_type.into(), want)
        })?;
    check_flags(kind, header.flags, link)?;
    let what = kind.name();
    let header_len = kind.header_len();
    if usize::from(header.hlen) != header_len {
        return Err(field(
            what,
            "hlen",
            header.hlen.into(),
            Want::Is(header_len as u64),
        ));
    }
    let plen = header.plen.get();
    let mut frame = Frame {
        kind,
        flags: header.flags,
        header_len,
        head_len: header_len,
        data_offset: header_len,
        data_len: 0,
        data_digest: false,
        pdu_len: plen as usize,
    };
    match kind {
        PduType::IcReq | PduType::IcResp => {
            exact_plen(what, plen, header_len)?;
        }
        PduType::H2cTermReq | PduType::C2hTermReq => {
            let most = header_len + TERM_DATA_MAX;
            if !(header_len..=most).contains(&(plen as usize)) {
                let want = Want::Range(header_len as u64, most as u64);
                return Err(field(what, "plen", plen.into(), want));
            }
            frame.data_len = plen as usize - header_len;
        }
        PduType::CapsuleResp | PduType::R2t => {
            frame.head_len += link.hdr_digest_len();
            frame.data_offset = frame.head_len;
            exact_plen(what, plen, frame.head_len)?;
        }
        PduType::CapsuleCmd => {
            frame.head_len += link.hdr_digest_len();
            frame.data_offset = frame.head_len;
            if (plen as usize) < frame.head_len {
                let want = Want::AtLeast(frame.head_len as u64);
                return Err(field(what, "plen", plen.into(), want));
            }
            if plen as usize != frame.head_len {
                data_part(&mut frame, header, link)?;
                if frame.data_len > link.max_capsule_data as usize {
                    let want =
                        Want::Words("no more than the in-capsule data the controller allows");
                    return Err(field(what, "plen", plen.into(), want));
                }
            }
        }
        PduType::H2cData | PduType::C2hData => {
            frame.head_len += link.hdr_digest_len();
            data_part(&mut frame, header, link)?;
        }
    }
    Ok(frame)
}

fn check_flags(kind: PduType, value: u8, link: &Link) -> Result<(), WireError> {
    let what = kind.name();
    let bad = |words| Err(field(what, "flags", value.into(), Want::Words(words)));
    let digests = value & (flags::HDGST | flags::DDGST);
    match kind {
        PduType::IcReq | PduType::IcResp | PduType::H2cTermReq | PduType::C2hTermReq => {
            if value != 0 {
                return Err(field(what, "flags", value.into(), Want::Is(0)));
            }
        }
        PduType::CapsuleResp | PduType::R2t => {
            let want = link.digest_flags() & flags::HDGST;
            if value != want {
                return Err(field(what, "flags", value.into(), Want::Is(want.into())));
            }
        }
        PduType::CapsuleCmd => {
            // Without data in the capsule there is no data digest either.
            let header_only = link.digest_flags() & flags::HDGST;
            if value != link.digest_flags() && value != header_only {
                return bad("the digests that were agreed on");
            }
        }
        PduType::H2cData | PduType::C2hData => {
            let known = flags::HDGST
                | flags::DDGST
                | flags::LAST
                | if kind == PduType::C2hData {
                    flags::SUCCESS
                } else {
                    0
                };
            if value & !known != 0 {
                return bad("no flags but those of this PDU");
            }
            if digests != link.digest_flags() {
                return bad("the digests that were agreed on");
            }
            if value & flags::SUCCESS != 0 && value & flags::LAST == 0 {
                return bad("SUCCESS only together with LAST");
            }
        }
    }
    Ok(())
}

fn exact_plen(what: &'static str, plen: u32, want: usize) -> Result<(), WireError> {
    if plen as usize != want {
        return Err(field(what, "plen", plen.into(), Want::Is(want as u64)));
    }
    Ok(())
}

/// PDO and PLEN of a PDU that has data.
fn data_part(frame: &mut Frame, header: &CommonHeader, link: &Link) -> Result<(), WireError> {
    let what = frame.kind.name();
    let pdo = usize::from(header.pdo);
    let most = match frame.kind {
        PduType::CapsuleCmd => CMD_PDO_MAX,
        _ => DATA_PDO_MAX,
    };
    if pdo < frame.head_len || pdo % link.receive_align.max(4) != 0 || pdo > most {
        let want = Want::Words(match frame.kind {
            PduType::CapsuleCmd => {
                "aligned as agreed behind the header and its digest, at most 144"
            }
            _ => "aligned as agreed behind the header and its digest, at most 128",
        });
        return Err(field(what, "pdo", pdo as u64, want));
    }
    let plen = header.plen.get() as usize;
    let data_len = plen.saturating_sub(pdo + link.data_digest_len());
    if data_len == 0 {
        let want = Want::Words("room for data and its digest behind pdo");
        return Err(field(what, "plen", plen as u64, want));
    }
    if frame.kind == PduType::CapsuleCmd && (header.flags & flags::DDGST != 0) != link.data_digest {
        let want = Want::Words("the digests that were agreed on");
        return Err(field(what, "flags", header.flags.into(), want));
    }
    frame.data_offset = pdo;
    frame.data_len = data_len;
    frame.data_digest = link.data_digest;
    Ok(())
}

/// H2CData or C2HData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub cid: u16,
    pub ttag: u16,
    pub offset: u32,
    pub length: u32,
    pub last: bool,
    pub success: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    pub cid: u16,
    pub ttag: u16,
    pub offset: u32,
    pub length: u32,
}

/// A terminate request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    pub status: TermStatus,
    /// Offset of the offending field, or the digest that was received.
    pub info: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum TermStatus {
    InvalidHeaderField = 1,
    SequenceError = 2,
    HeaderDigest = 3,
    OutOfRange = 4,
    LimitExceeded = 5,
    UnsupportedParameter = 6,
}

impl TermStatus {
    pub fn from_wire(value: u16) -> Option<TermStatus> {
        Some(match value {
            1 => TermStatus::InvalidHeaderField,
            2 => TermStatus::SequenceError,
            3 => TermStatus::HeaderDigest,
            4 => TermStatus::OutOfRange,
            5 => TermStatus::LimitExceeded,
            6 => TermStatus::UnsupportedParameter,
            _ => return None,
        })
    }

    pub fn meaning(self) -> &'static str {
        match self {
            TermStatus::InvalidHeaderField => "invalid PDU header field",
            TermStatus::SequenceError => "PDU sequence error",
            TermStatus::HeaderDigest => "header digest error",
            TermStatus::OutOfRange => "data transfer out of range",
            TermStatus::LimitExceeded => "data transfer or R2T limit exceeded",
            TermStatus::UnsupportedParameter => "unsupported parameter",
        }
    }
}

/// A decoded PDU; commands and completions stay where they were received.
#[derive(Clone, Copy, Debug)]
pub enum Pdu<'a> {
    IcReq(IcReq),
    IcResp(IcResp),
    Term(Term),
    CapsuleCmd(&'a Sqe),
    CapsuleResp(&'a Cqe),
    H2cData(Data),
    C2hData(Data),
    R2t(R2t),
}

/// Decode the header of a PDU whose frame has been checked. `head` holds at
/// least [`Frame::head_len`] bytes from the first of the PDU; the header digest
/// is verified.
pub fn decode<'a>(frame: &Frame, head: &'a [u8]) -> Result<Pdu<'a>, WireError> {
    let what = frame.kind.name();
    if frame.head_len > frame.header_len {
        let (header, rest) = head
            .split_at_checked(frame.header_len)
            .ok_or(WireError::Short {
                what,
                have: head.len(),
                need: frame.head_len,
            })?;
        digest::check("header", header, rest)?;
    }
    Ok(match frame.kind {
        PduType::IcReq => Pdu::IcReq(IcReq::decode(prefix(what, head)?)?),
        PduType::IcResp => Pdu::IcResp(IcResp::decode(prefix(what, head)?)?),
        PduType::CapsuleCmd => Pdu::CapsuleCmd(&prefix::<CmdPdu>(what, head)?.sqe),
        PduType::CapsuleResp => Pdu::CapsuleResp(&prefix::<RspPdu>(what, head)?.cqe),
        PduType::H2cData => Pdu::H2cData(data(frame, prefix(what, head)?)?),
        PduType::C2hData => Pdu::C2hData(data(frame, prefix(what, head)?)?),
        PduType::R2t => {
            let pdu: &R2tPdu = prefix(what, head)?;
            let r2t = R2t {
                cid: pdu.cid.get(),
                ttag: pdu.ttag.get(),
                offset: pdu.offset.get(),
                length: pdu.length.get(),
            };
            if r2t.offset % 4 != 0 {
                return Err(field(what, "r2to", r2t.offset.into(), Want::MultipleOf(4)));
            }
            if r2t.length == 0 {
                return Err(field(what, "r2tl", 0, Want::AtLeast(1)));
            }
            Pdu::R2t(r2t)
        }
        PduType::H2cTermReq | PduType::C2hTermReq => {
            let pdu: &TermPdu = prefix(what, head)?;
            let fes = pdu.fes.get();
            let status = TermStatus::from_wire(fes)
                .ok_or_else(|| field(what, "fes", fes.into(), Want::Range(1, 6)))?;
            Pdu::Term(Term {
                status,
                info: pdu.fei.get(),
            })
        }
    })
}

fn data(frame: &Frame, pdu: &DataPdu) -> Result<Data, WireError> {
    let what = frame.kind.name();
    let offset = pdu.offset.get();
    let length = pdu.length.get();
    if offset % 4 != 0 {
        return Err(field(what, "datao", offset.into(), Want::MultipleOf(4)));
    }
    if length == 0 {
        return Err(field(what, "datal", 0, Want::AtLeast(1)));
    }
    if length as usize != frame.data_len {
        let want = Want::Words("plen less pdo and data digest");
        return Err(field(what, "datal", length.into(), want));
    }
    Ok(Data {
        cid: pdu.cid.get(),
        ttag: pdu.ttag.get(),
        offset,
        length,
        last: frame.flags & flags::LAST != 0,
        success: frame.flags & flags::SUCCESS != 0,
    })
}

/// What a host asks for when it opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    pub hdr_digest: bool,
    pub data_digest: bool,
    /// Alignment of data sent to the host, bytes.
    pub align: usize,
    /// R2Ts the host takes at a time per command, 1 or more.
    pub max_r2t: u64,
}

/// What a controller grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    pub hdr_digest: bool,
    pub data_digest: bool,
    /// Alignment of data sent to the controller, bytes.
    pub align: usize,
    /// Most bytes of data in one H2CData PDU.
    pub max_h2c_data: u32,
}

fn ic_common(what: &'static str, pda: &'static str, pdu: &IcPdu) -> Result<usize, WireError> {
    if pdu.pfv.get() != PFV_1_0 {
        return Err(field(
            what,
            "pfv",
            pdu.pfv.get().into(),
            Want::Is(PFV_1_0.into()),
        ));
    }
    if usize::from(pdu.pda) >= ALIGN_MAX / 4 {
        return Err(field(what, pda, pdu.pda.into(), Want::Range(0, 31)));
    }
    if pdu.dgst & !(dgst::HEADER | dgst::DATA) != 0 {
        return Err(field(what, "dgst", pdu.dgst.into(), Want::Range(0, 3)));
    }
    Ok((usize::from(pdu.pda) + 1) * 4)
}

impl IcReq {
    fn decode(pdu: &IcPdu) -> Result<IcReq, WireError> {
        Ok(IcReq {
            align: ic_common("ICReq", "hpda", pdu)?,
            hdr_digest: pdu.dgst & dgst::HEADER != 0,
            data_digest: pdu.dgst & dgst::DATA != 0,
            max_r2t: u64::from(pdu.max.get()) + 1,
        })
    }
}

impl IcResp {
    fn decode(pdu: &IcPdu) -> Result<IcResp, WireError> {
        let align = ic_common("ICResp", "cpda", pdu)?;
        let max_h2c_data = pdu.max.get();
        if max_h2c_data < MIN_MAXH2CDATA || max_h2c_data % 4 != 0 {
            let want = Want::Words("a multiple of 4, at least 4096");
            return Err(field("ICResp", "maxh2cdata", max_h2c_data.into(), want));
        }
        Ok(IcResp {
            align,
            hdr_digest: pdu.dgst & dgst::HEADER != 0,
            data_digest: pdu.dgst & dgst::DATA != 0,
            max_h2c_data,
        })
    }

    /// A host must get exactly the digests it asked for.
    pub fn check_against(&self, asked: &IcReq) -> Result<(), WireError> {
        let bits = |header, data| u8::from(header) | (u8::from(data) << 1);
        let got = bits(self.hdr_digest, self.data_digest);
        let want = bits(asked.hdr_digest, asked.data_digest);
        if got != want {
            return Err(field("ICResp", "dgst", got.into(), Want::Is(want.into())));
        }
        Ok(())
    }
}

/// The first eight bytes of `bytes` as a common header.
pub fn common_header(bytes: &[u8]) -> Result<&CommonHeader, WireError> {
    prefix("PDU", bytes)
}
