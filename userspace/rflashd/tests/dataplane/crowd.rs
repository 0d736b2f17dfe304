// SPDX-License-Identifier: GPL-2.0-only
//! Many connections, many tenants, several cores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nvme_wire::command::Sqe;
use nvme_wire::fabrics::{CNTLID_ANY, PropertyCmd, property};
use qos::{Class, Control, DeviceModel};
use rflashd::dataplane::{AT_REST, Settings};
use rflashd::subsystem::{Refusal, TenantControl, TenantId};

use super::host::*;

/// Bytes of this process that are not shared or of files.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// As many connections as the limit of open files allows, up to 10,000: both
/// ends are in this process.
#[test]
fn ten_thousand_connections_at_rest() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit {
        current: Some(21_000),
        maximum: Some(limit.maximum.unwrap_or(21_000).max(21_000)),
    };
    // Only root may raise the maximum.
    if rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).is_err() {
        limit.current = limit.maximum;
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.current.unwrap_or(1 << 20) as usize;
    let count = ((most - 500) / 2).min(10_000);
    let server = Server::start(settings());
    let mut session = Session::open(&server, PLAIN);
    let mut hosts = Vec::with_capacity(count);
    // What a host costs is known; the rest is the server's.
    let before = resident();
    for _ in 0..count {
        let mut host = Host::open(server.address, PLAIN);
        host.connect(
            0,
            CNTLID_ANY,
            Options {
                entries: 32,
                ..PLAIN
            },
        );
        hosts.push(host);
    }
    server.wait_for_connections(count + 2);
    let each = (resident() - before) / count;
    println!(
        "{count} connections, {each} bytes each with their controllers, {AT_REST} of the data plane"
    );
    const { assert!(AT_REST <= 1024) };
    // All of them live, and one that is busy does not notice.
    for host in hosts.iter_mut().step_by(97) {
        let (status, ..) = host.run(PropertyCmd::get(property::CAP, true).sqe(), &[]);
        assert!(status.is_success());
    }
    for _ in 0..100 {
        assert!(session.io.run(Sqe::read(1, 0, 8, 4096), &[]).0.is_success());
    }
    drop(hosts);
    server.wait_for_connections(2);
}

/// A tenant per host, named by the host.
struct Tenants {
    _control: Mutex<Control>,
    known: Mutex<HashMap<String, TenantId>>,
}

impl TenantControl for Tenants {
    fn of(&self, host_nqn: &str, _subsys: &str) -> Result<TenantId, Refusal> {
        let mut known = self.known.lock().unwrap();
        let next = known.len();
        Ok(*known
            .entry(host_nqn.into())
            .or_insert(TenantId(next as u32)))
    }

    fn set(
        &self,
        _host: &str,
        _subsys: &str,
        _class: nvme_wire::tenant::Class,
    ) -> Result<TenantId, Refusal> {
        Err(Refusal("not here".into()))
    }

    fn get(&self, _host: &str, _subsys: &str) -> Option<nvme_wire::tenant::Class> {
        None
    }
}

/// With the scheduler on, what is served stays within what the device can do,
/// and nothing is lost.
#[test]
fn tenants_wait_for_tokens_and_lose_nothing() {
    let model = DeviceModel {
        // 400 reads of 4 KiB per second.
        ..slow_model()
    };
    let mut control = Control::new(model, 100).unwrap();
    for i in 0..100 {
        control
            .add(&format!("t{i}"), Class::BestEffort { weight: 1 })
            .unwrap();
    }
    let shared = control.shared();
    let tenants = Arc::new(Tenants {
        _control: Mutex::new(control),
        known: Mutex::default(),
    });
    let server = Server::with(settings(), &[shared], tenants);
    let mut session = Session::open(&server, PLAIN);
    let data = pattern(1, 4096);
    let begun = std::time::Instant::now();
    let mut sent = Vec::new();
    for cid in 0..100_u16 {
        let mut sqe = match cid % 4 {
            0 => Sqe::write(1, u64::from(cid) * 8, 8, 4096).in_capsule(),
            1 => Sqe::write(1, u64::from(cid) * 8, 8, 4096),
            _ => Sqe::read(1, u64::from(cid) * 8, 8, 4096),
        };
        sqe.cid = zerocopy::little_endian::U16::new(cid);
        let inline = cid % 4 == 0;
        sent.extend(session.io.capsule(&sqe, if inline { &data } else { &[] }));
    }
    session.io.send(&sent);
    let mut done = [false; 100];
    let mut left = 100;
    while left > 0 {
        let cid = match session.io.receive().unwrap() {
            Got::R2t(r2t) => {
                session.io.answer(&r2t, &data);
                continue;
            }
            Got::Data { cid, success, .. } if success => cid,
            Got::Done { cid, status, .. } => {
                assert!(status.is_success());
                cid
            }
            other => panic!("{other:?}"),
        };
        assert!(!std::mem::replace(&mut done[usize::from(cid)], true));
        left -= 1;
    }
    println!("100 commands in {:?}", begun.elapsed());
    assert!(begun.elapsed().as_millis() > 100, "nobody waited");
    for cid in [0_u64, 1, 48, 97] {
        let back = session.io.run(Sqe::read(1, cid * 8, 8, 4096), &[]).2;
        assert_eq!(back, data);
    }
}

fn slow_model() -> DeviceModel {
    let mut model = DeviceModel::preset("million").unwrap();
    model.max = 40_000;
    for point in &mut model.curve {
        point.mixed = 40_000;
        point.read_only = 40_000;
    }
    model
}

/// Connections go to the CPUs of their tenant, and work there.
#[test]
fn several_cores() {
    let server = Server::start(Settings {
        cpus: vec![0, 1],
        ..settings()
    });
    let mut session = Session::open(&server, PLAIN);
    let mut queues: Vec<Host> = (2..8)
        .map(|qid| session.queue(&server, qid, PLAIN))
        .collect();
    for (i, queue) in queues.iter_mut().enumerate() {
        let data = pattern(i as u64, 65536);
        let lba = i as u64 * 128;
        assert!(
            queue
                .run(Sqe::write(1, lba, 128, 65536), &data)
                .0
                .is_success()
        );
        let back = session.io.run(Sqe::read(1, lba, 128, 65536), &[]).2;
        assert!(back == data);
    }
}
