// SPDX-License-Identifier: GPL-2.0-only
//! What the configuration comes to: checked as a whole, names resolved.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use nvme_wire::nqn;
use nvme_wire::tenant::Class;

use super::section::Place;
use super::value::{ClassWord, CostModel, DeviceRef, Preset};
use super::{Config, Device, Limits, Namespace, Problems, Server, Subsystem, Tenant, Timeouts};

/// Devices of one server: what a tenant's number has room for.
pub const DEVICES_MAX: usize = 256;
const BLOCK_SIZES: [u64; 4] = [512, 1024, 2048, 4096];

/// A configuration without mistakes, as far as can be seen without opening
/// anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub server: Server,
    pub limits: Limits,
    pub timeouts: Timeouts,
    /// Where the discovery controller listens.
    pub discovery: Vec<SocketAddr>,
    pub devices: Vec<PlannedDevice>,
    pub exports: Vec<Export>,
    pub promises: Vec<Promise>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedDevice {
    pub name: String,
    pub medium: Medium,
    pub cost_model: Option<CostModel>,
    pub place: Place,
}

/// What keeps the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    File(PathBuf),
    /// Bytes.
    Ram(u64),
    /// Bytes.
    Null(u64),
    Model {
        preset: Preset,
        /// Bytes; `None`: as published.
        size: Option<u64>,
        seed: u64,
    },
}

impl Medium {
    /// Bytes, where that is known before it is opened.
    pub fn size(&self) -> Option<u64> {
        match self {
            Medium::Ram(n) | Medium::Null(n) => Some(*n),
            Medium::Model { size, .. } => *size,
            Medium::File(_) => None,
        }
    }
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    pub nqn: String,
    pub serial: String,
    pub model: String,
    pub listen: Vec<SocketAddr>,
    pub allowed_hosts: Vec<String>,
    /// In ascending order of their ids; all on one device.
    pub parts: Vec<Part>,
    /// Index of the device.
    pub device: usize,
    pub place: Place,
}

/// A namespace: a part of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub nsid: u32,
    /// Bytes.
    pub offset: u64,
    /// Bytes; `None`: to the end.
    pub size: Option<u64>,
    pub block_size: u32,
    pub uuid: [u8; 16],
    pub read_only: bool,
    pub place: Place,
}

/// What a tenant is promised.
#[derive(Clone, Debug, PartialEq)]
pub struct Promise {
    pub name: String,
    pub nqn: String,
    /// `None`: whoever connects.
    pub host: Option<String>,
    pub class: Class,
    /// Its hosts may ask for another class.
    pub open: bool,
    /// `None`: where the packets arrive.
    pub cpus: Option<Vec<u32>>,
    /// Index of the device.
    pub device: usize,
    pub place: Place,
}

impl Plan {
    /// Check a configuration and resolve it.
    pub fn of(config: &Config) -> Result<Plan, Problems> {
        let mut maker = Maker {
            plan: Plan {
                server: config.server.clone(),
                limits: config.limits.clone(),
                timeouts: config.timeouts.clone(),
                discovery: config.discovery.listen.clone(),
                ..Plan::default()
            },
            problems: Problems::default(),
        };
        for device in &config.devices {
            maker.device(device);
        }
        for (subsystem, namespaces) in &config.subsystems {
            maker.subsystem(subsystem, namespaces);
        }
        // Tenants with a device make the subsystems that others may name.
        for tenant in config.tenants.iter().filter(|t| t.device.is_some()) {
            maker.own_subsystem(tenant);
        }
        for tenant in &config.tenants {
            maker.tenant(tenant);
        }
        maker.overlaps();
        maker.listeners(config);
        if maker.plan.exports.is_empty() && maker.problems.0.is_empty() {
            let file = config.server.place.file().to_path_buf();
            let text =
                "there is nothing to serve: give a [[tenant]] with a device, or a [[subsystem]]";
            maker.problems.add(&file, 0, text);
        }
        maker.problems.or(maker.plan)
    }
}

struct Maker {
    plan: Plan,
    problems: Problems,
}

impl Maker {
    fn device(&mut self, device: &Device) {
        let name = &device.name.0;
        let place = &device.place;
        if let Some(other) = self.plan.devices.iter().find(|d| d.name == *name) {
            let text = format!("{name} is there already, at {}", at(&other.place));
            self.problems.at(place, "name", text);
        }
        let given: Vec<&str> = ["path", "ram", "null", "model"]
            .into_iter()
            .filter(|k| place.has(k))
            .collect();
        if let [_, second, ..] = given.as_slice() {
            let text = format!("a device is one thing: give one of {}", given.join(", "));
            self.problems.at(place, second, text);
        }
        for key in ["model-size", "seed"] {
            if place.has(key) && device.model.is_none() {
                self.problems
                    .at(place, key, "only a device with model has it");
            }
        }
        let zero = [
            ("ram", device.ram),
            ("null", device.null),
            ("model-size", device.model_size),
        ];
        for (key, size) in zero {
            if size.is_some_and(|s| s.0 < 4096) {
                self.problems
                    .at(place, key, "is too small: give 4 KiB or more");
            }
        }
        let medium = match (&device.path, device.ram, device.null, device.model) {
            (Some(path), ..) => Medium::File(path.clone()),
            (_, Some(size), ..) => Medium::Ram(size.0),
            (_, _, Some(size), _) => Medium::Null(size.0),
            (_, _, _, Some(preset)) => Medium::Model {
                preset,
                size: device.model_size.map(|s| s.0),
                seed: device.seed.0,
            },
            _ => {
                let text = format!("{name} is nothing: give path, ram, null or model");
                return self.problems.at(place, "", text);
            }
        };
        if matches!(&medium, Medium::File(path) if !path.is_absolute()) {
            self.problems
                .at(place, "path", "give a path that begins with /");
        }
        let cost_model = device.cost_model.clone().or(match &medium {
            Medium::Model { preset, .. } => Some(CostModel::Preset(preset.word().into())),
            _ => None,
        });
        self.add_device(PlannedDevice {
            name: name.clone(),
            medium,
            cost_model,
            place: place.clone(),
        });
    }

    fn add_device(&mut self, device: PlannedDevice) -> usize {
        if self.plan.devices.len() == DEVICES_MAX {
            let text = format!("more than {DEVICES_MAX} devices");
            self.problems.at(&device.place, "", text);
        }
        self.plan.devices.push(device);
        self.plan.devices.len() - 1
    }

    /// The device of that name or path. A path that no [[device]] has is a
    /// device without a cost model.
    fn find(&mut self, name: &DeviceRef, place: &Place) -> Option<usize> {
        let path = PathBuf::from(&name.0);
        let same = |d: &PlannedDevice| {
            d.name == name.0 || matches!(&d.medium, Medium::File(p) if *p == path)
        };
        if let Some(index) = self.plan.devices.iter().position(same) {
            return Some(index);
        }
        if path.is_absolute() {
            return Some(self.add_device(PlannedDevice {
                name: name.0.clone(),
                medium: Medium::File(path),
                cost_model: None,
                place: place.clone(),
            }));
        }
        let known: Vec<&str> = self.plan.devices.iter().map(|d| d.name.as_str()).collect();
        let text = match known.as_slice() {
            [] => format!("there is no [[device]] named {}, nor any other", name.0),
            known => format!(
                "there is no [[device]] named {}, but there is {}",
                name.0,
                known.join(", ")
            ),
        };
        self.problems.at(place, "device", text);
        None
    }

    fn subsystem(&mut self, subsystem: &Subsystem, namespaces: &[Namespace]) {
        let nqn = &subsystem.nqn.0;
        let place = &subsystem.place;
        self.check_nqn(nqn, place);
        if namespaces.is_empty() {
            let text = format!("{nqn} has no namespace: give it a [[subsystem.namespace]]");
            self.problems.at(place, "", text);
        }
        if subsystem.listen.is_empty() {
            let text = "nobody could connect to it: give an address with a port";
            self.problems.at(place, "listen", text);
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut device = None;
        for namespace in namespaces {
            let Some(index) = self.find(&namespace.device, &namespace.place) else {
                continue;
            };
            let first = *device.get_or_insert(index);
            if first != index {
                let text =
                    "all namespaces of a subsystem are on one device, since promises are about one";
                self.problems.at(&namespace.place, "device", text);
            }
            let next = parts.last().map_or(1, |p| p.nsid + 1);
            let nsid = namespace.id.map_or(next, |n| n.0 as u32);
            if parts.iter().any(|p| p.nsid == nsid) {
                let text = format!("{nsid} is there already in {nqn}");
                self.problems.at(&namespace.place, "id", text);
            }
            let uuid = namespace.uuid.map_or_else(|| made_uuid(nqn, nsid), |u| u.0);
            if let Some(other) = self
                .uuid_taken(&uuid)
                .or(parts.iter().find(|p| p.uuid == uuid))
            {
                let text = format!("the namespace at {} has it", at(&other.place));
                self.problems.at(&namespace.place, "uuid", text);
            }
            self.check_range(
                &namespace.place,
                index,
                namespace.offset.0,
                namespace.size.map(|s| s.0),
                namespace.block_size.0,
            );
            parts.push(Part {
                nsid,
                offset: namespace.offset.0,
                size: namespace.size.map(|s| s.0),
                block_size: namespace.block_size.0 as u32,
                uuid,
                read_only: namespace.read_only,
                place: namespace.place.clone(),
            });
        }
        parts.sort_by_key(|p| p.nsid);
        let serial = subsystem
            .serial
            .as_ref()
            .map_or_else(|| hex(&made_uuid(nqn, 0)), |s| s.0.clone());
        let Some(device) = device else { return };
        self.plan.exports.push(Export {
            nqn: nqn.clone(),
            serial,
            model: subsystem.model_name.0.clone(),
            listen: subsystem.listen.clone(),
            allowed_hosts: subsystem
                .allowed_hosts
                .iter()
                .map(|n| n.0.clone())
                .collect(),
            parts,
            device,
            place: place.clone(),
        });
    }

    /// The subsystem of a tenant that has a device.
    fn own_subsystem(&mut self, tenant: &Tenant) {
        let place = &tenant.place;
        let nqn = &tenant.nqn.0;
        let Some(device) = tenant.device.as_ref().and_then(|d| self.find(d, place)) else {
            return;
        };
        self.check_nqn(nqn, place);
        let size = tenant.size.map(|s| s.0);
        self.check_range(place, device, tenant.offset.0, size, tenant.block_size.0);
        let uuid = tenant.uuid.map_or_else(|| made_uuid(nqn, 1), |u| u.0);
        if let Some(other) = self.uuid_taken(&uuid) {
            let text = format!("the namespace at {} has it", at(&other.place));
            self.problems.at(place, "uuid", text);
        }
        self.plan.exports.push(Export {
            nqn: nqn.clone(),
            // As rflash-target's other servers make it.
            serial: hex(&uuid),
            model: "rflash".into(),
            listen: vec![SocketAddr::new(tenant.address, tenant.port.0 as u16)],
            allowed_hosts: tenant.allowed_hosts.iter().map(|n| n.0.clone()).collect(),
            parts: vec![Part {
                nsid: 1,
                offset: tenant.offset.0,
                size,
                block_size: tenant.block_size.0 as u32,
                uuid,
                read_only: false,
                place: place.clone(),
            }],
            device,
            place: place.clone(),
        });
    }

    fn tenant(&mut self, tenant: &Tenant) {
        let place = &tenant.place;
        if tenant.device.is_none() {
            for key in [
                "offset",
                "size",
                "block-size",
                "uuid",
                "address",
                "port",
                "allowed-hosts",
            ] {
                if place.has(key) {
                    let text = "only a tenant with device has it; otherwise it belongs to the [[subsystem]]";
                    self.problems.at(place, key, text);
                }
            }
        }
        if let Some(other) = self.plan.promises.iter().find(|p| p.name == tenant.name.0) {
            let text = format!("{} is there already, at {}", other.name, at(&other.place));
            self.problems.at(place, "name", text);
        }
        let host = tenant.host.as_ref().map(|h| h.0.clone());
        let same = |p: &&Promise| p.nqn == tenant.nqn.0 && p.host == host;
        if let Some(other) = self.plan.promises.iter().find(same) {
            let text = format!(
                "{} has a tenant for the same hosts already, {} at {}",
                other.nqn,
                other.name,
                at(&other.place)
            );
            self.problems.at(place, "nqn", text);
        }
        let class = self.class(tenant);
        self.check_cpus(tenant);
        let export = self.plan.exports.iter().find(|e| e.nqn == tenant.nqn.0);
        let Some(export) = export else {
            // A tenant whose device is wrong has been told so.
            if tenant.device.is_none() {
                let text = format!(
                    "there is no [[subsystem]] {}: add one, or give the tenant a device",
                    tenant.nqn.0
                );
                self.problems.at(place, "nqn", text);
            }
            return;
        };
        let device = export.device;
        let allowed = &export.allowed_hosts;
        if let Some(host) = host
            .as_ref()
            .filter(|h| !allowed.is_empty() && !allowed.contains(h))
        {
            let text = format!("{host} is not one of the allowed-hosts of {}", export.nqn);
            self.problems.at(place, "host", text);
        }
        self.plan.promises.push(Promise {
            name: tenant.name.0.clone(),
            nqn: tenant.nqn.0.clone(),
            host,
            class,
            open: tenant.class.is_none() && !place.has("weight"),
            cpus: Some(tenant.cpus.0.clone()).filter(|c| !c.is_empty()),
            device,
            place: place.clone(),
        });
    }

    fn class(&mut self, tenant: &Tenant) -> Class {
        let place = &tenant.place;
        match tenant.class {
            None | Some(ClassWord::BestEffort) => {
                for key in ["slo-p95", "slo-iops", "slo-read-pct", "slo-block"] {
                    if place.has(key) {
                        let text =
                            "only a latency-critical tenant has it: give class = \"lc\", too";
                        self.problems.at(place, key, text);
                    }
                }
                Class::BestEffort {
                    weight: tenant.weight.0 as u32,
                }
            }
            Some(ClassWord::LatencyCritical) => {
                if place.has("weight") {
                    let text = "a latency-critical tenant has none: leave it out";
                    self.problems.at(place, "weight", text);
                }
                for (key, given) in [
                    ("slo-p95", tenant.slo_p95.is_some()),
                    ("slo-iops", tenant.slo_iops.is_some()),
                ] {
                    if !given {
                        let text = format!("{key}: missing, a latency-critical tenant needs it");
                        self.problems.at(place, "", text);
                    }
                }
                let block = tenant.slo_block.0;
                if !(512..=1 << 20).contains(&block) || block % 512 != 0 {
                    let text =
                        format!("{block} is out of range: give a multiple of 512, up to 1 MiB");
                    self.problems.at(place, "slo-block", text);
                }
                Class::LatencyCritical {
                    p95_us: tenant.slo_p95.map_or(1, |n| n.0 as u32),
                    iops: tenant.slo_iops.map_or(1, |n| n.0 as u32),
                    read_pct: tenant.slo_read_pct.0 as u8,
                    block: block as u32,
                }
            }
        }
    }

    fn check_cpus(&mut self, tenant: &Tenant) {
        let ours = &self.plan.server.cpus;
        let strange = tenant.cpus.0.iter().find(|c| !ours.0.contains(c));
        if let Some(cpu) = strange.filter(|_| !ours.0.is_empty()) {
            let text = format!("CPU {cpu} is not one of the server's, which are {ours}");
            self.problems.at(&tenant.place, "cpus", text);
        }
    }

    fn check_nqn(&mut self, name: &str, place: &Place) {
        if name == nqn::DISCOVERY {
            let text = "that is every discovery controller's name: give another";
            self.problems.at(place, "nqn", text);
        }
        if let Some(other) = self.plan.exports.iter().find(|e| e.nqn == name) {
            let text = format!("{name} is there already, at {}", at(&other.place));
            self.problems.at(place, "nqn", text);
        }
    }

    fn uuid_taken(&self, uuid: &[u8; 16]) -> Option<&Part> {
        let parts = self.plan.exports.iter().flat_map(|e| &e.parts);
        parts.into_iter().find(|p| p.uuid == *uuid)
    }

    fn check_range(
        &mut self,
        place: &Place,
        device: usize,
        offset: u64,
        size: Option<u64>,
        block: u64,
    ) {
        if !BLOCK_SIZES.contains(&block) {
            let text = format!("{block} is no size of a block: give 512, 1024, 2048 or 4096");
            self.problems.at(place, "block-size", text);
        }
        // O_DIRECT, and hosts that read ahead across the partition's start.
        for (key, value) in [("offset", Some(offset)), ("size", size)] {
            if value.is_some_and(|v| v % 4096 != 0) {
                self.problems.at(place, key, "give a multiple of 4 KiB");
            }
        }
        if size == Some(0) {
            self.problems.at(place, "size", "is 0: give at least 4 KiB");
        }
        let whole = self.plan.devices.get(device).and_then(|d| d.medium.size());
        let Some(whole) = whole else { return };
        let end = offset.checked_add(size.unwrap_or(4096));
        if end.is_none_or(|end| end > whole) {
            let key = if place.has("size") { "size" } else { "offset" };
            let text = format!(
                "ends beyond the device, which has {}",
                super::value::Bytes(whole)
            );
            self.problems.at(place, key, text);
        }
    }

    /// No block belongs to two namespaces, unless both only read it.
    fn overlaps(&mut self) {
        let mut of_device: BTreeMap<usize, Vec<&Part>> = BTreeMap::new();
        for export in &self.plan.exports {
            of_device
                .entry(export.device)
                .or_default()
                .extend(&export.parts);
        }
        let mut found = Vec::new();
        for parts in of_device.values_mut() {
            parts.sort_by_key(|p| p.offset);
            let mut reach: Option<(u64, &Part)> = None;
            for part in parts.iter() {
                let end = part
                    .size
                    .map_or(u64::MAX, |s| part.offset.saturating_add(s));
                if let Some((_, other)) =
                    reach.filter(|(end, o)| part.offset < *end && !(part.read_only && o.read_only))
                {
                    found.push(((*part).clone(), at(&other.place)));
                }
                if reach.is_none_or(|(far, _)| end > far) {
                    reach = Some((end, part));
                }
            }
        }
        for (part, other) in found {
            let key = if part.place.has("offset") {
                "offset"
            } else {
                "device"
            };
            let text = format!(
                "these blocks are those of the namespace at {other}, too: give other offsets and sizes"
            );
            self.problems.at(&part.place, key, text);
        }
    }

    /// The discovery controller and a subsystem may share an address; an
    /// unspecified address and a specified one may not share a port.
    fn listeners(&mut self, config: &Config) {
        let mut all: Vec<(SocketAddr, Place, &str)> = Vec::new();
        for address in &config.discovery.listen {
            all.push((*address, config.discovery.place.clone(), "listen"));
        }
        for export in &self.plan.exports {
            let key = if export.place.has("port") {
                "port"
            } else {
                "listen"
            };
            for address in &export.listen {
                all.push((*address, export.place.clone(), key));
            }
        }
        for (i, (address, place, key)) in all.iter().enumerate() {
            let clash = all.iter().take(i).find(|(other, _, _)| {
                other.port() == address.port()
                    && other.ip() != address.ip()
                    && (other.ip().is_unspecified() || address.ip().is_unspecified())
                    && other.is_ipv4() == address.is_ipv4()
            });
            if let Some((other, _, _)) = clash {
                let text = format!(
                    "{address} and {other} can't be listened at together: give one of them for both"
                );
                self.problems.at(place, key, text);
            }
        }
    }
}

fn at(place: &Place) -> String {
    format!("{}:{}", place.file().display(), place.line)
}

/// A UUID that is always the same for a namespace: FNV-1a of its name, as
/// version 8 (RFC 9562, 5.8).
fn made_uuid(nqn: &str, nsid: u32) -> [u8; 16] {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let nsid = nsid.to_be_bytes();
    let hash = nqn
        .bytes()
        .chain(nsid)
        .fold(BASIS, |h, b| (h ^ u128::from(b)).wrapping_mul(PRIME));
    let marked = (hash & !(0xf << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62);
    marked.to_be_bytes()
}

/// 20 characters of a serial number.
fn hex(uuid: &[u8; 16]) -> String {
    let text = nqn::format_uuid(uuid).replace('-', "");
    text.chars().take(20).collect()
}
