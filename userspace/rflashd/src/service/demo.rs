// SPDX-License-Identifier: GPL-2.0-only
//! `rflashd --demo`: a device in RAM and three tenants, without a file.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::value::{Bytes, ClassWord, CostModel, DeviceRef, Name, Nqn, Number, Preset};
use crate::config::{Config, Device, Tenant};

/// Of all NQNs here.
pub const NQN: &str = "nqn.2026-11.org.rflash:demo";

/// What the demo's device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As fast as RAM is.
    Ram,
    /// As fast as a flash device would be.
    Model(Preset),
}

/// What can be said of a demo.
#[derive(Clone, Debug)]
pub struct Demo {
    pub kind: Kind,
    pub size: Bytes,
    /// Where all three subsystems and the discovery controller listen.
    pub listen: SocketAddr,
    pub discovery: SocketAddr,
    pub admin_socket: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    pub threads: Option<u32>,
}

impl Demo {
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        config.server.threads = self.threads.map(|n| Number(n.into()));
        config.server.metrics = self.metrics;
        config.server.admin_socket = self.admin_socket.clone().unwrap_or_default();
        config.discovery.listen = vec![self.discovery];
        let mut device = Device {
            name: Name("demo".into()),
            ..Device::default()
        };
        match self.kind {
            Kind::Ram => {
                device.ram = Some(self.size);
                device.cost_model = Some(CostModel::Preset("million".into()));
            }
            Kind::Model(preset) => {
                device.model = Some(preset);
                device.model_size = Some(self.size);
            }
        }
        config.devices.push(device);
        // A third each, in whole MiB.
        let part = (self.size.0 / 3) & !0xf_ffff;
        let names = ["gold", "silver", "bronze"];
        for (name, offset) in names.into_iter().zip((0..).step_by(part.max(1) as usize)) {
            config.tenants.push(self.tenant(name, offset, part));
        }
        config
    }

    fn tenant(&self, name: &str, offset: u64, size: u64) -> Tenant {
        let mut tenant = Tenant {
            name: Name(name.into()),
            nqn: Nqn(format!("{NQN}:{name}")),
            device: Some(DeviceRef("demo".into())),
            offset: Bytes(offset),
            size: Some(Bytes(size)),
            address: self.listen.ip(),
            port: Number(self.listen.port().into()),
            ..Tenant::default()
        };
        match name {
            "gold" => {
                tenant.class = Some(ClassWord::LatencyCritical);
                tenant.slo_p95 = Some(Number(500));
                tenant.slo_iops = Some(Number(20_000));
                tenant.slo_read_pct = Number(100);
            }
            "silver" => {
                tenant.class = Some(ClassWord::LatencyCritical);
                tenant.slo_p95 = Some(Number(1000));
                tenant.slo_iops = Some(Number(10_000));
                tenant.slo_read_pct = Number(80);
            }
            // Best-effort, and its host may ask for more.
            _ => {}
        }
        tenant
    }

    /// How to use it.
    pub fn instructions(&self) -> String {
        let (ip, port) = (self.listen.ip(), self.listen.port());
        let address = match ip.is_unspecified() {
            true => "127.0.0.1".to_string(),
            false => ip.to_string(),
        };
        let socket = match &self.admin_socket {
            Some(path) if path.as_os_str() != "/run/rflash/rflashd.sock" => {
                format!(" --socket {}", path.display())
            }
            _ => String::new(),
        };
        let mut out = format!(
            "\
A device of {} in RAM and three tenants, each with a third of it:
  gold    latency-critical: p95 500 us at 20000 IOPS, all reads
  silver  latency-critical: p95 1000 us at 10000 IOPS, 80 % reads
  bronze  best-effort, until its host asks for more

Connect with any NVMe/TCP host:
  rflash discover -a {address} -s {}
  rflash connect -a {address} -s {port} -n {NQN}:gold
  nvme connect -t tcp -a {address} -s {port} -n {NQN}:silver
  rflash load -a {address} -s {port} -n {NQN}:bronze --bs 4k --rw randread --qd 32
",
            self.size,
            self.discovery.port()
        );
        if self.admin_socket.is_some() {
            out.push_str(&format!(
                "Watch who gets what:\n  rflash tenant list{socket}\n"
            ));
        }
        out.push_str("Ctrl-C ends it, and its data.\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Plan;
    use crate::service::server::check;

    #[test]
    fn a_demo_is_a_right_configuration() {
        for kind in [
            Kind::Ram,
            Kind::Model(Preset::P3600),
            Kind::Model(Preset::Million),
        ] {
            let demo = Demo {
                kind,
                size: Bytes(1 << 30),
                listen: "127.0.0.1:4420".parse().unwrap(),
                discovery: "127.0.0.1:8009".parse().unwrap(),
                admin_socket: Some("/tmp/x".into()),
                metrics: None,
                threads: Some(1),
            };
            let plan = Plan::of(&demo.config()).unwrap();
            assert_eq!(plan.exports.len(), 3);
            check(&plan).unwrap();
            assert!(
                demo.instructions()
                    .contains("rflash tenant list --socket /tmp/x")
            );
        }
    }
}
