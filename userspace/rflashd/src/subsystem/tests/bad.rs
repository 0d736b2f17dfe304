// SPDX-License-Identifier: GPL-2.0-only
//! What no host should send, and configurations nobody should write.

use nvme_wire::command::Sqe;
use nvme_wire::fabrics::{ConnectCmd, ConnectData};
use nvme_wire::nqn;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::host::*;
use crate::subsystem::*;

/// Any bytes, most of them with an opcode, flags and an SGL that lead further.
fn commands() -> impl Strategy<Value = Sqe> {
    let opcode = prop::sample::select(vec![
        0x02_u8, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f, 0xc1, 0xc2,
    ]);
    let opcode = prop_oneof![4 => opcode, 1 => any::<u8>()];
    let length = prop_oneof![
        prop::sample::select(vec![0_u32, 4, 16, 64, 512, 1024, 4096]),
        any::<u32>()
    ];
    let dword = || {
        prop_oneof![
            0..0x100_u32,
            any::<u32>(),
            (0..0x100_u32).prop_map(|n| n << 16)
        ]
    };
    let dwords = [
        dword(),
        dword(),
        dword(),
        dword(),
        dword(),
        dword(),
        dword(),
    ];
    (any::<[u8; 64]>(), opcode, length, dwords, any::<bool>()).prop_map(
        |(bytes, opcode, length, dwords, plain)| {
            let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
            sqe.opcode = opcode;
            if plain {
                sqe.flags = 0x40;
                sqe.sgl.kind = 0x5a;
                sqe.sgl.length = length.into();
                let [nsid, a, b, c, d, e, f] = dwords;
                sqe.nsid = nsid.into();
                sqe.cdw10 = a.into();
                sqe.cdw11 = b.into();
                sqe.cdw12 = c.into();
                sqe.cdw13 = d.into();
                sqe.cdw14 = e.into();
                sqe.cdw15 = f.into();
            }
            sqe
        },
    )
}

fn check(outcome: Outcome, sqe: &Sqe) -> Result<(), TestCaseError> {
    if let Outcome::Reply { status, data, .. } = outcome {
        prop_assert!(data.len() <= sqe.sgl.length.get() as usize);
        prop_assert!(status.is_success() || data.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_command_is_answered(
        sqes in prop::collection::vec((commands(), 0..3_u16), 1..40),
        data in prop::collection::vec(any::<u8>(), 0..100),
        discovery in any::<bool>(),
    ) {
        let target = target();
        let host = Host::ready(&target, if discovery { nqn::DISCOVERY } else { NQN });
        for (sqe, qid) in &sqes {
            check(host.queue.controller.admin(sqe, &data, *qid, 1), sqe)?;
            prop_assert!(host.queue.controller.events().len() <= 4);
        }
    }

    #[test]
    fn any_connect_is_answered(
        cmd in any::<[u8; 64]>(),
        noise in prop::collection::vec((0..1024_usize, any::<u8>()), 0..4),
        qid in 0..3_u16,
    ) {
        let target = target();
        let mut host = Host::ready(&target, NQN);
        let mut cmd = ConnectCmd::read_from_bytes(&cmd).unwrap();
        cmd.qid = qid.into();
        let cntlid = if qid == 0 { 0xffff } else { 1 };
        let mut data = ConnectData::new([7; 16], cntlid, NQN, HOST).unwrap();
        for (at, byte) in noise {
            data.as_mut_bytes()[at] = byte;
        }
        if let Ok(mut queue) = target.connect(&cmd, &data, &peer()) {
            prop_assert!((2..=MAX_QUEUE).contains(&queue.entries));
            prop_assert!(queue.qid == 0 || queue.namespaces.get(1).is_some());
            queue.refresh();
        }
        host.queue.refresh();
        prop_assert_eq!(target.controllers(), 1);
    }
}

#[test]
fn specifications() {
    let why = |edit: fn(&mut SubsystemSpec)| {
        let mut bad = spec();
        edit(&mut bad);
        let target = target();
        let error = target.apply(vec![bad], vec![]).err().unwrap().to_string();
        let host = Host::connect(&target, NQN);
        assert!(host.is_ok(), "what was there before is still there");
        error
    };
    for (edit, want) in [
        (
            (|s| s.nqn = "one".into()) as fn(&mut SubsystemSpec),
            "subsystem \"one\": its NQN is wrong: it must begin with \"nqn.\"",
        ),
        (|s| s.nqn = nqn::DISCOVERY.into(), "discovery controllers"),
        (
            |s| s.serial = String::new(),
            "its serial is \"\"; it must be 1 to 20",
        ),
        (|s| s.model = "x\n".into(), "its model is \"x\\n\""),
        (
            |s| s.allowed_hosts = vec!["x".into()],
            "allowed host \"x\": it must begin",
        ),
        (
            |s| s.namespaces[0].nsid = 0,
            "namespace 0: its id must be 1 to 1024",
        ),
        (|s| s.namespaces[0].nsid = 3, "namespace 3: there are two"),
        (
            |s| s.namespaces[0].block_size = 520,
            "its block size is 520; it must be one of",
        ),
        (|s| s.namespaces[0].blocks = 0, "room for 1 to 2097152"),
        (
            |s| s.namespaces[0].blocks = u64::MAX,
            "room for 1 to 2097152",
        ),
    ] {
        let error = why(edit);
        assert!(error.contains(want), "{error}");
    }
    let twice = target().apply(vec![spec(), spec()], vec![]);
    assert!(
        twice
            .unwrap_err()
            .to_string()
            .contains("names must be unique")
    );
}
