// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::config::{Config, Export, Place, PlannedDevice};

const NQN: &str = "nqn.2024-01.io.example:s";
const HOST: &str = "nqn.2024-01.io.example:host1";

pub fn bare_plan() -> Plan {
    plan(&[])
}

pub fn bare_entry(name: &str) -> Entry {
    Entry {
        name: name.into(),
        nqn: NQN.into(),
        host: None,
        class: lc(100),
        origin: Origin::Config,
        open: false,
        cpus: None,
        device: 0,
        id: 0,
        configured: None,
    }
}

fn plan(promises: &[(&str, Option<&str>, Class, bool)]) -> Plan {
    let mut plan = Plan {
        server: Config::default().server,
        ..Plan::default()
    };
    plan.devices.push(PlannedDevice {
        name: "flash".into(),
        medium: crate::config::Medium::Ram(1 << 20),
        cost_model: None,
        place: Place::default(),
    });
    plan.exports.push(Export {
        nqn: NQN.into(),
        serial: "1".into(),
        model: "rflash".into(),
        listen: Vec::new(),
        allowed_hosts: Vec::new(),
        parts: Vec::new(),
        device: 0,
        place: Place::default(),
    });
    for (name, host, class, open) in promises {
        plan.promises.push(Promise {
            name: (*name).into(),
            nqn: NQN.into(),
            host: host.map(Into::into),
            class: *class,
            open: *open,
            cpus: None,
            device: 0,
            place: Place::default(),
        });
    }
    plan
}

fn tenants(model: Option<&str>) -> Tenants {
    let registry = Arc::new(Registry::new(1, 1, 16));
    let device = Device {
        name: "flash".into(),
        model: model.map(|m| DeviceModel::preset(m).unwrap()),
    };
    Tenants::new(vec![device], 16, registry).unwrap()
}

fn lc(iops: u32) -> Class {
    Class::LatencyCritical {
        p95_us: 1000,
        iops,
        read_pct: 100,
        block: 4096,
    }
}

const fn be(weight: u32) -> Class {
    Class::BestEffort { weight }
}

fn classes(tenants: &Tenants) -> Vec<(String, Class, Origin)> {
    let all = tenants.list().into_iter();
    all.map(|e| (e.name, e.class, e.origin)).collect()
}

#[test]
fn promises_follow_the_file() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[("a", None, lc(1000), false)])).unwrap();
    let id = t.of(HOST, NQN).unwrap();
    // The other grows into the room that the first leaves, whatever the order.
    let big = t
        .apply(&plan(&[
            ("b", Some(HOST), lc(1000), false),
            ("a", None, be(5), false),
        ]))
        .unwrap();
    assert_eq!(big.len(), 2, "{big:?}");
    assert_ne!(t.of(HOST, NQN).unwrap(), id);
    assert_eq!(t.of("nqn.2024-01.io.example:other", NQN).unwrap(), id);
    // Nothing changes, nothing is said.
    let again = t
        .apply(&plan(&[
            ("b", Some(HOST), lc(1000), false),
            ("a", None, be(5), false),
        ]))
        .unwrap();
    assert_eq!(again, [""; 0]);
    let gone = t.apply(&plan(&[])).unwrap();
    assert_eq!(gone.len(), 2);
    assert!(t.list().is_empty());
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[("a", None, lc(1000), false)])).unwrap();
    let before = classes(&t);
    let refused = t
        .apply(&plan(&[
            ("a", None, be(1), false),
            ("b", Some(HOST), lc(50_000_000), false),
        ]))
        .unwrap_err();
    assert!(refused.0.contains('b'), "{refused}");
    assert_eq!(classes(&t), before);
}

#[test]
fn what_was_set_live_stays_until_the_file_changes() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[("a", None, be(10), false)])).unwrap();
    t.change("a", be(70)).unwrap();
    t.apply(&plan(&[("a", None, be(10), false)])).unwrap();
    assert_eq!(t.find("a").unwrap().class, be(70));
    t.apply(&plan(&[("a", None, be(11), false)])).unwrap();
    assert_eq!(t.find("a").unwrap().class, be(11));
}

#[test]
fn hosts_may_ask_where_the_operator_lets_them() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[("fixed", None, be(10), false)])).unwrap();
    let refused = t.set(HOST, NQN, lc(10)).unwrap_err();
    assert!(refused.0.contains("by its operator's choice"), "{refused}");
    assert!(t.set(HOST, NQN, be(10)).is_ok());

    let t = tenants(Some("million"));
    t.apply(&plan(&[("shared", None, be(10), true)])).unwrap();
    let all = t.of(HOST, NQN).unwrap();
    let own = t.set(HOST, NQN, lc(10)).unwrap();
    assert_ne!(all, own);
    assert_eq!(t.of(HOST, NQN).unwrap(), own);
    assert_eq!(t.get(HOST, NQN), Some(lc(10)));
    assert_eq!(t.list()[1].name, "shared@host1");
    t.gone(HOST, NQN);
    assert_eq!(t.of(HOST, NQN).unwrap(), all);
}

#[test]
fn guests() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[])).unwrap();
    let id = t.of(HOST, NQN).unwrap();
    assert_eq!(t.of(HOST, NQN).unwrap(), id);
    assert_eq!(classes(&t), [("s@host1".into(), GUEST, Origin::Guest)]);
    assert_eq!(t.set(HOST, NQN, lc(10)).unwrap(), id);
    assert_eq!(t.list()[0].origin, Origin::Host);
    t.gone(HOST, NQN);
    assert!(t.list().is_empty());
    assert!(t.of(HOST, "nqn.2024-01.io.example:none").is_err());
    // As many as there is room for, and not one more.
    for n in 0..16 {
        t.of(&format!("nqn.2024-01.io.example:h{n}"), NQN).unwrap();
    }
    assert!(t.of(HOST, NQN).is_err());
    t.gone("nqn.2024-01.io.example:h3", NQN);
    assert!(t.of(HOST, NQN).is_ok());
}

#[test]
fn the_operators_commands() {
    let t = tenants(Some("million"));
    t.apply(&plan(&[])).unwrap();
    t.of(HOST, NQN).unwrap();
    let added = t.add("x", NQN, Some(HOST), lc(100)).unwrap();
    assert_eq!(classes(&t), [("x".into(), lc(100), Origin::Admin)]);
    assert_eq!(t.of(HOST, NQN).unwrap().0, added.id);
    let e = t.add("y", NQN, Some(HOST), lc(100)).unwrap_err();
    assert!(e.0.contains("x is the tenant of the same hosts"), "{e}");
    assert!(t.add("a b", NQN, None, be(1)).is_err());
    assert!(t.add("y", "nqn.x", None, be(1)).is_err());
    let e = t.change("z", be(1)).unwrap_err();
    assert_eq!(e.0, "there is no tenant z, but x");
    t.remove("x").unwrap();
    assert!(t.list().is_empty());
}

#[test]
fn without_a_cost_model_nobody_is_latency_critical() {
    let t = tenants(None);
    t.apply(&plan(&[("a", None, be(10), true)])).unwrap();
    let e = t.set(HOST, NQN, lc(10)).unwrap_err();
    assert!(e.0.contains("calibrate it"), "{e}");
    let e = t.apply(&plan(&[("a", None, lc(10), false)])).unwrap_err();
    assert!(e.0.contains("device flash"), "{e}");
}
