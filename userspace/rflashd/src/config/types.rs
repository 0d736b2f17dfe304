// SPDX-License-Identifier: GPL-2.0-only
//! What can be configured. The text of each key here is what users read in the
//! manual page and in the reference.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::section::section;
use super::value::{
    Bytes, ClassWord, CostModel, CpuSet, DeviceRef, Label, LogFormat, LogLevel, Name, Nqn, Number,
    Preset, Seconds, Uuid,
};

section! {
    /// The server itself. May be left out.
    pub struct Server = "server" {
        /// The CPUs to use: one thread runs on each of them and polls while there is work.
        /// Empty: all that the process may run on.
        pub cpus: CpuSet = "cpus", CpuSet::default(), optional, Restart;
        /// Threads, when it should be fewer than CPUs: those CPUs that come first get one.
        pub threads: Option<Number<1, 1024>> = "threads", None, optional, Restart;
        /// Memory for data in flight, of each thread. It is locked when files or block devices are served.
        pub buffers: Bytes = "buffers", Bytes(64 << 20), optional, Restart;
        /// How long a thread that has nothing to do polls before it sleeps, in microseconds.
        /// 0: it sleeps at once.
        pub spin_us: Number<0, 1_000_000> = "spin-us", Number(50), optional, Restart;
        /// The socket that `rflash tenant` talks to. Whoever may write to it may change promises.
        pub admin_socket: PathBuf = "admin-socket", PathBuf::from("/run/rflash/rflashd.sock"), optional, Restart;
        /// Where Prometheus may ask for metrics, by HTTP and without a password. Unset: nowhere.
        pub metrics: Option<SocketAddr> = "metrics", None, optional, Restart;
        /// How much is logged.
        pub log_level: LogLevel = "log-level", LogLevel::Info, optional, Reload;
        /// text: a sentence and key=value for people and the journal; json: one object a line.
        pub log_format: LogFormat = "log-format", LogFormat::Text, optional, Restart;
        /// A directory whose *.toml files are read, too, in the order of their names: devices, subsystems and tenants.
        /// It may be missing. Not absolute: beside this file.
        pub include: PathBuf = "include", PathBuf::from("rflashd.d"), optional, Reload;
    }
}

section! {
    /// Bounds, so that nobody can use up the server. May be left out.
    pub struct Limits = "limits" {
        /// Connections at one time; more are closed as they come.
        pub connections: Number<1, 1_000_000> = "connections", Number(16384), optional, Restart;
        /// Tenants of one device.
        pub tenants: Number<1, 65536> = "tenants", Number(4096), optional, Restart;
    }
}

section! {
    /// How long a peer may take. May be left out.
    pub struct Timeouts = "timeouts" {
        /// From the connection to its handshake (ICReq), and from there to Connect.
        pub handshake: Seconds = "handshake", Seconds(10), optional, Restart;
        /// Without progress while there is something to be sent to it.
        pub stuck: Seconds = "stuck", Seconds(30), optional, Restart;
        /// For requests in flight when the server stops.
        pub drain: Seconds = "drain", Seconds(5), optional, Restart;
    }
}

section! {
    /// The discovery controller, which tells hosts what there is. May be left out.
    pub struct Discovery = "discovery" {
        /// Where it listens. An empty list: there is none.
        pub listen: Vec<SocketAddr> = "listen", vec![SocketAddr::from(([0, 0, 0, 0], 8009))], optional, Reload;
    }
}

section! {
    /// Something that keeps blocks. Exactly one of path, ram, null and model says what.
    pub struct Device = "device" {
        /// What subsystems and tenants call it.
        pub name: Name = "name", Name::default(), required, Restart;
        /// A block device, a file, or the character device of an NVMe namespace (/dev/ng0n1).
        pub path: Option<PathBuf> = "path", None, optional, Restart;
        /// RAM of this size; it forgets everything when the server stops.
        pub ram: Option<Bytes> = "ram", None, optional, Restart;
        /// Nothing of this size: reads give zeroes, writes are forgotten. For measurements.
        pub null: Option<Bytes> = "null", None, optional, Restart;
        /// A modelled flash device that takes the time a real one would; for tests.
        pub model: Option<Preset> = "model", None, optional, Restart;
        /// Size of the modelled device; as published when unset. Its data is kept in RAM.
        pub model_size: Option<Bytes> = "model-size", None, optional, Restart;
        /// Seed of the model's chance.
        pub seed: Number<0, 4_294_967_295> = "seed", Number(1), optional, Restart;
        /// What requests cost and how much the device bears: what promises rest on.
        /// Unset: that of the same name for a model, and else none: then nobody can be latency-critical,
        /// and best-effort tenants are not held back.
        pub cost_model: Option<CostModel> = "cost-model", None, optional, Restart;
    }
}

section! {
    /// What hosts connect to: one or more namespaces under a name. A tenant with a device of its own needs none.
    pub struct Subsystem = "subsystem" {
        /// Its name.
        pub nqn: Nqn = "nqn", Nqn::default(), required, Reload;
        /// Where it listens; the discovery log says so, too.
        pub listen: Vec<SocketAddr> = "listen", vec![SocketAddr::from(([0, 0, 0, 0], 4420))], optional, Reload;
        /// NQNs of the hosts that may connect. Empty: any.
        pub allowed_hosts: Vec<Nqn> = "allowed-hosts", Vec::new(), optional, Reload;
        /// Serial number. Hosts refuse a subsystem whose serial number changes. Unset: made of its name.
        pub serial: Option<Label<20>> = "serial", None, optional, Restart;
        /// Model name that hosts show.
        pub model_name: Label<40> = "model-name", Label("rflash".into()), optional, Restart;
    }
}

section! {
    /// A namespace of the subsystem above it.
    pub struct Namespace = "subsystem.namespace" {
        /// Namespace id. Unset: one more than the one above.
        pub id: Option<Number<1, 1024>> = "id", None, optional, Reload;
        /// Where its blocks are.
        pub device: DeviceRef = "device", DeviceRef::default(), required, Reload;
        /// Where on the device it begins.
        pub offset: Bytes = "offset", Bytes(0), optional, Reload;
        /// How large it is. Unset: to the end of the device.
        pub size: Option<Bytes> = "size", None, optional, Reload;
        /// Bytes of a block: 512, 1024, 2048 or 4096.
        pub block_size: Number<512, 4096> = "block-size", Number(4096), optional, Reload;
        /// By which hosts know it again. Unset: made of the subsystem's name and the id.
        pub uuid: Option<Uuid> = "uuid", None, optional, Reload;
        /// Writes are refused.
        pub read_only: bool = "read-only", false, optional, Reload;
    }
}

section! {
    /// Who a promise is made to.
    /// With `device` it has a subsystem of its own, with one namespace; `rflash-target` writes such tables.
    /// Without, `nqn` is that of a [[subsystem]], and with `host` only that host is meant.
    pub struct Tenant = "tenant" {
        /// What it is called.
        pub name: Name = "name", Name::default(), required, Reload;
        /// The subsystem that it connects to.
        pub nqn: Nqn = "nqn", Nqn::default(), required, Reload;
        /// Its host. Unset: whoever connects.
        pub host: Option<Nqn> = "host", None, optional, Reload;
        /// lc: latency-critical, with the slo keys; be: best-effort, with a weight.
        /// Unset: best-effort, and its hosts may ask for something else (`rflash connect --class`).
        pub class: Option<ClassWord> = "class", None, optional, Reload;
        /// Its share among best-effort tenants.
        pub weight: Number<1, 10_000> = "weight", Number(100), optional, Reload;
        /// Latency of reads that 95 % do not exceed, in microseconds.
        pub slo_p95: Option<Number<1, 10_000_000>> = "slo-p95", None, optional, Reload;
        /// Requests per second.
        pub slo_iops: Option<Number<1, 100_000_000>> = "slo-iops", None, optional, Reload;
        /// Reads among them, in percent.
        pub slo_read_pct: Number<0, 100> = "slo-read-pct", Number(100), optional, Reload;
        /// Bytes of a request.
        pub slo_block: Bytes = "slo-block", Bytes(4096), optional, Reload;
        /// The CPUs that serve it. Empty: those at which its packets arrive.
        pub cpus: CpuSet = "cpus", CpuSet::default(), optional, Reload;
        /// Where the blocks of its own namespace are.
        pub device: Option<DeviceRef> = "device", None, optional, Reload;
        /// Where on the device it begins.
        pub offset: Bytes = "offset", Bytes(0), optional, Reload;
        /// How large it is. Unset: to the end of the device.
        pub size: Option<Bytes> = "size", None, optional, Reload;
        /// Bytes of a block: 512, 1024, 2048 or 4096.
        pub block_size: Number<512, 4096> = "block-size", Number(4096), optional, Reload;
        /// By which hosts know the namespace again. Unset: made of the subsystem's name.
        pub uuid: Option<Uuid> = "uuid", None, optional, Reload;
        /// Where its subsystem listens.
        pub address: IpAddr = "address", IpAddr::from([0, 0, 0, 0]), optional, Reload;
        /// The port there.
        pub port: Number<1, 65535> = "port", Number(4420), optional, Reload;
        /// NQNs of the hosts that may connect to its subsystem. Empty: any.
        pub allowed_hosts: Vec<Nqn> = "allowed-hosts", Vec::new(), optional, Reload;
    }
}
