// SPDX-License-Identifier: GPL-2.0-only
//! Properties of the PDU codec: what is encoded decodes to the same, and no
//! bytes whatever make it panic or read beyond what it was given.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use nvme_wire::command::{Cqe, Sqe};
use nvme_wire::pdu::*;
use nvme_wire::{WireError, status::Status};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

fn link() -> impl Strategy<Value = Link> {
    (any::<bool>(), any::<bool>(), 0usize..32).prop_map(|(hdr_digest, data_digest, cpda)| Link {
        open: true,
        hdr_digest,
        data_digest,
        receive_align: 4,
        send_align: (cpda + 1) * 4,
        max_capsule_data: u32::MAX,
        max_h2c_data: u32::MAX,
    })
}

/// Frame and decode the head of a PDU.
fn read<'a>(bytes: &'a [u8], receiver: Side, link: &Link) -> Result<(Frame, Pdu<'a>), WireError> {
    let frame = frame(common_header(bytes)?, receiver, link)?;
    let head = bytes.get(..frame.head_len).unwrap_or(bytes);
    Ok((frame, decode(&frame, head)?))
}

fn head<T: IntoBytes + zerocopy::Immutable>(pdu: &T, link: &Link) -> Vec<u8> {
    let mut out = Vec::new();
    head_bytes(pdu, link, &mut out);
    out
}

proptest! {
    #[test]
    fn command_capsule(link in link(), raw in any::<[[u8; 32]; 2]>(), len in 0u32..1 << 20) {
        let sqe = Sqe::read_from_bytes(raw.as_flattened()).unwrap();
        let bytes = head(&cmd_pdu(&sqe, len, &link), &link);
        let (frame, pdu) = read(&bytes, Side::Controller, &link).unwrap();
        prop_assert_eq!(frame.data_len, len as usize);
        prop_assert_eq!(bytes.len(), frame.data_offset);
        if len > 0 {
            prop_assert_eq!(frame.data_offset % link.send_align, 0);
        }
        match pdu {
            Pdu::CapsuleCmd(got) => prop_assert_eq!(got, &sqe),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn response_capsule(link in link(), cid: u16, status in 0u16..1 << 15, result: u64) {
        let cqe = Cqe::new(cid, Status(status), result);
        let bytes = head(&rsp_pdu(&cqe, &link), &link);
        let (frame, pdu) = read(&bytes, Side::Host, &link).unwrap();
        prop_assert_eq!(frame.pdu_len, bytes.len());
        match pdu {
            Pdu::CapsuleResp(got) => prop_assert_eq!(got, &cqe),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn data(link in link(), to_host: bool, cid: u16, ttag: u16, offset in 0u32..1 << 30,
            length in 1u32..1 << 20, last: bool, success: bool) {
        let receiver = if to_host { Side::Host } else { Side::Controller };
        let data = Data { cid, ttag, offset: offset * 4, length, last,
                          success: success && last && to_host };
        let bytes = head(&data_pdu(&data, receiver, &link), &link);
        let (frame, pdu) = read(&bytes, receiver, &link).unwrap();
        prop_assert_eq!(frame.data_offset, bytes.len());
        prop_assert_eq!(frame.data_digest, link.data_digest);
        match pdu {
            Pdu::H2cData(got) | Pdu::C2hData(got) => prop_assert_eq!(got, data),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn ready_to_transfer(link in link(), cid: u16, ttag: u16, offset in 0u32..1 << 30,
                         length in 1u32..) {
        let r2t = R2t { cid, ttag, offset: offset * 4, length };
        let bytes = head(&r2t_pdu(&r2t, &link), &link);
        match read(&bytes, Side::Host, &link).unwrap().1 {
            Pdu::R2t(got) => prop_assert_eq!(got, r2t),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn initialisation(hdr_digest: bool, data_digest: bool, pda in 1usize..=32,
                      max_r2t in 1u64..=1 << 32, max in 1024u32..1 << 30) {
        let link = Link::default();
        let req = IcReq { hdr_digest, data_digest, align: pda * 4, max_r2t };
        match read(&head(&req.pdu(), &link), Side::Controller, &link).unwrap().1 {
            Pdu::IcReq(got) => prop_assert_eq!(got, req),
            other => prop_assert!(false, "{:?}", other),
        }
        let resp = IcResp { hdr_digest, data_digest, align: pda * 4, max_h2c_data: max * 4 };
        prop_assert!(resp.check_against(&req).is_ok());
        let other = IcReq { hdr_digest: !hdr_digest, ..req };
        prop_assert!(resp.check_against(&other).is_err());
        match read(&head(&resp.pdu(), &link), Side::Host, &link).unwrap().1 {
            Pdu::IcResp(got) => prop_assert_eq!(got, resp),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// With header digests on, no single changed bit of a header goes unseen.
    #[test]
    fn header_digest_finds_a_flipped_bit(cid: u16, bit in 0usize..(24 * 8)) {
        let link = Link { open: true, hdr_digest: true, ..Link::default() };
        let mut bytes = head(&rsp_pdu(&Cqe::new(cid, Status::SUCCESS, 0), &link), &link);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(read(&bytes, Side::Host, &link).is_err());
    }

    #[test]
    fn arbitrary_bytes(link in link(), to_host: bool,
                       kind in 0u8..12, mut bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        let receiver = if to_host { Side::Host } else { Side::Controller };
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok((frame, _)) = read(&bytes, receiver, &link) {
            prop_assert!(frame.head_len <= HEAD_MAX);
            prop_assert!(frame.data_offset + frame.data_len <= frame.pdu_len);
        }
    }

    /// A good PDU with one byte changed: refused or understood, never a panic,
    /// and the parts stay inside the PDU.
    #[test]
    fn one_byte_wrong(link in link(), at in 0usize..24, value: u8, length in 1u32..10000) {
        let data = Data { cid: 1, ttag: 0, offset: 0, length, last: true, success: true };
        let mut bytes = head(&data_pdu(&data, Side::Host, &link), &link);
        bytes[at] = value;
        if let Ok((frame, _)) = read(&bytes, Side::Host, &link) {
            prop_assert!(frame.data_offset + frame.data_len <= frame.pdu_len);
        }
    }
}

#[test]
fn terminate() {
    let term = Term {
        status: TermStatus::HeaderDigest,
        info: 0x1234_5678,
    };
    let link = Link {
        hdr_digest: true,
        ..Link::default()
    };
    let pdu = term_pdu(&term, Side::Host, 24);
    assert_eq!(pdu.header.plen.get(), 48);
    let bytes = head(&pdu, &link);
    assert_eq!(bytes.len(), 24, "terminate requests have no digest");
    match read(&bytes, Side::Host, &link).unwrap().1 {
        Pdu::Term(got) => assert_eq!(got, term),
        other => panic!("{other:?}"),
    }
}
