// SPDX-License-Identifier: GPL-2.0-only
use nvme_wire::command::{Sqe, feature, log};
use nvme_wire::fabrics::{PropertyCmd, property};
use nvme_wire::fixed_text;
use nvme_wire::identify::{self, LEN, cns};
use nvme_wire::log::{ErrorEntry, Smart};
use nvme_wire::nqn;
use nvme_wire::status::Status;
use zerocopy::little_endian::U32;

use super::host::*;
use crate::subsystem::*;

fn identify(nsid: u32, cns: u8) -> Sqe {
    Sqe::identify(nsid, cns, LEN as u32)
}

#[test]
fn the_controller() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    let page = host.run(identify(0, cns::CONTROLLER)).data;
    let c = identify::Controller::of(&page).unwrap();
    assert_eq!(fixed_text(&c.serial), "RF0001");
    assert_eq!(fixed_text(&c.model), "rflash test");
    assert_eq!(fixed_text(&c.subnqn), NQN);
    assert_eq!(c.cntlid.get(), 1);
    assert_eq!(c.in_capsule_data(), Ok(8192));
    assert_eq!(c.max_transfer(0), Some(1 << 20));
    assert_eq!(
        u64::from(c.version.get()),
        host.property(property::VS, false)
    );
    assert_eq!(c.tenant_version(), Some(1));
    assert_eq!((c.cntrltype, c.vwc & 1, c.kas.get()), (1, 0, 1));
    assert_eq!(host.property(property::CAP, true) & 0xffff, 1023);
}

#[test]
fn the_discovery_controller() {
    let target = target();
    let mut host = Host::ready(&target, nqn::DISCOVERY);
    let page = host.run(identify(0, cns::CONTROLLER)).data;
    let c = identify::Controller::of(&page).unwrap();
    assert_eq!((c.cntrltype, c.nn.get(), c.tenant_version()), (2, 0, None));
    assert_eq!(c.oaes.get(), 1 << 31);
    assert_eq!(host.fail(identify(1, cns::NAMESPACE)), 0x002);
    assert_eq!(host.fail(Sqe::tenant_get()), 0x001);
    assert!(host.connect_io(&target, 1).is_err());
}

#[test]
fn the_namespaces() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    for list in [
        cns::ACTIVE_NAMESPACES,
        cns::CSI_ACTIVE_NAMESPACES,
        cns::ALLOCATED_NAMESPACES,
    ] {
        let page = host.run(identify(0, list)).data;
        assert_eq!(identify::active_namespaces(&page), Ok(vec![1, 3]));
        let page = host.run(identify(1, list)).data;
        assert_eq!(identify::active_namespaces(&page), Ok(vec![3]));
        assert_eq!(host.fail(identify(u32::MAX, list)), 0x00b);
    }
    let page = host.run(identify(3, cns::NAMESPACE)).data;
    let ns = identify::Namespace::of(&page).unwrap();
    assert_eq!(ns.geometry(), Ok((512, 3 << 20)));
    assert_eq!((ns.npwg.get(), ns.nmic, ns.nsattr), (7, 1, 0));
    let page = host.run(identify(3, cns::NAMESPACE_DESCRIPTORS)).data;
    let found = identify::descriptors(&page).unwrap();
    assert_eq!((found.uuid, found.csi), (Some(UUID), Some(0)));
    // Could be, and is not: zeroes. Could not be: an error.
    assert_eq!(host.run(identify(2, cns::NAMESPACE)).data, vec![0; LEN]);
    assert_eq!(host.fail(identify(0, cns::NAMESPACE)), 0x00b);
    assert_eq!(host.fail(identify(1025, cns::NAMESPACE)), 0x00b);
    assert_eq!(host.fail(identify(2, cns::NAMESPACE_DESCRIPTORS)), 0x00b);
    assert_eq!(host.fail(identify(1, 0xff)), 0x002);
    let mut zoned = identify(0, cns::CSI_CONTROLLER);
    assert_eq!(host.run(zoned).data[3], 255);
    zoned.cdw11 = U32::new(2 << 24);
    assert_eq!(host.fail(zoned), 0x002);
    assert_eq!(host.run(identify(1, cns::COMMON_NAMESPACE)).data[14], 1);
    assert_eq!(
        host.run(identify(0, cns::CONTROLLERS)).data[..4],
        [1, 0, 1, 0]
    );
}

#[test]
fn lengths_must_match() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    for len in [0, 4095, 4097, u32::MAX] {
        assert_eq!(host.fail(Sqe::identify(0, cns::CONTROLLER, len)), 0x00f);
    }
    assert_eq!(host.fail(identify(0, cns::CONTROLLER).in_capsule()), 0x011);
    let mut prp = identify(0, cns::CONTROLLER);
    prp.flags = 0;
    assert_eq!(host.fail(prp), 0x002);
}

#[test]
fn features() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    let command = |opcode, fid: u8, value: u32| {
        let mut sqe = Sqe::new(opcode, 0, 0);
        sqe.cdw10 = U32::new(fid.into());
        sqe.cdw11 = U32::new(value);
        sqe
    };
    let set = |fid, value| command(0x09, fid, value);
    let get = |fid| command(0x0a, fid, 0);
    assert_eq!(host.run(Sqe::set_queue_count(4)).result, 3 | (3 << 16));
    assert_eq!(
        host.run(get(feature::NUMBER_OF_QUEUES)).result,
        3 | (3 << 16)
    );
    assert_eq!(host.connect_io(&target, 5).err().unwrap().result, 42);
    let queue = host.connect_io(&target, 4).unwrap();
    assert_eq!(host.fail(Sqe::set_queue_count(8)), 0x00c);
    drop(queue);
    assert_eq!(
        host.run(Sqe::set_queue_count(9999)).result,
        127 | (127 << 16)
    );
    host.run(set(feature::KEEP_ALIVE, 1001));
    assert_eq!(host.run(get(feature::KEEP_ALIVE)).result, 1100);
    host.run(set(feature::ASYNC_EVENTS, 0x100));
    assert_eq!(host.run(get(feature::ASYNC_EVENTS)).result, 0x100);
    assert_eq!(host.fail(set(feature::ASYNC_EVENTS, 1 << 31)), 0x002);
    assert_eq!(host.fail(set(feature::WRITE_CACHE, 1)), 0x10e);
    assert_eq!(host.fail(set(feature::POWER, 1)), 0x002);
    assert_eq!(host.fail(set(0x42, 0)), 0x002);
    let mut saved = set(feature::KEEP_ALIVE, 0);
    saved.cdw10 = U32::new(u32::from(feature::KEEP_ALIVE) | (1 << 31));
    assert_eq!(host.fail(saved), 0x10d);
    let mut id = get(feature::HOST_ID);
    id.sgl.length = U32::new(16);
    assert_eq!(host.fail(id), 0x002);
    id.cdw11 = U32::new(1);
    assert_eq!(host.run(id).data, [7; 16]);
}

#[test]
fn log_pages() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    assert_eq!(host.fail(identify(0, 0xfe)), 0x002);
    host.queue
        .controller
        .record_error(3, &Sqe::read(1, 77, 1, 512), Status::INTERNAL);
    let errors = host.log(log::ERRORS, 4096, 0);
    let newest = ErrorEntry::of(&errors).unwrap();
    assert_eq!(
        (
            newest.error_count.get(),
            newest.sqid.get(),
            newest.lba.get()
        ),
        (2, 3, 77)
    );
    let first = ErrorEntry::of(&errors[64..]).unwrap();
    assert_eq!((first.sqid.get(), first.location.get()), (0, 40));
    assert!(Status::from_wire(first.status.get()).more());
    let smart = host.log(log::SMART, 512, 0);
    assert_eq!(Smart::of(&smart).unwrap().error_entries[0], 2);
    assert_eq!(host.log(log::FIRMWARE, 512, 0)[0], 1);
    let effects = host.log(log::EFFECTS, 4096, 0);
    assert_eq!(
        (effects[0x06 * 4], effects[1024 + 4], effects[0x18 * 4]),
        (1, 3, 1)
    );
    assert_eq!(host.log(log::SUPPORTED, 1024, 0)[0x70 * 4], 0);
    assert_eq!(host.log(log::SUPPORTED, 8, 1020), [0; 8]);
    assert_eq!(
        host.fail(Sqe::get_log_page(log::DISCOVERY, 1024, 0).unwrap()),
        0x109
    );
    assert_eq!(
        host.fail(Sqe::get_log_page(log::SMART, 4, 516).unwrap()),
        0x002
    );
    assert_eq!(
        host.fail(Sqe::get_log_page(log::SMART, 4, u64::MAX - 3).unwrap()),
        0x002
    );
    assert_eq!(
        host.fail(Sqe::get_log_page(log::SMART, 2 << 20, 0).unwrap()),
        0x002
    );
    let mut short = Sqe::get_log_page(log::SMART, 512, 0).unwrap();
    short.sgl.length = U32::new(256);
    assert_eq!(host.fail(short), 0x00f);
}

#[test]
fn nothing_before_enable_and_nothing_twice() {
    let target = target();
    let mut host = Host::connect(&target, NQN).unwrap();
    assert_eq!(host.fail(identify(0, cns::CONTROLLER)), 0x00c);
    assert_eq!(host.fail(Sqe::keep_alive()), 0x00c);
    let connect = nvme_wire::fabrics::ConnectCmd::new(0, 32, 0, 0).sqe();
    assert_eq!(host.fail(connect), 0x00c);
    assert_eq!(host.fail(PropertyCmd::set(property::CSTS, 0).sqe()), 0x002);
    assert_eq!(
        host.fail(PropertyCmd::get(property::CAP, false).sqe()),
        0x002
    );
    // Fabrics commands on an I/O queue, and admin commands there.
    let controller = &host.queue.controller;
    for sqe in [
        PropertyCmd::get(property::CAP, true).sqe(),
        Sqe::keep_alive(),
    ] {
        let outcome = controller.admin(&sqe, &[], 1, 1);
        let failed = matches!(outcome, Outcome::Reply { status, .. } if !status.is_success());
        assert!(failed, "{outcome:?}");
    }
}
