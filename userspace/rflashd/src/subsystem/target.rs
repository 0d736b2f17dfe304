// SPDX-License-Identifier: GPL-2.0-only
//! What the server exports, and to whom.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use nvme_wire::command::async_event;
use nvme_wire::nqn;

use super::controller::Controller;
use super::export::{self, Difference, Subsystem};
use super::model::{SubsystemSpec, TenantControl, TenantId};

/// Greatest controller id; those above are reserved (NVMe over Fabrics 1.1,
/// figure 20).
const MAX_CNTLID: u16 = 0xffef;

/// Everything that is exported. Shared by all cores; slow path only.
pub struct Target {
    tenants: Arc<dyn TenantControl>,
    /// Held from the question who a host is until it is counted, and from its
    /// last controller's end until its tenant is told: a host that comes back
    /// at once must not lose the tenant it has just been given. Taken before
    /// `state`.
    tenancy: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    subsystems: BTreeMap<String, Arc<Subsystem>>,
    discovery: Vec<SocketAddr>,
    /// Of the discovery log. Begins with the time, so that a host sees that the
    /// server has been restarted.
    genctr: u64,
    controllers: BTreeMap<u16, Arc<Controller>>,
    last_cntlid: u16,
    /// Controllers by host and subsystem.
    hosts: HashMap<(String, String), u32>,
}

/// What [`Target::apply`] has done, by NQN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// Namespaces, hosts, listeners or tenant differ.
    pub changed: Vec<String>,
}

/// What is wrong with a specification: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

impl Target {
    /// `discovery`: addresses that only discovery controllers are reached by;
    /// there is one on every listener of a subsystem as well.
    pub fn new(
        specs: Vec<SubsystemSpec>,
        discovery: Vec<SocketAddr>,
        tenants: Arc<dyn TenantControl>,
    ) -> Result<Arc<Target>, SpecError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let target = Target {
            tenants,
            tenancy: Mutex::new(()),
            state: Mutex::new(State {
                subsystems: BTreeMap::new(),
                discovery: Vec::new(),
                genctr: now.map_or(1, |now| now.as_secs() << 16),
                controllers: BTreeMap::new(),
                last_cntlid: 0,
                hosts: HashMap::new(),
            }),
        };
        target.apply(specs, discovery)?;
        Ok(Arc::new(target))
    }

    /// Replace what is exported, whole or, with an error, not at all. Hosts
    /// learn of it by asynchronous events; connections of subsystems that are
    /// gone and of hosts that may not connect any more are to be closed (see
    /// [`super::Association::refresh`]); all others go on.
    pub fn apply(
        &self,
        specs: Vec<SubsystemSpec>,
        discovery: Vec<SocketAddr>,
    ) -> Result<Changes, SpecError> {
        export::check(&specs)?;
        let mut changes = Changes::default();
        let mut differences: BTreeMap<String, Difference> = BTreeMap::new();
        let mut state = self.lock();
        for (name, subsystem) in &state.subsystems {
            if !specs.iter().any(|spec| spec.nqn == *name) {
                subsystem.remove();
                changes.removed.push(name.clone());
            }
        }
        state
            .subsystems
            .retain(|name, _| !changes.removed.contains(name));
        for spec in specs {
            let name = spec.nqn.clone();
            if let Some(subsystem) = state.subsystems.get(&name) {
                let difference = subsystem.replace(spec);
                if difference.any() {
                    changes.changed.push(name.clone());
                    differences.insert(name, difference);
                }
            } else {
                let subsystem = Arc::new(Subsystem::new(spec));
                state.subsystems.insert(name.clone(), subsystem);
                changes.added.push(name);
            }
        }
        let relisted = differences.values().any(|d| d.hosts || d.listeners);
        let discovered = !changes.added.is_empty()
            || !changes.removed.is_empty()
            || relisted
            || state.discovery != discovery;
        state.discovery = discovery;
        if discovered {
            state.genctr = state.genctr.wrapping_add(1);
        }
        let controllers: Vec<Arc<Controller>> = state.controllers.values().cloned().collect();
        // Controllers are told without the lock: what they call may come back.
        drop(state);
        for controller in controllers {
            self.tell(&controller, &changes, &differences, discovered);
        }
        Ok(changes)
    }

    fn tell(
        &self,
        controller: &Controller,
        changes: &Changes,
        differences: &BTreeMap<String, Difference>,
        discovered: bool,
    ) {
        let Some(subsystem) = controller.subsystem() else {
            if discovered {
                controller.raise(
                    async_event::DISCOVERY_LOG,
                    0xf0,
                    nvme_wire::command::log::DISCOVERY,
                );
            }
            return;
        };
        if changes.removed.contains(&subsystem.nqn) {
            log::info!(
                "subsystem \"{}\" is gone: controller {} of host \"{}\" is closed",
                subsystem.nqn,
                controller.cntlid(),
                controller.host_nqn()
            );
            controller.close();
            return;
        }
        let Some(difference) = differences.get(&subsystem.nqn) else {
            return;
        };
        let spec = subsystem.live().spec;
        if !spec.admits(controller.host_nqn()) {
            log::info!(
                "host \"{}\" may not use \"{}\" any more: controller {} is closed",
                controller.host_nqn(),
                subsystem.nqn,
                controller.cntlid()
            );
            controller.close();
            return;
        }
        if difference.tenant {
            let tenant = match &spec.tenant {
                Some(tenant) => Ok(tenant.id),
                None => self.tenants.of(controller.host_nqn(), &subsystem.nqn),
            };
            match tenant {
                Ok(tenant) => controller.set_tenant(tenant),
                Err(why) => {
                    let host = controller.host_nqn();
                    log::warn!("host \"{host}\" can't be a tenant any more: {why}");
                    controller.close();
                }
            }
        }
        controller.namespaces_changed(&difference.namespaces);
    }

    /// How many controllers there are.
    pub fn controllers(&self) -> usize {
        self.lock().controllers.len()
    }

    pub(super) fn tenants(&self) -> &Arc<dyn TenantControl> {
        &self.tenants
    }

    pub(super) fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.lock().subsystems.get(nqn).cloned()
    }

    pub(super) fn controller(&self, cntlid: u16) -> Option<Arc<Controller>> {
        self.lock().controllers.get(&cntlid).cloned()
    }

    /// All controllers of a subsystem, or of discovery, in ascending order.
    pub(super) fn controllers_of(&self, subsys_nqn: &str) -> Vec<Arc<Controller>> {
        let state = self.lock();
        let of = |c: &&Arc<Controller>| c.subsys_nqn() == subsys_nqn;
        state.controllers.values().filter(of).cloned().collect()
    }

    /// Everything that a discovery log is made of: counter, subsystems that
    /// `host_nqn` may use.
    pub(super) fn visible_to(&self, host_nqn: &str) -> (u64, Vec<Arc<SubsystemSpec>>) {
        let state = self.lock();
        let specs = state.subsystems.values().map(|s| s.live().spec);
        let visible = specs.filter(|spec| spec.admits(host_nqn)).collect();
        (state.genctr, visible)
    }

    /// Make a controller with an id of its own. `None`: none is free, or there
    /// is no such subsystem (any more).
    pub(super) fn add_controller(
        &self,
        subsys_nqn: &str,
        make: impl FnOnce(u16) -> Controller,
    ) -> Option<Arc<Controller>> {
        let mut state = self.lock();
        if subsys_nqn != nqn::DISCOVERY && !state.subsystems.contains_key(subsys_nqn) {
            return None;
        }
        // Not the one that was free last: a host that comes late to a dead
        // controller must not find another one's.
        let after = state.last_cntlid.checked_add(1)?;
        let cntlid = (after..=MAX_CNTLID)
            .chain(1..after)
            .find(|id| !state.controllers.contains_key(id))?;
        state.last_cntlid = if cntlid == MAX_CNTLID { 0 } else { cntlid };
        let controller = Arc::new(make(cntlid));
        state.controllers.insert(cntlid, Arc::clone(&controller));
        *state.hosts.entry(host_of(&controller)).or_default() += 1;
        Some(controller)
    }

    /// The admin queue of `controller` is gone, and with it the controller.
    pub(super) fn remove_controller(&self, controller: &Controller) {
        let host = host_of(controller);
        let tenancy = self.lock_tenancy();
        let mut state = self.lock();
        state.controllers.remove(&controller.cntlid());
        let left = state.hosts.get_mut(&host).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == 0 {
            state.hosts.remove(&host);
        }
        drop(state);
        if left == 0 && !controller.is_discovery() {
            self.tenants.gone(&host.0, &host.1);
        }
        drop(tenancy);
        controller.close();
    }

    /// Who is whose tenant has changed in a subsystem: ask again for all its
    /// controllers. Their connections learn it with their next refresh.
    pub fn retenant(&self, subsys_nqn: &str) {
        for controller in self.controllers_of(subsys_nqn) {
            let Some(subsystem) = controller.subsystem() else {
                continue;
            };
            let tenant = match &subsystem.live().spec.tenant {
                Some(tenant) => Ok(tenant.id),
                None => self.tenants.of(controller.host_nqn(), subsys_nqn),
            };
            match tenant {
                Ok(tenant) => controller.set_tenant(tenant),
                Err(why) => {
                    let host = controller.host_nqn();
                    log::warn!("host \"{host}\" can't be a tenant any more: {why}");
                    controller.close();
                }
            }
        }
    }

    /// The host got a tenant and no controller: unless it has another one, the
    /// tenant was for nothing. `tenancy` is held.
    pub(super) fn forget(&self, host_nqn: &str, subsys_nqn: &str) {
        let host = (host_nqn.to_string(), subsys_nqn.to_string());
        if !self.lock().hosts.contains_key(&host) {
            self.tenants.gone(host_nqn, subsys_nqn);
        }
    }

    pub(super) fn lock_tenancy(&self) -> MutexGuard<'_, ()> {
        self.tenancy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host has another tenant now: so have all its controllers.
    pub(super) fn move_tenant(&self, host_nqn: &str, subsys_nqn: &str, tenant: TenantId) {
        for controller in self.controllers_of(subsys_nqn) {
            if controller.host_nqn() == host_nqn {
                controller.set_tenant(tenant);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn host_of(controller: &Controller) -> (String, String) {
    let (host, name) = (controller.host_nqn(), controller.subsys_nqn());
    (host.to_string(), name.to_string())
}
