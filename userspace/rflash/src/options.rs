// SPDX-License-Identifier: GPL-2.0-only
//! What to connect to and how, as the command line and the configuration
//! files give it, and the checks that both share.

use std::time::Duration;

use crate::address;
use crate::control::{Address, ConnectRequest};
use crate::error::Error;
use crate::identity::{self, Keep};
use crate::promise::TenantOptions;
use crate::system::System;
use crate::uapi;

/// How long a host name may take to be looked up.
const RESOLVE: Duration = Duration::from_secs(uapi::KATO_DEFAULT as u64);

#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConnectOptions {
    /// Transport: tcp
    #[arg(short = 't', long, value_name = "NAME", default_value = "tcp")]
    pub transport: String,

    /// Address of the target: IPv4 or IPv6 literal, or host name
    ///
    /// IPv6 literals may be in brackets; link-local ones need their interface,
    /// as in fe80::1%eth0. All addresses of a host name are tried in turn.
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: String,

    /// Port of the target, 1 to 65535
    #[arg(short = 's', long, value_name = "PORT", default_value = uapi::TCP_PORT)]
    pub trsvcid: String,

    /// NQN of the subsystem to connect to
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,

    /// Local address to connect from
    #[arg(short = 'w', long, value_name = "ADDR")]
    pub host_traddr: Option<String>,

    /// NQN of this host [default: /etc/nvme/hostnqn, else /etc/rflash/hostnqn]
    ///
    /// If neither file is there, /etc/rflash/hostnqn is made, once, from the
    /// machine's DMI UUID or, failing that, at random.
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,

    /// Id of this host, a UUID [default: /etc/nvme/hostid, else /etc/rflash/hostid]
    ///
    /// If the host NQN has a UUID and no file says otherwise, it is the id.
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,

    /// Number of I/O queues, 1 to the number of online CPUs [default: one per CPU]
    ///
    /// Each queue is a connection of its own. The target may grant fewer.
    #[arg(short = 'i', long, value_name = "N", allow_negative_numbers = true)]
    pub nr_io_queues: Option<i64>,

    /// Entries per I/O queue, 16 to 1024 [default: 128]
    ///
    /// The target may grant fewer.
    #[arg(short = 'Q', long, value_name = "N", allow_negative_numbers = true)]
    pub queue_size: Option<i64>,

    /// Keep-alive timeout in seconds, 0 to 3600 [default: 5]
    ///
    /// A target that is silent for so long is given up and connected to again.
    /// It also bounds the connect itself. 0 turns keep-alive off.
    #[arg(
        short = 'k',
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true
    )]
    pub keep_alive_tmo: Option<i64>,

    /// Seconds between two attempts to connect again, 1 to 3600 [default: 10]
    #[arg(
        short = 'c',
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true
    )]
    pub reconnect_delay: Option<i64>,

    /// Seconds without a connection after which the devices are removed [default: 600]
    ///
    /// 0 removes them at the first fault, -1 never gives up.
    #[arg(
        short = 'l',
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true
    )]
    pub ctrl_loss_tmo: Option<i64>,

    /// Seconds without a connection after which I/O fails [default: -1]
    ///
    /// Until then I/O waits. -1 lets it wait as long as the device is there.
    /// Must not exceed --ctrl-loss-tmo.
    #[arg(
        short = 'F',
        long,
        alias = "fast_io_fail_tmo",
        value_name = "SECONDS",
        allow_negative_numbers = true
    )]
    pub fast_io_fail_tmo: Option<i64>,

    /// Guard headers with a CRC32C digest
    #[arg(short = 'g', long)]
    pub hdr_digest: bool,

    /// Guard data with a CRC32C digest
    #[arg(short = 'G', long)]
    pub data_digest: bool,

    #[command(flatten)]
    pub tenant: TenantOptions,
}

/// One option that is wrong. The command line calls it by its letter, if it has
/// one, a file by its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: &'static str,
    pub text: String,
}

pub fn problem(key: &'static str, text: impl Into<String>) -> Problem {
    Problem {
        key,
        text: text.into(),
    }
}

/// Keys of the configuration file, which are the long options, with the letters
/// of those that have one.
pub const KEYS: &[(&str, Option<char>)] = &[
    ("transport", Some('t')),
    ("traddr", Some('a')),
    ("trsvcid", Some('s')),
    ("nqn", Some('n')),
    ("host-traddr", Some('w')),
    ("hostnqn", Some('q')),
    ("hostid", Some('I')),
    ("nr-io-queues", Some('i')),
    ("queue-size", Some('Q')),
    ("keep-alive-tmo", Some('k')),
    ("reconnect-delay", Some('c')),
    ("ctrl-loss-tmo", Some('l')),
    ("fast-io-fail-tmo", Some('F')),
    ("hdr-digest", Some('g')),
    ("data-digest", Some('G')),
    ("class", None),
    ("slo-p95", None),
    ("slo-iops", None),
    ("slo-read-pct", None),
    ("slo-bs", None),
    ("weight", None),
];

impl Problem {
    /// For the command line.
    pub fn into_error(self) -> Error {
        match KEYS.iter().find(|(key, _)| *key == self.key) {
            Some((key, letter)) => Error::new(format!("{}: {}", spelled(key, *letter), self.text)),
            None => Error::new(self.text),
        }
    }
}

/// An option as it stands on the command line.
pub fn spelled(key: &str, letter: Option<char>) -> String {
    match letter {
        Some(letter) => format!("-{letter}/--{key}"),
        None => format!("--{key}"),
    }
}

/// What is common to the addresses of a target, checked.
pub struct Checked {
    request: ConnectRequest,
    addresses: Vec<Address>,
}

impl Checked {
    /// One request for each address of the target.
    pub fn requests(self) -> impl Iterator<Item = ConnectRequest> {
        let request = self.request;
        self.addresses
            .into_iter()
            .map(move |traddr| ConnectRequest {
                traddr,
                ..request.clone()
            })
    }
}

#[cfg(test)]
impl Checked {
    /// With one more address, as if the name of the target had it.
    pub(crate) fn with_address(mut self, address: Address) -> Checked {
        self.addresses.push(address);
        self
    }
}

impl ConnectOptions {
    /// Check everything that does not need the network, then look the target up.
    pub fn check(&self, system: &System) -> Result<Checked, Problem> {
        check_transport(&self.transport)?;
        let target = address::parse(&self.traddr).map_err(|e| problem("traddr", e))?;
        let trsvcid = address::parse_port(&self.trsvcid).map_err(|e| problem("trsvcid", e))?;
        check_nqn("nqn", &self.nqn)?;
        if self.nqn == nvme_wire::nqn::DISCOVERY {
            let text = "this is the discovery subsystem, which has no namespaces: `rflash discover` reads it";
            return Err(problem("nqn", text));
        }
        let host_traddr = self
            .host_traddr
            .as_deref()
            .map(check_host_traddr)
            .transpose()?;
        if let Some(hostnqn) = &self.hostnqn {
            check_nqn("hostnqn", hostnqn)?;
        }
        let hostid = self.hostid.as_deref().map(identity::parse_id).transpose();
        let hostid = hostid.map_err(|e| problem("hostid", e))?;
        let nr_io_queues = check_queues(self.nr_io_queues, system.online_cpus())?;
        let queue_size = range(
            "queue-size",
            self.queue_size,
            uapi::QUEUE_SIZE_MIN,
            uapi::QUEUE_SIZE_MAX,
            "entries",
        )?;
        let kato = range(
            "keep-alive-tmo",
            self.keep_alive_tmo,
            0,
            uapi::KATO_MAX,
            "seconds",
        )?;
        let reconnect_delay = range(
            "reconnect-delay",
            self.reconnect_delay,
            1,
            uapi::RECONNECT_DELAY_MAX,
            "seconds",
        )?;
        let ctrl_loss_tmo = timeout("ctrl-loss-tmo", self.ctrl_loss_tmo)?;
        let fast_io_fail_tmo = timeout("fast-io-fail-tmo", self.fast_io_fail_tmo)?;
        let tenant = self.tenant.check()?;
        let loss = self.ctrl_loss_tmo.unwrap_or(uapi::CTRL_LOSS_TMO_DEFAULT);
        let fail = self
            .fast_io_fail_tmo
            .unwrap_or(uapi::FAST_IO_FAIL_TMO_DEFAULT);
        if loss >= 0 && fail > loss {
            return Err(problem(
                "fast-io-fail-tmo",
                format!("{fail} s exceeds ctrl-loss-tmo, which is {loss} s"),
            ));
        }
        let addresses = address::resolve(&target, RESOLVE).map_err(|e| problem("traddr", e))?;
        let addresses = match &host_traddr {
            Some(from) => same_family(addresses, from)?,
            None => addresses,
        };
        let identity = identity::of(system, self.hostnqn.as_deref(), hostid, Keep::Must)
            .map_err(|e| problem("", e.to_string()))?;
        let Some(traddr) = addresses.first().cloned() else {
            let text = format!("the host name {:?} has no address", self.traddr);
            return Err(problem("traddr", text));
        };
        Ok(Checked {
            request: ConnectRequest {
                transport: self.transport.clone(),
                traddr,
                trsvcid,
                nqn: self.nqn.clone(),
                hostnqn: identity.nqn,
                hostid: identity.id,
                host_traddr,
                nr_io_queues,
                queue_size,
                kato,
                reconnect_delay,
                ctrl_loss_tmo,
                fast_io_fail_tmo,
                hdr_digest: self.hdr_digest,
                data_digest: self.data_digest,
                tenant,
            },
            addresses,
        })
    }
}

pub fn check_transport(transport: &str) -> Result<(), Problem> {
    if transport != "tcp" {
        let text = format!("{transport:?} is not a transport this version has: give tcp");
        return Err(problem("transport", text));
    }
    Ok(())
}

pub fn check_nqn(key: &'static str, nqn: &str) -> Result<(), Problem> {
    nvme_wire::nqn::check(nqn).map_err(|why| problem(key, format!("{nqn:?} is not an NQN: {why}")))
}

fn check_host_traddr(text: &str) -> Result<Address, Problem> {
    match address::parse(text) {
        Ok(address::Target::Literal(address)) => Ok(address),
        Ok(address::Target::Name(_)) => Err(problem(
            "host-traddr",
            format!("{text:?} is not an IP address: give one of this host's"),
        )),
        Err(why) => Err(problem("host-traddr", why)),
    }
}

fn same_family(mut addresses: Vec<Address>, from: &Address) -> Result<Vec<Address>, Problem> {
    addresses.retain(|a| a.ip.is_ipv4() == from.ip.is_ipv4());
    if addresses.is_empty() {
        let family = if from.ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let text = format!("{from} is {family}, and the target has no such address");
        return Err(problem("host-traddr", text));
    }
    Ok(addresses)
}

fn check_queues(value: Option<i64>, cpus: Option<u32>) -> Result<Option<u32>, Problem> {
    let key = "nr-io-queues";
    let Some(value) = value else {
        return Ok(None);
    };
    if value < 1 {
        return Err(problem(
            key,
            format!("{value} queues carry nothing: give 1 or more"),
        ));
    }
    let most = i64::from(cpus.unwrap_or(u32::MAX));
    if value > most {
        return Err(problem(
            key,
            format!(
                "{value} queues are more than this machine's {most} online \
                 CPU{}: give 1 to {most}",
                if most == 1 { "" } else { "s" }
            ),
        ));
    }
    Ok(u32::try_from(value).ok())
}

pub fn range(
    key: &'static str,
    value: Option<i64>,
    least: i64,
    most: i64,
    unit: &str,
) -> Result<Option<u32>, Problem> {
    match value {
        Some(v) if !(least..=most).contains(&v) => Err(problem(
            key,
            format!("{v} is out of range: give {least} to {most} {unit}"),
        )),
        value => Ok(value.and_then(|v| u32::try_from(v).ok())),
    }
}

fn timeout(key: &'static str, value: Option<i64>) -> Result<Option<i32>, Problem> {
    match value {
        Some(v) if !(-1..=uapi::TMO_MAX).contains(&v) => Err(problem(
            key,
            format!(
                "{v} is out of range: give -1 (never) or 0 to {} seconds",
                uapi::TMO_MAX
            ),
        )),
        value => Ok(value.and_then(|v| i32::try_from(v).ok())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::system::tests::Machine;

    pub(crate) fn good() -> ConnectOptions {
        ConnectOptions {
            transport: "tcp".to_string(),
            traddr: "192.0.2.1".to_string(),
            trsvcid: "4420".to_string(),
            nqn: "nqn.2024-01.io.example:a".to_string(),
            hostnqn: Some("nqn.2024-01.io.example:host".to_string()),
            hostid: Some("f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_string()),
            ..ConnectOptions::default()
        }
    }

    fn machine() -> Machine {
        Machine::new(&[("/sys/devices/system/cpu/online", "0-3")])
    }

    fn request(options: &ConnectOptions) -> Result<ConnectRequest, String> {
        let checked = options.check(&machine().system);
        let checked = checked.map_err(|p| p.into_error().to_string())?;
        Ok(checked.requests().next().unwrap())
    }

    #[test]
    fn what_is_not_given_is_left_to_the_driver() {
        let r = request(&good()).unwrap();
        assert_eq!(
            (r.nr_io_queues, r.kato, r.ctrl_loss_tmo),
            (None, None, None)
        );
        assert_eq!(r.traddr.to_string(), "192.0.2.1");
        assert_eq!(r.trsvcid, 4420);
    }

    #[test]
    fn limits_are_allowed() {
        let r = request(&ConnectOptions {
            nr_io_queues: Some(4),
            queue_size: Some(1024),
            keep_alive_tmo: Some(0),
            reconnect_delay: Some(1),
            ctrl_loss_tmo: Some(-1),
            fast_io_fail_tmo: Some(604800),
            ..good()
        })
        .unwrap();
        assert_eq!(r.nr_io_queues, Some(4));
        assert_eq!(
            (r.ctrl_loss_tmo, r.fast_io_fail_tmo),
            (Some(-1), Some(604800))
        );
    }

    #[test]
    fn sentences() {
        type Change = fn(&mut ConnectOptions);
        let cases: &[(Change, &str)] = &[
            (
                |o| o.transport = "rdma".into(),
                "-t/--transport: \"rdma\" is not a transport this version has: give tcp",
            ),
            (
                |o| o.trsvcid = "0".into(),
                "-s/--trsvcid: port 0 cannot be connected to: give 1 to 65535",
            ),
            (
                |o| o.nr_io_queues = Some(5),
                "-i/--nr-io-queues: 5 queues are more than this machine's 4 online CPUs: \
                 give 1 to 4",
            ),
            (
                |o| o.nr_io_queues = Some(0),
                "-i/--nr-io-queues: 0 queues carry nothing: give 1 or more",
            ),
            (
                |o| o.queue_size = Some(8),
                "-Q/--queue-size: 8 is out of range: give 16 to 1024 entries",
            ),
            (
                |o| o.ctrl_loss_tmo = Some(-2),
                "-l/--ctrl-loss-tmo: -2 is out of range: give -1 (never) or 0 to 604800 seconds",
            ),
            (
                |o| o.fast_io_fail_tmo = Some(601),
                "-F/--fast-io-fail-tmo: 601 s exceeds ctrl-loss-tmo, which is 600 s",
            ),
            (
                |o| o.nqn = "flash".into(),
                "-n/--nqn: \"flash\" is not an NQN: it must begin with \"nqn.\"",
            ),
            (
                |o| o.nqn = nvme_wire::nqn::DISCOVERY.into(),
                "-n/--nqn: this is the discovery subsystem, which has no namespaces: \
                 `rflash discover` reads it",
            ),
            (
                |o| o.host_traddr = Some("::1".into()),
                "-w/--host-traddr: ::1 is IPv6, and the target has no such address",
            ),
            (
                |o| o.hostid = Some("1".into()),
                "-I/--hostid: \"1\" is not a host id: give a UUID as in \
                 01234567-89ab-cdef-0123-456789abcdef",
            ),
        ];
        for (change, want) in cases {
            let mut options = good();
            change(&mut options);
            assert_eq!(request(&options).unwrap_err(), *want);
        }
    }

    #[test]
    fn every_key_is_an_option() {
        let command = <ConnectOptions as clap::Args>::augment_args(clap::Command::new("x"));
        for arg in command.get_arguments() {
            let known = KEYS.iter().find(|(key, _)| Some(*key) == arg.get_long());
            assert_eq!(
                known.map(|(_, letter)| *letter),
                Some(arg.get_short()),
                "{}",
                arg.get_id()
            );
        }
        assert_eq!(command.get_arguments().count(), KEYS.len());
    }
}
