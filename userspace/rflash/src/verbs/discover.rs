// SPDX-License-Identifier: GPL-2.0-only
//! `rflash discover`.

use std::time::Duration;

use nvme_host::{DiscoveryLog, HostError, HostIdentity, Stage};
use nvme_wire::discovery::Record;
use nvme_wire::status::Status;
use serde_json::{Value, json};

use crate::address;
use crate::cli::DiscoverArgs;
use crate::control::Address;
use crate::error::Error;
use crate::identity::{self, Keep};
use crate::netlink::message::errno_text;
use crate::options::{Problem, check_nqn, check_transport};
use crate::system::System;
use crate::table::{self, Column, columns};

use super::print;

/// Keys as `nvme discover -o json` has them.
const RECORDS: &[Column<Record>] = columns![
    "trtype", "TRANSPORT", Text, |r| r.trtype.to_string().into();
    "adrfam", "FAMILY", Text, |r| r.adrfam.to_string().into();
    "subtype", "TYPE", Text, |r| r.subtype.to_string().into();
    "treq", "TREQ", No, |r| r.treq.into();
    "portid", "PORT ID", No, |r| r.portid.into();
    "traddr", "ADDRESS", Text, |r| r.traddr.clone().into();
    "trsvcid", "PORT", Text, |r| r.trsvcid.clone().into();
    "subnqn", "NQN", Text, |r| r.subnqn.clone().into();
    "cntlid", "CNTLID", No, |r| r.cntlid.into();
    "eflags", "EFLAGS", No, |r| r.eflags.into();
    "sectype", "SECURITY", No, |r| match r.sectype {
        0 => "none".into(),
        1 => "tls".into(),
        2 => "tls13".into(),
        other => format!("unknown {other}").into(),
    };
];

pub fn run(system: &System, args: &DiscoverArgs) -> Result<(), Error> {
    let wrong = |key| move |text| Problem { key, text }.into_error();
    check_transport(&args.transport).map_err(Problem::into_error)?;
    let target = address::parse(&args.traddr).map_err(wrong("traddr"))?;
    let port = address::parse_port(&args.trsvcid).map_err(wrong("trsvcid"))?;
    if let Some(nqn) = &args.hostnqn {
        check_nqn("hostnqn", nqn).map_err(Problem::into_error)?;
    }
    let id = args.hostid.as_deref().map(identity::parse_id).transpose();
    let id = id.map_err(wrong("hostid"))?;
    let timeout = match args.timeout {
        seconds @ 1..=3600 => Duration::from_secs(seconds as u64),
        other => {
            let text = format!("--timeout: {other} is out of range: give 1 to 3600 seconds");
            return Err(Error::new(text));
        }
    };
    let who = identity::of(system, args.hostnqn.as_deref(), id, Keep::Try)?;
    let host = HostIdentity {
        nqn: who.nqn,
        id: who.id,
    };
    let addresses = address::resolve(&target, timeout).map_err(wrong("traddr"))?;
    let mut last = Error::new(format!("the host name {:?} has no address", args.traddr));
    for found in addresses {
        let socket = address::socket_addr(&found, port).map_err(wrong("traddr"))?;
        match nvme_host::discover(socket, &host, timeout) {
            Ok(log) => return print(&show(&log, args.output.format.is_json())),
            Err(error) => last = sentence(&found, port, &host, &error),
        }
    }
    Err(last)
}

fn show(log: &DiscoveryLog, json: bool) -> String {
    if json {
        let records: Vec<Value> = log
            .records
            .iter()
            .map(|r| table::json(RECORDS, r))
            .collect();
        return table::pretty(&json!({ "genctr": log.genctr, "records": records }));
    }
    table::table(RECORDS, &log.records)
}

/// What went wrong at an address, as people put it.
pub(super) fn sentence(
    address: &Address,
    port: u16,
    host: &HostIdentity,
    error: &HostError,
) -> Error {
    let at = format!("{address} port {port}");
    Error::new(match error {
        HostError::Io {
            stage: Stage::Open,
            error: cause,
            waited,
        } => match cause.raw_os_error() {
            _ if error.is_timeout() => format!(
                "{at} timed out: no answer in {} s, check -a, -s and firewalls in between",
                waited.as_secs()
            ),
            Some(libc::ECONNREFUSED) => format!(
                "{at} refused the connection: nothing listens there, check -s and that the target runs"
            ),
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => format!(
                "no route to {address}: check -a and the network (`ip route get {address}`)"
            ),
            Some(errno) => format!("{at}: {}", errno_text(errno)),
            None => format!("{at}: {cause}"),
        },
        HostError::Io {
            stage: Stage::Initialise,
            waited,
            ..
        } if error.is_timeout() => format!(
            "{at} accepted the connection but never answered in {} s: is it an NVMe/TCP port and is the target well?",
            waited.as_secs()
        ),
        HostError::Status { status, .. }
            if status.code() == Status::CONNECT_INVALID_HOST.code() =>
        {
            format!(
                "{at} does not admit this host: allow {} on the target or give another host NQN with -q",
                host.nqn
            )
        }
        HostError::Status {
            command: "Connect",
            status,
        } if status.code() == Status::CONNECT_INVALID_PARAMETERS.code() => {
            format!("{at} has no discovery controller: {error}")
        }
        error => format!("{at}: {error}"),
    })
}
