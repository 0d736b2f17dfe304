// SPDX-License-Identifier: GPL-2.0-only
//! A RAM disk on one core, without configuration.
//!
//! `ram_server ADDRESS [BYTES [CPU [TENANTS]]]`: subsystem
//! `nqn.2024-01.org.rflash:ram`, namespace 1, blocks of 512 bytes. With TENANTS
//! the scheduler is on and has as many. It ends when its standard input does.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;

use qos::{Class, Control, DeviceModel};
use rflashd::backend::Volume;
use rflashd::dataplane::{Dataplane, Settings};
use rflashd::metrics::Registry;
use rflashd::subsystem::{NamespaceSpec, OneTenant, SubsystemSpec, Target};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let address: SocketAddr = args
        .next()
        .ok_or("the first argument is the address")?
        .parse()?;
    let bytes: u64 = args.next().map_or(Ok(1 << 30), |a| a.parse())?;
    let cpus = args.next().map(|a| a.parse()).transpose()?;
    let tenants: usize = args.next().map_or(Ok(0), |a| a.parse())?;
    let spec = SubsystemSpec {
        nqn: "nqn.2024-01.org.rflash:ram".into(),
        serial: "RAM".into(),
        model: "rflash".into(),
        namespaces: vec![NamespaceSpec {
            nsid: 1,
            uuid: [7; 16],
            block_size: 512,
            blocks: bytes / 512,
            backend: Volume::ram(bytes)?,
            read_only: false,
        }],
        allowed_hosts: Vec::new(),
        listeners: vec![address],
        tenant: None,
    };
    let target = Target::new(vec![spec], Vec::new(), Arc::new(OneTenant))?;
    let registry = Registry::new(1, 1, tenants.max(1));
    let settings = Settings {
        cpus: Vec::from_iter(cpus),
        ..Settings::default()
    };
    let mut devices = Vec::new();
    if tenants > 0 {
        let model = DeviceModel::preset("million").ok_or("no model of that name")?;
        let mut control = Control::new(model, tenants)?;
        for i in 0..tenants {
            control.add(&format!("tenant{i}"), Class::BestEffort { weight: 1 })?;
        }
        devices.push(control.shared());
    }
    let plane = Dataplane::start(settings, target, &devices, &registry)?;
    println!("{}", plane.listen(address)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    if let Some(core) = registry.core(0) {
        let stats = &core.core;
        println!(
            "commands {} receives {} sends {} busy {} ms, polling {} ms, asleep {} ms",
            stats.commands.get(),
            stats.receives.get(),
            stats.sends.get(),
            stats.busy_ns.get() / 1_000_000,
            stats.poll_ns.get() / 1_000_000,
            stats.sleep_ns.get() / 1_000_000,
        );
    }
    plane.stop(true);
    Ok(())
}
