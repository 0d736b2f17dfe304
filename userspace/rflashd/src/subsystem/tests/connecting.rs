// SPDX-License-Identifier: GPL-2.0-only
use nvme_wire::fabrics::{
    CC_ENABLE, CC_SHUTDOWN_NORMAL, CNTLID_ANY, ConnectCmd, ConnectData, PropertyCmd, property,
};
use nvme_wire::nqn;
use nvme_wire::status::Status;
use zerocopy::little_endian::U16;

use super::host::*;
use crate::subsystem::*;

const INVALID: Status = Status(0x182 | (1 << 14));

fn refusal(
    target: &std::sync::Arc<Target>,
    edit: impl FnOnce(&mut ConnectCmd, &mut ConnectData),
) -> (Status, u32) {
    let mut cmd = ConnectCmd::new(0, 32, 5000, 0);
    let mut data = ConnectData::new([7; 16], CNTLID_ANY, NQN, HOST).unwrap();
    edit(&mut cmd, &mut data);
    let error = target.connect(&cmd, &data, &peer()).err().unwrap();
    assert!(!error.reason.is_empty());
    (error.status, error.result)
}

#[test]
fn an_admin_queue() {
    let target = target();
    let host = Host::connect(&target, NQN).unwrap();
    assert_eq!(host.queue.connect_result(), 1);
    assert_eq!((host.queue.qid, host.queue.entries), (0, 32));
    assert!(!host.queue.sq_flow_off);
    assert_eq!(host.queue.controller.kato_ms(), 5000);
    assert_eq!(target.controllers(), 1);
    drop(host);
    assert_eq!(target.controllers(), 0);
    // The id of a dead controller is not given out again at once.
    let next = Host::connect(&target, NQN).unwrap();
    assert_eq!(next.queue.connect_result(), 2);
}

#[test]
fn every_field_is_checked_and_named() {
    let target = target();
    let offset = |of: u32| (INVALID, of);
    let data_offset = |of: u32| (INVALID, (1 << 16) | of);
    assert_eq!(
        refusal(&target, |cmd, _| cmd.recfmt = U16::new(1)).0,
        Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry()
    );
    assert_eq!(
        refusal(&target, |cmd, _| cmd.sqsize = U16::new(0)),
        offset(44)
    );
    assert_eq!(
        refusal(&target, |cmd, _| cmd.sqsize = U16::new(1024)),
        offset(44)
    );
    assert_eq!(
        refusal(&target, |_, d| d.cntlid = U16::new(1)),
        data_offset(16)
    );
    assert_eq!(
        refusal(&target, |_, d| d.subsys_nqn[4] = b'x'),
        data_offset(256)
    );
    assert_eq!(
        refusal(&target, |_, d| d.subsys_nqn = [b'a'; 256]),
        data_offset(256)
    );
    assert_eq!(
        refusal(&target, |_, d| d.host_nqn = [0; 256]),
        data_offset(512)
    );
    assert_eq!(
        refusal(&target, |c, d| {
            c.qid = U16::new(1);
            d.cntlid = U16::new(77);
        }),
        data_offset(16)
    );
    assert_eq!(target.controllers(), 0);
}

#[test]
fn only_admitted_hosts_at_the_subsystems_own_addresses() {
    let mut closed = spec();
    closed.allowed_hosts = vec!["nqn.2026-11.org.rflash.test:friend".into()];
    let target = target_of(vec![closed]);
    let (status, result) = refusal(&target, |_, _| {});
    assert_eq!(status, Status::CONNECT_INVALID_HOST.with_do_not_retry());
    assert_eq!(result, (1 << 16) | 512);
    let mut elsewhere = spec();
    elsewhere.listeners = vec![at("192.0.2.2:4420")];
    let target = target_of(vec![elsewhere]);
    assert_eq!(refusal(&target, |_, _| {}), (INVALID, (1 << 16) | 256));
}

#[test]
fn io_queues_need_an_enabled_controller_of_the_same_host() {
    let target = target();
    let host = Host::connect(&target, NQN).unwrap();
    let sequence = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
    assert_eq!(host.connect_io(&target, 1).err().unwrap().status, sequence);
    drop(host);
    let host = Host::ready(&target, NQN);
    let queue = host.connect_io(&target, 1).unwrap();
    assert!(queue.sq_flow_off);
    assert_eq!(queue.entries, 128);
    assert_eq!(queue.namespaces.get(3).unwrap().blocks, 3 * 2048);
    assert!(queue.namespaces.get(2).is_none() && queue.namespaces.get(0).is_none());
    assert_eq!(host.connect_io(&target, 1).err().unwrap().status, sequence);
    drop(queue);
    let _again = host.connect_io(&target, 1).unwrap();
    let high = host.connect_io(&target, 1000).err().unwrap();
    assert_eq!((high.status, high.result), (INVALID, 42));

    let cntlid = host.queue.connect_result() as u16;
    let io = ConnectCmd::new(2, 128, 0, 0);
    let other = |id, nqn, host: &str| {
        let data = ConnectData::new(id, cntlid, nqn, host).unwrap();
        target.connect(&io, &data, &peer()).err().unwrap().result
    };
    assert_eq!(other([8; 16], NQN, HOST), 1 << 16);
    assert_eq!(other([7; 16], nqn::DISCOVERY, HOST), (1 << 16) | 256);
    assert_eq!(other([7; 16], NQN, "nqn.2026-11.x:other"), (1 << 16) | 512);
}

#[test]
fn queues_end_with_reset_shutdown_and_the_admin_queue() {
    let target = target();
    for cc in [0, CC_ENABLE | CC_SHUTDOWN_NORMAL] {
        let mut host = Host::ready(&target, NQN);
        let mut queue = host.connect_io(&target, 1).unwrap();
        assert_eq!(queue.refresh(), Standing::Same);
        host.run(PropertyCmd::set(property::CC, cc).sqe());
        assert_eq!(queue.refresh(), Standing::Closed);
        assert_eq!(queue.refresh(), Standing::Closed);
        assert_eq!(host.queue.refresh(), Standing::Changed);
        assert_eq!(host.queue.refresh(), Standing::Same);
        host.run(PropertyCmd::set(property::CC, 0).sqe());
        host.run(PropertyCmd::set(property::CC, CC_ENABLE).sqe());
        // The old connection is not gone yet, the new one is there already.
        let mut new = host.connect_io(&target, 1).unwrap();
        drop(queue);
        assert!(
            host.connect_io(&target, 1).is_err(),
            "the id is the new queue's"
        );
        drop(host);
        assert_eq!(new.refresh(), Standing::Closed);
        assert_eq!(target.controllers(), 0);
    }
}

#[test]
fn keep_alive() {
    let target = target();
    let host = Host::connect(&target, NQN).unwrap();
    let controller = &host.queue.controller;
    let ms = |n: u64| 1_000_000 * n;
    assert!(!controller.expired(ms(100)));
    assert!(!controller.expired(ms(5100)));
    controller.touch(ms(3000));
    assert!(!controller.expired(ms(8000)));
    assert!(controller.expired(ms(8001)));
    assert!(controller.is_closed());
    let sqe = nvme_wire::command::Sqe::keep_alive();
    assert_eq!(controller.admin(&sqe, &[], 0, ms(8002)), Outcome::Close);

    let discovery = {
        let data = ConnectData::new([7; 16], CNTLID_ANY, nqn::DISCOVERY, HOST).unwrap();
        target.connect(&ConnectCmd::new(0, 32, 0, 0), &data, &peer())
    };
    assert_eq!(discovery.unwrap().controller.kato_ms(), 120_000);
}

#[test]
fn all_ids_and_no_more() {
    let target = target();
    let hosts: Vec<Host> = (0..0xffef)
        .map(|_| Host::connect(&target, NQN).unwrap())
        .collect();
    let busy = Host::connect(&target, NQN).err().unwrap();
    assert_eq!(busy.status, Status::CONNECT_CONTROLLER_BUSY);
    assert_eq!(target.controllers(), 0xffef);
    drop(hosts.into_iter().nth(5));
}
