// SPDX-License-Identifier: GPL-2.0-only
//! The server as a whole: what is started in which order, what a reload does,
//! what is stopped.
//!
//! Order of a start: the configuration is checked, cost models are read,
//! promises are admitted, devices opened, threads started, and only then does
//! anybody listen. A reload opens what is new before it changes anything, and
//! closes what is gone last; whatever is refused on the way leaves all as it
//! was.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nvme_wire::tenant::Class;
use serde_json::{Value, json};

use super::demo;
use super::open::{self, Open};
use super::report::Facts;
use super::tenants::{Entry, Tenants};
use super::windows::Watch;
use super::{logger, prometheus};
use crate::config::{self, Config, Plan, Section, When};
use crate::dataplane::{Dataplane, Settings, now};
use crate::metrics::Registry;
use crate::subsystem::{Target, TenantControl};

/// Devices that the metrics have room for; see [`config`].
const DEVICES_MAX: usize = 256;

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    File(PathBuf),
    Demo(demo::Demo),
}

impl Source {
    /// Read it, and check it as a whole. The error is one line a mistake.
    pub fn plan(&self) -> Result<(Config, Plan), String> {
        let config = match self {
            Source::File(file) => config::load(file).map_err(|p| p.to_string())?,
            Source::Demo(demo) => demo.config(),
        };
        let plan = Plan::of(&config).map_err(|p| p.to_string())?;
        Ok((config, plan))
    }
}

/// Would it start? Reads cost models, opens nothing.
pub fn check(plan: &Plan) -> Result<(), String> {
    let devices = open::models(plan).map_err(|e| e.to_string())?;
    let registry = Arc::new(Registry::new(0, 0, 0));
    let capacity = plan.limits.tenants.0 as usize;
    let tenants = Tenants::new(devices, capacity, registry).map_err(|e| e.to_string())?;
    tenants.apply(plan).map_err(|e| e.to_string())?;
    Ok(())
}

struct Running {
    plan: Plan,
    open: Open,
    listening: BTreeSet<SocketAddr>,
    /// `None`: the server stops.
    plane: Option<Dataplane>,
}

pub struct Server {
    source: Source,
    started: Instant,
    tenants: Arc<Tenants>,
    registry: Arc<Registry>,
    watch: Watch,
    target: Arc<Target>,
    running: Mutex<Running>,
}

/// The CPUs of the cores: those of the plan, or all that the process may use.
fn cpus(plan: &Plan) -> Vec<u32> {
    let mut cpus = plan.server.cpus.0.clone();
    if cpus.is_empty() {
        if let Ok(set) = rustix::thread::sched_getaffinity(None) {
            let all = 0..rustix::thread::CpuSet::MAX_CPU;
            cpus = all.filter(|c| set.is_set(*c)).map(|c| c as u32).collect();
        }
    }
    if let Some(threads) = plan.server.threads {
        cpus.truncate(threads.0 as usize);
    }
    cpus
}

fn settings(plan: &Plan, cpus: Vec<u32>) -> Settings {
    const SECOND: u64 = 1_000_000_000;
    let times = &plan.timeouts;
    Settings {
        cpus,
        buffer_bytes: usize::try_from(plan.server.buffers.0).unwrap_or(64 << 20),
        connections: plan.limits.connections.0 as usize,
        spin: plan.server.spin_us.0 * 1000,
        handshake: times.handshake.0 * SECOND,
        stuck: times.stuck.0 * SECOND,
        grace: times.drain.duration(),
        ..Settings::default()
    }
}

/// Addresses of a plan, each once.
fn addresses(plan: &Plan) -> BTreeSet<SocketAddr> {
    let exports = plan.exports.iter().flat_map(|e| e.listen.iter());
    exports.chain(&plan.discovery).copied().collect()
}

/// As many descriptors as the system lets us: a connection is one.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(e) = setrlimit(Resource::Nofile, most) {
        log::warn!("the limit of open files can't be raised: {e}");
    }
}

impl Server {
    /// Start everything but the sockets for people and their tools.
    pub fn start(source: Source, mut plan: Plan) -> Result<Arc<Server>, String> {
        raise_limits();
        let cpus = cpus(&plan);
        let cores = cpus.len().max(1);
        let capacity = plan.limits.tenants.0 as usize;
        let registry = Arc::new(Registry::new(cores, DEVICES_MAX, capacity));
        let devices = open::models(&plan).map_err(|e| e.to_string())?;
        let tenants = Tenants::new(devices, capacity, Arc::clone(&registry));
        let tenants = Arc::new(tenants.map_err(|e| e.to_string())?);
        for change in tenants.apply(&plan).map_err(|e| e.to_string())? {
            log::info!("{change}");
        }
        let mut open = Open::default();
        open.align(&mut plan).map_err(|e| e.to_string())?;
        open.open(&plan).map_err(|e| e.to_string())?;
        let specs = open::specs(&plan, &open, &tenants).map_err(|e| e.to_string())?;
        let control: Arc<dyn TenantControl> = Arc::<Tenants>::clone(&tenants);
        let target = Target::new(specs, plan.discovery.clone(), control);
        let target = target.map_err(|e| e.to_string())?;
        let plane = start_plane(settings(&plan, cpus), &target, &registry, &tenants)?;
        let mut running = Running {
            listening: BTreeSet::new(),
            plane: Some(plane),
            open,
            plan,
        };
        let wanted = addresses(&running.plan);
        running.listen(&wanted)?;
        let watch = Watch::new(Arc::clone(&tenants), Arc::clone(&registry));
        Ok(Arc::new(Server {
            source,
            started: Instant::now(),
            tenants,
            registry,
            watch,
            target,
            running: Mutex::new(running),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Look at latencies and promises; see [`Watch::look`].
    pub fn look(&self, tick: u64) {
        self.watch.look(now(), tick);
    }

    /// Take what the configuration says now. Connections go on. What has
    /// changed, one sentence each; or why nothing has.
    pub fn reload(&self) -> Result<Vec<String>, String> {
        let mut running = self.lock();
        let (_, mut plan) = self.source.plan()?;
        running.open.align(&mut plan).map_err(|e| e.to_string())?;
        if plan.devices.len() > DEVICES_MAX {
            return Err(format!("more than {DEVICES_MAX} devices since the start"));
        }
        let models = open::models(&plan).map_err(|e| e.to_string())?;
        let before = running.open.known();
        running.open.open(&plan).map_err(|e| e.to_string())?;
        for device in models.into_iter().skip(before) {
            let shared = self.tenants.add_device(device).map_err(|e| e.to_string())?;
            running.add_device(&shared);
        }
        let wanted = addresses(&plan);
        let had = running.listening.clone();
        running.listen(&wanted)?;
        let applied = self.tenants.apply(&plan).map_err(|e| e.to_string());
        let changes = applied.and_then(|changes| {
            let specs = open::specs(&plan, &running.open, &self.tenants);
            let specs = specs.map_err(|e| e.to_string())?;
            let told = self.target.apply(specs, plan.discovery.clone());
            Ok((changes, told.map_err(|e| e.to_string())?))
        });
        let (mut changes, told) = match changes {
            Ok(all) => all,
            Err(e) => {
                running.keep_listening(&had);
                // What was admitted before fits still.
                if let Err(e) = self.tenants.apply(&running.plan) {
                    log::error!("the old promises can't be put back: {e}");
                }
                return Err(e);
            }
        };
        for export in &plan.exports {
            self.target.retenant(&export.nqn);
        }
        running.keep_listening(&wanted);
        running.open.close(&plan);
        changes.extend(told.added.iter().map(|n| format!("subsystem {n} added")));
        changes.extend(
            told.removed
                .iter()
                .map(|n| format!("subsystem {n} removed")),
        );
        changes.extend(
            told.changed
                .iter()
                .map(|n| format!("subsystem {n} changed")),
        );
        for key in later(&running.plan, &plan) {
            log::warn!("{key} has changed, which takes hold at the next start");
        }
        logger::set_level(plan.server.log_level);
        running.plan = plan;
        for change in &changes {
            log::info!("{change}");
        }
        Ok(changes)
    }

    /// Finish requests, close connections. What is asked for afterwards is
    /// answered as if there were no connections.
    pub fn stop(&self) {
        let plane = self.lock().plane.take();
        if let Some(plane) = plane {
            plane.stop(true);
        }
    }

    fn fact(&self, entry: Entry) -> Facts {
        let tokens = self
            .tenants
            .with_control(entry.device, |c| c.shared().tokens(qos::TenantId(entry.id)));
        let (_, promises) = self.watch.of(&entry);
        Facts {
            device: self.tenants.device_name(entry.device),
            tokens: tokens.flatten().unwrap_or_default(),
            totals: self.registry.tenant(entry.device, entry.id as usize),
            window: self.watch.fresh(&entry, now()),
            promises,
            entry,
        }
    }

    /// All that is known of all tenants.
    pub fn facts(&self) -> Vec<Facts> {
        let all = self.tenants.list().into_iter();
        all.map(|entry| self.fact(entry)).collect()
    }

    /// All that is known of one.
    pub fn tenant(&self, name: &str) -> Result<Facts, String> {
        let entry = self.tenants.entry(name).map_err(|e| e.0)?;
        Ok(self.fact(entry))
    }

    /// Why a tenant has the tokens it has.
    pub fn granted(&self, entry: &Entry) -> String {
        let explained = self.tenants.with_control(entry.device, |c| {
            c.explain(qos::TenantId(entry.id)).map(|e| e.to_string())
        });
        let text = explained.flatten().unwrap_or_default();
        text.trim().to_string()
    }

    pub fn tenant_add(
        &self,
        name: &str,
        nqn: &str,
        host: Option<&str>,
        class: Class,
    ) -> Result<(), String> {
        let added = self.tenants.add(name, nqn, host, class).map_err(|e| e.0)?;
        self.target.retenant(&added.nqn);
        log::info!(tenant = name; "tenant added, {class}");
        Ok(())
    }

    pub fn tenant_set(&self, name: &str, class: Class) -> Result<(), String> {
        self.tenants.change(name, class).map_err(|e| e.0)?;
        log::info!(tenant = name; "tenant is {class}");
        Ok(())
    }

    pub fn tenant_remove(&self, name: &str) -> Result<(), String> {
        let gone = self.tenants.remove(name).map_err(|e| e.0)?;
        self.target.retenant(&gone.nqn);
        log::info!(tenant = name; "tenant removed");
        Ok(())
    }

    pub fn connections(&self) -> usize {
        self.lock().plane.as_ref().map_or(0, Dataplane::connections)
    }

    /// The page for Prometheus.
    pub fn metrics(&self) -> String {
        prometheus::page(&self.facts(), self.registry.cores(), self.connections())
    }

    /// One line for the service manager.
    pub fn summary(&self) -> String {
        let (exports, tenants) = (self.lock().plan.exports.len(), self.tenants.list().len());
        let subsystems = if exports == 1 {
            "subsystem"
        } else {
            "subsystems"
        };
        format!("Serving {exports} {subsystems} to {tenants} tenants")
    }

    pub fn status(&self) -> Value {
        let running = self.lock();
        let cores = self
            .registry
            .cores()
            .iter()
            .enumerate()
            .map(|(index, core)| {
                let c = &core.core;
                json!({
                    "core": index,
                    "connections": c.connections.get(),
                    "commands": c.commands.get(),
                    "busy_s": c.busy_ns.get() as f64 / 1e9,
                    "poll_s": c.poll_ns.get() as f64 / 1e9,
                    "sleep_s": c.sleep_ns.get() as f64 / 1e9,
                })
            });
        let devices = running.open.list().into_iter();
        let devices = devices.map(|(name, bytes)| json!({"name": name, "size_bytes": bytes}));
        let exports = running.plan.exports.iter().map(|e| {
            json!({
                "nqn": e.nqn,
                "namespaces": e.parts.len(),
                "listen": e.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.started.elapsed().as_secs(),
            "connections": running.plane.as_ref().map_or(0, Dataplane::connections),
            "controllers": self.target.controllers(),
            "listening": running.listening.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
            "subsystems": exports.collect::<Vec<_>>(),
            "cores": cores.collect::<Vec<_>>(),
        })
    }
}

/// The data plane, with the schedulers of all devices.
fn start_plane(
    settings: Settings,
    target: &Arc<Target>,
    registry: &Registry,
    tenants: &Tenants,
) -> Result<Dataplane, String> {
    Dataplane::start(settings, Arc::clone(target), &tenants.shared(), registry)
        .map_err(|e| format!("the data plane can't start: {e}"))
}

impl Running {
    /// One device more for all cores.
    fn add_device(&self, shared: &Arc<qos::Shared>) {
        if let Some(plane) = &self.plane {
            plane.add_device(shared);
        }
    }

    /// Listen at these addresses, too; at none of them when one fails.
    fn listen(&mut self, wanted: &BTreeSet<SocketAddr>) -> Result<(), String> {
        let Some(plane) = &self.plane else {
            return Err("the server stops".into());
        };
        let mut new = Vec::new();
        for address in wanted.difference(&self.listening) {
            match plane.listen(*address) {
                Ok(taken) => new.push(taken),
                Err(e) => {
                    new.iter().for_each(|a| plane.unlisten(*a));
                    return Err(format!("can't listen at {address}: {e}"));
                }
            }
        }
        self.listening.extend(new);
        Ok(())
    }

    /// Stop listening elsewhere.
    fn keep_listening(&mut self, wanted: &BTreeSet<SocketAddr>) {
        for address in self.listening.difference(wanted) {
            if let Some(plane) = &self.plane {
                plane.unlisten(*address);
            }
        }
        self.listening.retain(|a| wanted.contains(a));
    }
}

/// Keys that have changed and take hold at the next start only.
fn later(old: &Plan, new: &Plan) -> Vec<String> {
    fn of<S: Section>(old: &S, new: &S, found: &mut Vec<String>) {
        let (old, new) = (old.show(), new.show());
        for key in S::keys().iter().filter(|k| k.when == When::Restart) {
            let value = |shown: &[(&'static str, String)]| {
                let found = shown.iter().find(|(k, _)| *k == key.name);
                found.map(|(_, v)| v.clone())
            };
            if value(&old) != value(&new) {
                found.push(format!("{} of [{}]", key.name, S::HEADER));
            }
        }
    }
    let mut found = Vec::new();
    of(&old.server, &new.server, &mut found);
    of(&old.limits, &new.limits, &mut found);
    of(&old.timeouts, &new.timeouts, &mut found);
    found
}
