// SPDX-License-Identifier: GPL-2.0-only
use std::sync::{Arc, Mutex};

use nvme_wire::command::Sqe;
use nvme_wire::tenant::{Class, TenantData};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::host::*;
use crate::subsystem::*;

/// Promises anything below 1000 IOPS.
#[derive(Default)]
struct Promises {
    class: Mutex<Option<Class>>,
    gone: Mutex<u32>,
}

impl TenantControl for Promises {
    fn of(&self, host: &str, _: &str) -> Result<TenantId, Refusal> {
        match host == HOST {
            true => Ok(TenantId(5)),
            false => Err(Refusal("there is no room".into())),
        }
    }

    fn set(&self, _: &str, _: &str, class: Class) -> Result<TenantId, Refusal> {
        if matches!(class, Class::LatencyCritical { iops, .. } if iops >= 1000) {
            return Err(Refusal("999 IOPS would fit".into()));
        }
        *self.class.lock().unwrap() = Some(class);
        Ok(TenantId(6))
    }

    fn get(&self, _: &str, _: &str) -> Option<Class> {
        *self.class.lock().unwrap()
    }

    fn gone(&self, _: &str, _: &str) {
        *self.gone.lock().unwrap() += 1;
    }
}

fn critical(iops: u32) -> Class {
    Class::LatencyCritical {
        p95_us: 500,
        iops,
        read_pct: 90,
        block: 4096,
    }
}

#[test]
fn a_promise() {
    let promises = Arc::new(Promises::default());
    let control = Arc::clone(&promises) as Arc<dyn TenantControl>;
    let target = Target::new(vec![spec()], vec![], control).unwrap();
    let mut host = Host::ready(&target, NQN);
    let mut queue = host.connect_io(&target, 1).unwrap();
    assert_eq!(queue.tenant, TenantId(5));
    let nothing = host.run(Sqe::tenant_get()).data;
    assert_eq!(nothing, [0; 64]);

    let set = Sqe::tenant_set().in_capsule();
    let reply = host.send(set, critical(900).data().as_bytes());
    assert!(reply.status.is_success(), "{}", reply.status);
    assert_eq!(queue.refresh(), Standing::Changed);
    assert_eq!(queue.tenant, TenantId(6));
    let data = host.run(Sqe::tenant_get()).data;
    assert_eq!(TenantData::decode(&data), Ok(critical(900)));

    let refused = host.send(set, critical(1000).data().as_bytes());
    assert_eq!(
        (refused.status.code(), refused.status.do_not_retry()),
        (0x1c0, true)
    );
    let data = host.run(Sqe::tenant_get()).data;
    assert_eq!(
        TenantData::decode(&data),
        Ok(critical(900)),
        "nothing half way"
    );
    drop(queue);
    drop(host);
    assert_eq!(*promises.gone.lock().unwrap(), 1);
}

#[test]
fn what_is_wrong_is_said() {
    let target = target();
    let mut host = Host::ready(&target, NQN);
    let set = Sqe::tenant_set().in_capsule();
    let good = Class::BestEffort { weight: 1 }.data();
    let mut bad = good;
    bad.weight = U32::new(0);
    assert_eq!(host.send(set, bad.as_bytes()).status.code(), 0x002);
    assert_eq!(host.send(set, &good.as_bytes()[1..]).status.code(), 0x00f);
    assert_eq!(host.send(set, &[]).status.code(), 0x00f);
    let mut wrong = set;
    wrong.cdw10 = U32::new(15);
    assert_eq!(host.send(wrong, good.as_bytes()).status.code(), 0x002);
    wrong = set;
    wrong.nsid = U32::new(1);
    assert_eq!(host.send(wrong, good.as_bytes()).status.code(), 0x002);
    assert_eq!(host.send(set, good.as_bytes()).status.code(), 0x1c0);
}

#[test]
fn no_room_for_a_tenant() {
    let target = Target::new(vec![spec()], vec![], Arc::new(Promises::default())).unwrap();
    let data = nvme_wire::fabrics::ConnectData::new(
        [7; 16],
        nvme_wire::fabrics::CNTLID_ANY,
        NQN,
        "nqn.2026-11.org.rflash.test:other",
    );
    let cmd = nvme_wire::fabrics::ConnectCmd::new(0, 32, 0, 0);
    let error = target.connect(&cmd, &data.unwrap(), &peer()).err().unwrap();
    assert_eq!(error.status.code(), 0x181);
    assert!(error.reason.contains("there is no room"));
}

#[test]
fn the_configured_tenant_and_its_cpus() {
    let mut fixed = spec();
    fixed.tenant = Some(TenantSpec {
        id: TenantId(9),
        cpus: Some(vec![1, 2]),
    });
    let target = target_of(vec![fixed.clone()]);
    let mut host = Host::ready(&target, NQN);
    assert_eq!(host.queue.tenant, TenantId(9));
    assert_eq!(host.queue.cpus.as_deref(), Some(&[1, 2][..]));
    fixed.tenant = None;
    target.apply(vec![fixed], vec![]).unwrap();
    assert_eq!(host.queue.refresh(), Standing::Changed);
    assert_eq!(
        (host.queue.tenant, host.queue.cpus.clone()),
        (TenantId(0), None)
    );
}
