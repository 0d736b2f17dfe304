// SPDX-License-Identifier: GPL-2.0-only
//! PDUs to be sent: finished headers.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

use super::*;

impl IcReq {
    pub fn pdu(&self) -> IcPdu {
        let max_r2t = u32::try_from(self.max_r2t.saturating_sub(1)).unwrap_or(u32::MAX);
        ic_pdu(
            PduType::IcReq,
            self.align,
            self.hdr_digest,
            self.data_digest,
            max_r2t,
        )
    }
}

impl IcResp {
    pub fn pdu(&self) -> IcPdu {
        ic_pdu(
            PduType::IcResp,
            self.align,
            self.hdr_digest,
            self.data_digest,
            self.max_h2c_data,
        )
    }
}

fn ic_pdu(kind: PduType, align: usize, hdr_digest: bool, data_digest: bool, max: u32) -> IcPdu {
    IcPdu {
        header: CommonHeader {
            pdu_type: kind as u8,
            flags: 0,
            hlen: size_of::<IcPdu>() as u8,
            pdo: 0,
            plen: U32::new(size_of::<IcPdu>() as u32),
        },
        pfv: U16::new(PFV_1_0),
        pda: (align.clamp(4, ALIGN_MAX) / 4 - 1) as u8,
        dgst: (if hdr_digest { dgst::HEADER } else { 0 })
            | (if data_digest { dgst::DATA } else { 0 }),
        max: U32::new(max),
        reserved: [0; 112],
    }
}

/// A command capsule with `data_len` bytes of data in it. The data goes to
/// offset [`CommonHeader::pdo`], behind header, header digest and padding.
pub fn cmd_pdu(sqe: &Sqe, data_len: u32, link: &Link) -> CmdPdu {
    let hlen = size_of::<CmdPdu>();
    let mut header = CommonHeader {
        pdu_type: PduType::CapsuleCmd as u8,
        flags: link.digest_flags() & flags::HDGST,
        hlen: hlen as u8,
        pdo: 0,
        plen: U32::new((hlen + link.hdr_digest_len()) as u32),
    };
    if data_len > 0 {
        let pdo = link.data_offset(hlen);
        header.flags = link.digest_flags();
        header.pdo = pdo as u8;
        header.plen = U32::new(data_len.saturating_add((pdo + link.data_digest_len()) as u32));
    }
    CmdPdu { header, sqe: *sqe }
}

/// A response capsule.
pub fn rsp_pdu(cqe: &Cqe, link: &Link) -> RspPdu {
    RspPdu {
        header: plain_header(PduType::CapsuleResp, size_of::<RspPdu>(), link),
        cqe: *cqe,
    }
}

/// An R2T.
pub fn r2t_pdu(r2t: &R2t, link: &Link) -> R2tPdu {
    R2tPdu {
        header: plain_header(PduType::R2t, size_of::<R2tPdu>(), link),
        cid: U16::new(r2t.cid),
        ttag: U16::new(r2t.ttag),
        offset: U32::new(r2t.offset),
        length: U32::new(r2t.length),
        reserved: [0; 4],
    }
}

fn plain_header(kind: PduType, hlen: usize, link: &Link) -> CommonHeader {
    CommonHeader {
        pdu_type: kind as u8,
        flags: link.digest_flags() & flags::HDGST,
        hlen: hlen as u8,
        pdo: 0,
        plen: U32::new((hlen + link.hdr_digest_len()) as u32),
    }
}

/// The header of H2CData (`Side::Controller` receives it) or C2HData.
pub fn data_pdu(data: &Data, receiver: Side, link: &Link) -> DataPdu {
    let hlen = size_of::<DataPdu>();
    let pdo = link.data_offset(hlen);
    DataPdu {
        header: CommonHeader {
            pdu_type: match receiver {
                Side::Controller => PduType::H2cData as u8,
                Side::Host => PduType::C2hData as u8,
            },
            flags: link.digest_flags()
                | (if data.last { flags::LAST } else { 0 })
                | (if data.success { flags::SUCCESS } else { 0 }),
            hlen: hlen as u8,
            pdo: pdo as u8,
            plen: U32::new(
                data.length
                    .saturating_add((pdo + link.data_digest_len()) as u32),
            ),
        },
        cid: U16::new(data.cid),
        ttag: U16::new(data.ttag),
        offset: U32::new(data.offset),
        length: U32::new(data.length),
        reserved: [0; 4],
    }
}

/// A terminate request for `receiver`, followed by `data_len` (at most
/// [`TERM_DATA_MAX`]) bytes of the PDU that offended.
pub fn term_pdu(term: &Term, receiver: Side, data_len: usize) -> TermPdu {
    let hlen = size_of::<TermPdu>();
    TermPdu {
        header: CommonHeader {
            pdu_type: match receiver {
                Side::Controller => PduType::H2cTermReq as u8,
                Side::Host => PduType::C2hTermReq as u8,
            },
            flags: 0,
            hlen: hlen as u8,
            pdo: 0,
            plen: U32::new((hlen + data_len.min(TERM_DATA_MAX)) as u32),
        },
        fes: U16::new(term.status as u16),
        fei: U32::new(term.info),
        reserved: [0; 10],
    }
}

/// The bytes that go in front of a PDU's data: header, header digest if they
/// are on, and zeroes up to PDO.
pub fn head_bytes<T: IntoBytes + Immutable>(pdu: &T, link: &Link, out: &mut Vec<u8>) {
    let header = pdu.as_bytes();
    let start = out.len();
    out.extend_from_slice(header);
    let has_digest = !matches!(
        header.first().copied().and_then(PduType::from_wire),
        Some(PduType::IcReq | PduType::IcResp | PduType::H2cTermReq | PduType::C2hTermReq)
    );
    if link.hdr_digest && has_digest {
        out.extend_from_slice(&digest::to_wire(digest::of(header)));
    }
    let pdo = header.get(3).copied().unwrap_or(0).into();
    if out.len() - start < pdo {
        out.resize(start + pdo, 0);
    }
}
