// SPDX-License-Identifier: GPL-2.0-only
//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};

use crate::config;
use crate::config::value::{Bytes, Preset};
use crate::service::demo::{Demo, Kind};
use crate::service::server::Source;

/// A flash server that keeps promises
///
/// Exports partitions of flash devices to tenants over NVMe/TCP: the kernel's
/// nvme-tcp with nvme-cli, SPDK and rflash connect to it, discover subsystems
/// on it, and use them as block devices. Latency-critical tenants get the
/// latency and rate that they were promised; best-effort tenants share what is
/// left by weight.
///
/// SIGHUP makes it read its configuration again, without dropping connections;
/// SIGTERM and SIGINT let requests in flight finish and end it.
#[derive(Debug, Parser)]
#[command(
    name = "rflashd",
    version,
    max_term_width = 100,
    after_long_help = "\
Exit status: 0 done, 1 failed (standard error says why), 2 wrong usage.

Examples:
  rflashd --demo
  rflashd --check --config /etc/rflash/rflashd.toml
  systemctl enable --now rflashd"
)]
pub struct Cli {
    /// The configuration; see rflashd.toml(5)
    #[arg(short = 'c', long, value_name = "FILE", default_value = config::FILE)]
    pub config: PathBuf,

    /// Check the configuration as a whole, open nothing, and end
    #[arg(long, conflicts_with_all = ["demo", "print_config", "reload"])]
    pub check: bool,

    /// Print the configuration with every key and its value, and end
    #[arg(long, conflicts_with = "reload")]
    pub print_config: bool,

    /// Make the running server read its configuration again, and say what came of it
    ///
    /// Unlike SIGHUP it returns when that is done, with exit status 1 and the
    /// reason if nothing was changed.
    #[arg(long, conflicts_with = "demo")]
    pub reload: bool,

    /// Serve a device in RAM to three tenants, without a configuration
    ///
    /// Prints how to connect to them.
    #[arg(long, conflicts_with = "config")]
    pub demo: bool,

    #[command(flatten)]
    pub demo_args: DemoArgs,
}

/// What the demo's device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoDevice {
    /// As fast as RAM is
    Ram,
    /// As fast as an Intel P3600 was
    P3600,
    /// As fast as a device of a million IOPS
    Million,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of --demo")]
pub struct DemoArgs {
    /// What the device is
    #[arg(long, value_name = "KIND", default_value = "ram", requires = "demo")]
    pub device: DemoDevice,

    /// Size of the device
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", requires = "demo", value_parser = size)]
    pub size: Bytes,

    /// Where the subsystems listen; port 0 is any that is free
    #[arg(
        long,
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:4420",
        requires = "demo"
    )]
    pub listen: SocketAddr,

    /// Where the discovery controller listens; port 0 is any that is free
    #[arg(
        long,
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:8009",
        requires = "demo"
    )]
    pub discovery: SocketAddr,

    /// The socket for `rflash tenant`; "" is none
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/rflash/rflashd.sock",
        requires = "demo"
    )]
    pub admin_socket: OsString,

    /// Where Prometheus may ask for metrics
    #[arg(long, value_name = "ADDR:PORT", requires = "demo")]
    pub metrics: Option<SocketAddr>,

    /// Threads [default: one for each CPU]
    #[arg(long, value_name = "N", requires = "demo", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}

fn size(text: &str) -> Result<Bytes, String> {
    match Bytes::parse(text) {
        Some(bytes) if bytes.0 >= 16 << 20 => Ok(bytes),
        Some(_) => Err("give at least 16 MiB".into()),
        None => Err("give a size such as \"512 MiB\"".into()),
    }
}

/// A port that is free now; somebody else may take it before we do.
fn free(address: SocketAddr) -> Result<SocketAddr, String> {
    if address.port() != 0 {
        return Ok(address);
    }
    let socket = std::net::TcpListener::bind(address);
    socket
        .and_then(|s| s.local_addr())
        .map_err(|e| format!("can't listen at {address}: {e}"))
}

impl Cli {
    /// Where the configuration comes from.
    pub fn source(&self) -> Result<Source, String> {
        if !self.demo {
            return Ok(Source::File(self.config.clone()));
        }
        let args = &self.demo_args;
        let socket = args.admin_socket.clone();
        Ok(Source::Demo(Demo {
            kind: match args.device {
                DemoDevice::Ram => Kind::Ram,
                DemoDevice::P3600 => Kind::Model(Preset::P3600),
                DemoDevice::Million => Kind::Model(Preset::Million),
            },
            size: args.size,
            listen: free(args.listen)?,
            discovery: free(args.discovery)?,
            admin_socket: Some(socket).filter(|s| !s.is_empty()).map(PathBuf::from),
            metrics: args.metrics,
            threads: args.threads,
        }))
    }
}
