// SPDX-License-Identifier: GPL-2.0-only
//! From a plan to what is open: devices, their cost models, what is exported.

use std::fmt;
use std::path::Path;

use qos::DeviceModel;

use super::tenants::{Device, Tenants};
use crate::backend::{FileDisk, ModelDisk, Volume};
use crate::config::value::{Bytes, CostModel, Preset};
use crate::config::{Export, Medium, Part, Place, Plan, PlannedDevice};
use crate::subsystem::{NamespaceSpec, SubsystemSpec, TenantId, TenantSpec};

/// What could not be opened, where it stands in the configuration, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError(pub String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

fn failed(place: &Place, key: &str, why: impl fmt::Display) -> OpenError {
    let (file, line) = (place.file().display(), place.line_of(key));
    match (line, key) {
        (0, _) => OpenError(why.to_string()),
        (_, "") => OpenError(format!("{file}:{line}: {why}")),
        _ => OpenError(format!("{file}:{line}: {key}: {why}")),
    }
}

/// The devices of a plan and their cost models; the models are read, nothing is
/// opened.
pub fn models(plan: &Plan) -> Result<Vec<Device>, OpenError> {
    let models = plan.devices.iter().map(|device| {
        let model = device.cost_model.as_ref();
        let model = model.map(|m| read_model(m, &device.place)).transpose()?;
        Ok(Device {
            name: device.name.clone(),
            model,
        })
    });
    models.collect()
}

fn read_model(from: &CostModel, place: &Place) -> Result<DeviceModel, OpenError> {
    const KEY: &str = "cost-model";
    match from {
        CostModel::Preset(name) => DeviceModel::preset(name)
            .ok_or_else(|| failed(place, KEY, format!("there is no built-in model {name}"))),
        CostModel::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| failed(place, KEY, format!("{}: {e}", path.display())))?;
            let model = DeviceModel::from_toml(&text)
                .map_err(|e| failed(place, KEY, format!("{}: {e}", path.display())))?;
            model
                .check()
                .map_err(|e| failed(place, KEY, format!("{}: {e}", path.display())))?;
            Ok(model)
        }
    }
}

/// Open one device.
pub fn volume(device: &PlannedDevice, index: usize) -> Result<Volume, OpenError> {
    let place = &device.place;
    let volume = match &device.medium {
        Medium::Ram(bytes) => Volume::ram(*bytes)
            .map_err(|e| failed(place, "ram", format!("{} of RAM: {e}", Bytes(*bytes))))?,
        Medium::Null(bytes) => Volume::null(*bytes),
        Medium::Model { preset, size, seed } => {
            model_disk(*preset, *size, *seed).map_err(|why| failed(place, "model", why))?
        }
        Medium::File(path) => {
            let key = if place.has("path") { "path" } else { "device" };
            file(path).map_err(|why| failed(place, key, why))?
        }
    };
    Ok(volume.on_device(u16::try_from(index).unwrap_or(u16::MAX)))
}

fn file(path: &Path) -> Result<Volume, String> {
    let disk = FileDisk::open(path, false).map_err(|e| e.to_string())?;
    Ok(Volume::file(disk))
}

fn model_disk(preset: Preset, size: Option<u64>, seed: u64) -> Result<Volume, String> {
    let disk = ModelDisk::preset(preset.word(), size, seed).map_err(|e| e.to_string())?;
    Ok(Volume::model(disk))
}

/// What is exported, on these open devices and for these tenants.
pub fn specs(plan: &Plan, open: &Open, tenants: &Tenants) -> Result<Vec<SubsystemSpec>, OpenError> {
    let specs = plan.exports.iter().map(|export| {
        let volume = open.volume(export.device);
        let volume =
            volume.ok_or_else(|| failed(&export.place, "device", "there is no such device"))?;
        let namespaces = export.parts.iter().map(|part| namespace(part, volume));
        Ok(SubsystemSpec {
            nqn: export.nqn.clone(),
            serial: export.serial.clone(),
            model: export.model.clone(),
            namespaces: namespaces.collect::<Result<_, OpenError>>()?,
            allowed_hosts: export.allowed_hosts.clone(),
            listeners: export.listen.clone(),
            tenant: only_tenant(export, tenants),
        })
    });
    specs.collect()
}

fn namespace(part: &Part, volume: &Volume) -> Result<NamespaceSpec, OpenError> {
    let whole = volume.bytes();
    let left = whole.saturating_sub(part.offset);
    let size = part.size.unwrap_or(left);
    let blocks = size / u64::from(part.block_size);
    let fits = volume.partition(part.offset, blocks * u64::from(part.block_size));
    let Some(backend) = fits.filter(|_| blocks > 0) else {
        let key = if part.place.has("size") {
            "size"
        } else {
            "offset"
        };
        let why = format!("ends beyond the device, which has {}", Bytes(whole));
        return Err(failed(&part.place, key, why));
    };
    Ok(NamespaceSpec {
        nsid: part.nsid,
        uuid: part.uuid,
        block_size: part.block_size,
        blocks,
        backend,
        read_only: part.read_only,
    })
}

/// The tenant that all hosts of a subsystem are, if it has CPUs of its own; the
/// tenants are asked for every host otherwise.
fn only_tenant(export: &Export, tenants: &Tenants) -> Option<TenantSpec> {
    let all = tenants.list();
    let mut of_it = all.iter().filter(|e| e.nqn == export.nqn);
    match (of_it.next(), of_it.next()) {
        (Some(entry), None) if entry.host.is_none() && entry.cpus.is_some() => Some(TenantSpec {
            id: TenantId(entry.id),
            cpus: entry.cpus.clone(),
        }),
        _ => None,
    }
}

/// Devices of the running server, by their index. One that is not in the
/// configuration any more has no volume.
#[derive(Default)]
pub struct Open(Vec<(PlannedDevice, Option<Volume>)>);

impl Open {
    /// Give the devices of a plan the indices that they have here already, new
    /// ones those behind. Nothing is opened.
    pub fn align(&self, plan: &mut Plan) -> Result<(), OpenError> {
        let mut devices: Vec<PlannedDevice> = self.0.iter().map(|(d, _)| d.clone()).collect();
        let mut map = Vec::new();
        for device in &plan.devices {
            let known = self.0.iter().position(|(d, _)| d.name == device.name);
            map.push(match known {
                Some(index) => {
                    self.same(index, device)?;
                    index
                }
                None => {
                    devices.push(device.clone());
                    devices.len() - 1
                }
            });
        }
        let at = |index: usize| map.get(index).copied().unwrap_or(index);
        for export in &mut plan.exports {
            export.device = at(export.device);
        }
        for promise in &mut plan.promises {
            promise.device = at(promise.device);
        }
        plan.devices = devices;
        Ok(())
    }

    /// A device can't become another while it is in use.
    fn same(&self, index: usize, device: &PlannedDevice) -> Result<(), OpenError> {
        let Some((old, _)) = self.0.get(index) else {
            return Ok(());
        };
        if old.medium != device.medium {
            let why = "the device can't become another while the server runs: restart it, or use another name";
            return Err(failed(&device.place, "name", why));
        }
        if old.cost_model != device.cost_model {
            let name = device.name.as_str();
            log::warn!(device = name; "its new cost model takes hold at the next start");
        }
        Ok(())
    }

    /// Open what an aligned plan has more, whole or not at all; close nothing.
    pub fn open(&mut self, plan: &Plan) -> Result<(), OpenError> {
        let used = |index: usize| plan.exports.iter().any(|e| e.device == index);
        let mut opened = Vec::new();
        for (index, device) in plan.devices.iter().enumerate() {
            let there = self.0.get(index).is_some_and(|(_, v)| v.is_some());
            if used(index) && !there {
                let volume = volume(device, index)?;
                let bytes = volume.bytes();
                log::info!(device = device.name.as_str(), bytes = bytes; "device opened");
                opened.push((index, volume));
            }
        }
        for device in plan.devices.iter().skip(self.0.len()) {
            self.0.push((device.clone(), None));
        }
        for (index, volume) in opened {
            if let Some((_, slot)) = self.0.get_mut(index) {
                *slot = Some(volume);
            }
        }
        Ok(())
    }

    /// Close what the plan has no use for.
    pub fn close(&mut self, plan: &Plan) {
        for (index, (device, volume)) in self.0.iter_mut().enumerate() {
            let used = plan.exports.iter().any(|e| e.device == index);
            if !used && volume.take().is_some() {
                log::info!(device = device.name.as_str(); "device closed");
            }
        }
    }

    /// Devices, with those that are not open.
    pub fn known(&self) -> usize {
        self.0.len()
    }

    fn volume(&self, index: usize) -> Option<&Volume> {
        self.0.get(index)?.1.as_ref()
    }

    /// Name and bytes of each device that is open.
    pub fn list(&self) -> Vec<(String, u64)> {
        let all = self.0.iter();
        all.filter_map(|(d, v)| Some((d.name.clone(), v.as_ref()?.bytes())))
            .collect()
    }
}
