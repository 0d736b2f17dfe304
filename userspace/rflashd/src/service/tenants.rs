// SPDX-License-Identifier: GPL-2.0-only
//! Who the tenants are, and what each has been promised: over the schedulers'
//! controls, one per device.
//!
//! A tenant is known by its subsystem and, where it is only one host, by that.
//! It comes from the configuration, from `rflash tenant add`, from a host that
//! asked for a class when it connected, or is a guest: a host of a subsystem
//! that has no tenant for it. Guests are best-effort.
//!
//! One lock for all; it is never held while I/O is done or another lock is
//! taken, and no thread of the dataplane ever takes it for a request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme_wire::tenant::Class;
use qos::{Control, DeviceModel, Point, Shared, Slo};

use crate::config::{Plan, Promise};
use crate::metrics::Registry;
use crate::subsystem::{Refusal, TenantControl, TenantId, Usage};

/// What a guest has.
const GUEST: Class = Class::BestEffort {
    weight: qos::DEFAULT_WEIGHT,
};
/// Longest name of a tenant that was not given one.
const NAME_MAX: usize = 64;

/// Where a tenant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Config,
    /// `rflash tenant add`.
    Admin,
    /// A host has asked for its class.
    Host,
    /// A host that nobody said anything about.
    Guest,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Config => "config",
            Origin::Admin => "admin",
            Origin::Host => "host",
            Origin::Guest => "guest",
        })
    }
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub nqn: String,
    /// `None`: whoever connects.
    pub host: Option<String>,
    pub class: Class,
    pub origin: Origin,
    /// Its hosts may ask for another class.
    pub open: bool,
    pub cpus: Option<Vec<u32>>,
    /// Index of the device, and in it.
    pub device: usize,
    pub id: u32,
    /// The class in the file, to tell a change there from one made live.
    configured: Option<Class>,
}

/// A device as the tenants see it.
pub struct Device {
    pub name: String,
    /// `None`: nothing is known of it, nobody can be promised a latency.
    pub model: Option<DeviceModel>,
}

struct Controlled {
    name: String,
    promises: bool,
    control: Control,
}

#[derive(Default)]
struct Inner {
    devices: Vec<Controlled>,
    /// Device of each subsystem.
    exports: HashMap<String, usize>,
    entries: Vec<Entry>,
}

/// All tenants of the server.
pub struct Tenants {
    inner: Mutex<Inner>,
    registry: Arc<Registry>,
    capacity: usize,
}

fn refusal(text: impl fmt::Display) -> Refusal {
    Refusal(text.to_string())
}

/// As the scheduler has it.
pub fn to_qos(class: Class) -> qos::Class {
    match class {
        Class::LatencyCritical {
            p95_us,
            iops,
            read_pct,
            block,
        } => qos::Class::LatencyCritical(Slo {
            p95_us,
            iops,
            read_pct,
            block,
        }),
        Class::BestEffort { weight } => qos::Class::BestEffort { weight },
    }
}

/// For a device of which nothing is known: more tokens than anybody can spend.
fn unlimited() -> DeviceModel {
    const RATE: u64 = 4_000_000_000;
    DeviceModel {
        name: "none".into(),
        page: 4096,
        read: 1,
        write: 1,
        read_only_read: 1,
        flush: 1,
        discard: 1,
        max: RATE,
        curve: vec![Point {
            p95_us: 1_000_000,
            mixed: RATE,
            read_only: RATE,
        }],
    }
}

impl Inner {
    fn control(&mut self, device: usize) -> Result<&mut Controlled, Refusal> {
        let found = self.devices.get_mut(device);
        found.ok_or_else(|| refusal("there is no such device any more"))
    }

    /// The tenant of a host: its own, or that of all hosts.
    fn of(&self, host: &str, nqn: &str) -> Option<usize> {
        let own = |e: &Entry| e.nqn == nqn && e.host.as_deref() == Some(host);
        let all = |e: &Entry| e.nqn == nqn && e.host.is_none();
        let entries = &self.entries;
        let found = entries.iter().position(own);
        found.or_else(|| entries.iter().position(all))
    }

    fn add(&mut self, mut entry: Entry, registry: &Registry) -> Result<u32, Refusal> {
        let control = self.control(entry.device)?;
        control.check(&entry.name, entry.class)?;
        let class = to_qos(entry.class);
        let id = control.control.add(&entry.name, class).map_err(refusal)?;
        registry.restart(entry.device, id.index());
        entry.id = id.0;
        self.entries.push(entry);
        Ok(id.0)
    }

    fn set(&mut self, index: usize, class: Class) -> Result<(), Refusal> {
        let Some(entry) = self.entries.get(index) else {
            return Err(refusal("there is no such tenant"));
        };
        let (device, id) = (entry.device, entry.id);
        let name = entry.name.clone();
        let control = self.control(device)?;
        control.check(&name, class)?;
        control
            .control
            .set(qos::TenantId(id), to_qos(class))
            .map_err(refusal)?;
        if let Some(entry) = self.entries.get_mut(index) {
            entry.class = class;
        }
        Ok(())
    }

    fn remove(&mut self, index: usize) -> Option<Entry> {
        (index < self.entries.len()).then(|| {
            let entry = self.entries.swap_remove(index);
            if let Some(device) = self.devices.get_mut(entry.device) {
                device.control.remove(qos::TenantId(entry.id));
            }
            entry
        })
    }

    /// A name that nobody has: of the subsystem, and of the host when it is for
    /// one.
    fn free_name(&self, host: &str, nqn: &str) -> String {
        let base = self
            .entries
            .iter()
            .find(|e| e.nqn == nqn && e.host.is_none());
        let base = base.map_or_else(|| tail(nqn), |e| e.name.as_str());
        let wish: String = format!("{base}@{}", tail(host))
            .chars()
            .take(NAME_MAX)
            .collect();
        let taken = |name: &str| self.entries.iter().any(|e| e.name == name);
        if !taken(&wish) {
            return wish;
        }
        let mut number = 2_u64;
        loop {
            let name = format!("{wish}#{number}");
            if !taken(&name) {
                return name;
            }
            number += 1;
        }
    }
}

/// What tells an NQN from others of the same maker: all behind its colon.
fn tail(nqn: &str) -> &str {
    let tail = nqn.split_once(':').map_or(nqn, |(_, tail)| tail);
    tail.strip_prefix("uuid:").unwrap_or(tail)
}

impl Controlled {
    fn check(&self, name: &str, class: Class) -> Result<(), Refusal> {
        match class {
            Class::LatencyCritical { .. } if !self.promises => Err(refusal(format!(
                "{name} can't be latency-critical: nothing is known of device {}; \
                 calibrate it (rflash calibrate) and name the result in its cost-model",
                self.name
            ))),
            _ => Ok(()),
        }
    }
}

impl Tenants {
    /// Tenants of these devices, at most `capacity` each.
    pub fn new(
        devices: Vec<Device>,
        capacity: usize,
        registry: Arc<Registry>,
    ) -> Result<Tenants, Refusal> {
        let tenants = Tenants {
            inner: Mutex::default(),
            registry,
            capacity,
        };
        for device in devices {
            tenants.add_device(device)?;
        }
        Ok(tenants)
    }

    /// One device more; what its schedulers share.
    pub fn add_device(&self, device: Device) -> Result<Arc<Shared>, Refusal> {
        let promises = device.model.is_some();
        let model = device.model.unwrap_or_else(unlimited);
        let control = Control::new(model, self.capacity)
            .map_err(|e| refusal(format!("cost model of {}: {e}", device.name)))?;
        let shared = control.shared();
        self.lock().devices.push(Controlled {
            name: device.name,
            promises,
            control,
        });
        Ok(shared)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the schedulers of each device share.
    pub fn shared(&self) -> Vec<Arc<Shared>> {
        let inner = self.lock();
        inner.devices.iter().map(|d| d.control.shared()).collect()
    }

    /// All tenants by device and name.
    pub fn list(&self) -> Vec<Entry> {
        let mut all = self.lock().entries.clone();
        all.sort_by(|a, b| (a.device, &a.name).cmp(&(b.device, &b.name)));
        all
    }

    pub fn find(&self, name: &str) -> Option<Entry> {
        let inner = self.lock();
        inner.entries.iter().find(|e| e.name == name).cloned()
    }

    /// The same, and a sentence about what there is instead.
    pub fn entry(&self, name: &str) -> Result<Entry, Refusal> {
        let inner = self.lock();
        let index = inner.by_name(name)?;
        let found = inner.entries.get(index).cloned();
        found.ok_or_else(|| refusal("there is no such tenant"))
    }

    pub fn device_name(&self, device: usize) -> String {
        let inner = self.lock();
        inner
            .devices
            .get(device)
            .map_or_else(String::new, |d| d.name.clone())
    }

    /// Run something with the control of a device.
    pub fn with_control<R>(&self, device: usize, f: impl FnOnce(&mut Control) -> R) -> Option<R> {
        let mut inner = self.lock();
        inner.devices.get_mut(device).map(|d| f(&mut d.control))
    }

    /// Make the promises those of a plan, all or none; those made live stay. A
    /// class that was changed live stays as well unless the file's has changed.
    ///
    /// All devices of the plan have been added.
    pub fn apply(&self, plan: &Plan) -> Result<Vec<String>, Refusal> {
        let mut inner = self.lock();
        inner.rehearse(plan)?;
        let mut changes = Vec::new();
        inner.exports = plan
            .exports
            .iter()
            .map(|e| (e.nqn.clone(), e.device))
            .collect();
        inner.leave(plan, &mut changes);
        let mut left: Vec<&Promise> = plan.promises.iter().collect();
        // What shrinks makes room for what grows: again until nothing moves.
        loop {
            let before = left.len();
            let mut refused = None;
            left.retain(
                |promise| match inner.keep(promise, &self.registry, &mut changes) {
                    Ok(()) => false,
                    Err(refusal) => {
                        refused = Some(refusal);
                        true
                    }
                },
            );
            match refused {
                None => return Ok(changes),
                Some(refusal) if left.len() == before => return Err(refusal),
                Some(_) => {}
            }
        }
    }

    /// `rflash tenant add`.
    pub fn add(
        &self,
        name: &str,
        nqn: &str,
        host: Option<&str>,
        class: Class,
    ) -> Result<Entry, Refusal> {
        let mut inner = self.lock();
        if !crate::config::value::Name::check(name) {
            return Err(refusal(format!(
                "\"{name}\" is no name: give 1 to 64 letters, digits, dots, slashes, - or _"
            )));
        }
        let Some(&device) = inner.exports.get(nqn) else {
            return Err(refusal(format!("there is no subsystem {nqn}")));
        };
        let same = |e: &&Entry| e.nqn == nqn && e.host.as_deref() == host;
        if let Some(other) = inner.entries.iter().find(same) {
            // A guest is nobody's choice: the operator's takes its place.
            if other.origin != Origin::Guest {
                return Err(refusal(format!(
                    "{} is the tenant of the same hosts already: change it with rflash tenant set",
                    other.name
                )));
            }
        }
        if inner.entries.iter().any(|e| e.name == name) {
            return Err(refusal(format!("there is a tenant {name} already")));
        }
        let entry = Entry {
            name: name.into(),
            nqn: nqn.into(),
            host: host.map(Into::into),
            class,
            origin: Origin::Admin,
            open: false,
            cpus: None,
            device,
            id: 0,
            configured: None,
        };
        let guest = inner
            .entries
            .iter()
            .position(|e| e.nqn == nqn && e.host.as_deref() == host && e.origin == Origin::Guest);
        inner.add(entry.clone(), &self.registry)?;
        if let Some(guest) = guest {
            inner.remove(guest);
        }
        let added = inner.entries.iter().find(|e| e.name == name);
        Ok(added.cloned().unwrap_or(entry))
    }

    /// `rflash tenant set`.
    pub fn change(&self, name: &str, class: Class) -> Result<Entry, Refusal> {
        let mut inner = self.lock();
        let index = inner.by_name(name)?;
        inner.set(index, class)?;
        let entry = inner.entries.get(index).cloned();
        entry.ok_or_else(|| refusal("there is no such tenant"))
    }

    /// `rflash tenant remove`.
    pub fn remove(&self, name: &str) -> Result<Entry, Refusal> {
        let mut inner = self.lock();
        let index = inner.by_name(name)?;
        let gone = inner.remove(index);
        gone.ok_or_else(|| refusal("there is no such tenant"))
    }
}

impl Inner {
    fn by_name(&self, name: &str) -> Result<usize, Refusal> {
        let found = self.entries.iter().position(|e| e.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().map(|e| e.name.as_str()).collect();
            refusal(match names.as_slice() {
                [] => format!("there is no tenant {name}, nor any other"),
                some if some.len() <= 8 => {
                    format!("there is no tenant {name}, but {}", some.join(", "))
                }
                _ => format!("there is no tenant {name}: rflash tenant list shows all"),
            })
        })
    }

    /// Would all promises of a plan fit, beside those made live?
    fn rehearse(&self, plan: &Plan) -> Result<(), Refusal> {
        for (index, device) in self.devices.iter().enumerate() {
            let shared = device.control.shared();
            let mut control =
                Control::new(shared.model().clone(), shared.capacity()).map_err(refusal)?;
            let live = self.entries.iter().filter(|e| e.origin != Origin::Config);
            let live = live.filter(|e| plan.exports.iter().any(|x| x.nqn == e.nqn));
            let live = live.filter(|e| {
                let place = |p: &Promise| p.name == e.name || (p.nqn == e.nqn && p.host == e.host);
                !plan.promises.iter().any(place)
            });
            for entry in live.filter(|e| e.device == index) {
                let class = to_qos(entry.class);
                control.add(&entry.name, class).map_err(refusal)?;
            }
            for promise in plan.promises.iter().filter(|p| p.device == index) {
                let place = &promise.place;
                let at = |e: &dyn fmt::Display| {
                    refusal(format!(
                        "{}:{}: {e}",
                        place.file().display(),
                        place.line_of("class")
                    ))
                };
                let class = self.wanted(promise);
                device.check(&promise.name, class).map_err(|e| at(&e))?;
                control
                    .add(&promise.name, to_qos(class))
                    .map_err(|e| at(&e))?;
            }
        }
        Ok(())
    }

    /// The file's class, unless another was set live since.
    fn wanted(&self, promise: &Promise) -> Class {
        let old = self.entries.iter().find(|e| e.name == promise.name);
        match old {
            Some(e) if e.configured == Some(promise.class) => e.class,
            _ => promise.class,
        }
    }

    /// Remove who is not in the plan, who has another subsystem, host or device
    /// there, and whoever else is in a promise's place.
    fn leave(&mut self, plan: &Plan, changes: &mut Vec<String>) {
        let stays = |e: &Entry| {
            let own = |p: &Promise| p.name == e.name && p.nqn == e.nqn && p.host == e.host;
            let place = |p: &Promise| p.name == e.name || (p.nqn == e.nqn && p.host == e.host);
            let promise = plan.promises.iter().find(|p| place(p));
            let exported = plan
                .exports
                .iter()
                .any(|x| x.nqn == e.nqn && x.device == e.device);
            exported
                && match promise {
                    Some(p) => own(p) && p.device == e.device && e.origin == Origin::Config,
                    None => e.origin != Origin::Config,
                }
        };
        let mut index = 0;
        while let Some(entry) = self.entries.get(index) {
            if stays(entry) {
                index += 1;
                continue;
            }
            changes.push(format!("tenant {} removed", entry.name));
            self.remove(index);
        }
    }

    /// Make one promise that of the plan.
    fn keep(
        &mut self,
        promise: &Promise,
        registry: &Registry,
        changes: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let class = self.wanted(promise);
        let index = self.entries.iter().position(|e| e.name == promise.name);
        let Some(index) = index else {
            self.add(
                Entry {
                    name: promise.name.clone(),
                    nqn: promise.nqn.clone(),
                    host: promise.host.clone(),
                    class,
                    origin: Origin::Config,
                    open: promise.open,
                    cpus: promise.cpus.clone(),
                    device: promise.device,
                    id: 0,
                    configured: Some(promise.class),
                },
                registry,
            )?;
            changes.push(format!("tenant {} added, {class}", promise.name));
            return Ok(());
        };
        if self.entries.get(index).is_some_and(|e| e.class != class) {
            self.set(index, class)?;
            changes.push(format!("tenant {} is {class}", promise.name));
        }
        if let Some(entry) = self.entries.get_mut(index) {
            if entry.cpus != promise.cpus {
                changes.push(format!("tenant {} has other CPUs", promise.name));
            }
            entry.cpus.clone_from(&promise.cpus);
            entry.open = promise.open;
            entry.configured = Some(promise.class);
        }
        Ok(())
    }
}

impl TenantControl for Tenants {
    fn of(&self, host_nqn: &str, subsys_nqn: &str) -> Result<TenantId, Refusal> {
        let mut inner = self.lock();
        if let Some(entry) = inner
            .of(host_nqn, subsys_nqn)
            .and_then(|i| inner.entries.get(i))
        {
            return Ok(TenantId(entry.id));
        }
        inner
            .admit_host(host_nqn, subsys_nqn, GUEST, Origin::Guest, &self.registry)
            .map(TenantId)
    }

    fn set(&self, host_nqn: &str, subsys_nqn: &str, class: Class) -> Result<TenantId, Refusal> {
        let mut inner = self.lock();
        let Some(index) = inner.of(host_nqn, subsys_nqn) else {
            return inner
                .admit_host(host_nqn, subsys_nqn, class, Origin::Host, &self.registry)
                .map(TenantId);
        };
        let Some(entry) = inner.entries.get(index).cloned() else {
            return Err(refusal("there is no such tenant"));
        };
        if entry.class == class {
            return Ok(TenantId(entry.id));
        }
        let own = entry.host.is_some();
        let live = matches!(entry.origin, Origin::Host | Origin::Guest);
        if own && (live || entry.open) {
            inner.set(index, class)?;
            if let Some(e) = inner.entries.get_mut(index).filter(|_| live) {
                e.origin = Origin::Host;
            }
            return Ok(TenantId(entry.id));
        }
        if entry.open {
            // The tenant of all hosts stays as it is: another host may be it.
            return inner
                .admit_host(host_nqn, subsys_nqn, class, Origin::Host, &self.registry)
                .map(TenantId);
        }
        Err(refusal(format!(
            "tenant {} is {} by its operator's choice, and its hosts can't change that",
            entry.name, entry.class
        )))
    }

    fn get(&self, host_nqn: &str, subsys_nqn: &str) -> Option<Class> {
        let inner = self.lock();
        let index = inner.of(host_nqn, subsys_nqn)?;
        inner.entries.get(index).map(|e| e.class)
    }

    fn gone(&self, host_nqn: &str, subsys_nqn: &str) {
        let mut inner = self.lock();
        let live = |e: &Entry| {
            e.nqn == subsys_nqn
                && e.host.as_deref() == Some(host_nqn)
                && matches!(e.origin, Origin::Host | Origin::Guest)
        };
        if let Some(index) = inner.entries.iter().position(live) {
            inner.remove(index);
        }
    }

    fn usage(&self, tenant: TenantId) -> Usage {
        // An index is one device's: with several it does not say whose.
        if self.lock().devices.len() != 1 {
            return Usage::default();
        }
        let all = self.registry.tenant(0, tenant.0 as usize);
        Usage {
            reads: all.reads,
            writes: all.writes,
            read_bytes: all.read_bytes,
            write_bytes: all.write_bytes,
            errors: all.errors,
        }
    }
}

impl Inner {
    /// A tenant of its own for a host.
    fn admit_host(
        &mut self,
        host: &str,
        nqn: &str,
        class: Class,
        origin: Origin,
        registry: &Registry,
    ) -> Result<u32, Refusal> {
        let Some(&device) = self.exports.get(nqn) else {
            return Err(refusal(format!("there is no subsystem {nqn}")));
        };
        let name = self.free_name(host, nqn);
        let all = self
            .entries
            .iter()
            .find(|e| e.nqn == nqn && e.host.is_none());
        let cpus = all.and_then(|e| e.cpus.clone());
        self.add(
            Entry {
                name,
                nqn: nqn.into(),
                host: Some(host.into()),
                class,
                origin,
                open: true,
                cpus,
                device,
                id: 0,
                configured: None,
            },
            registry,
        )
    }
}

#[cfg(test)]
#[path = "tenants_tests.rs"]
pub mod tests;
