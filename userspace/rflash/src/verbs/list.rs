// SPDX-License-Identifier: GPL-2.0-only
//! `rflash list` and `rflash show`: what a row has to say, once for people and
//! for programs.

use nvme_wire::nqn::format_uuid;
use serde_json::{Value, json};

use crate::cli::{ListArgs, ShowArgs};
use crate::control::{Control, Controller, Namespace, Queue};
use crate::device;
use crate::error::Error;
use crate::table::{self, Column, columns};

use super::print;

/// A device, or a controller without any.
struct Row {
    controller: Controller,
    namespace: Option<Namespace>,
}

impl Row {
    fn new(controller: &Controller, namespace: Option<&Namespace>) -> Row {
        Row {
            controller: controller.clone(),
            namespace: namespace.cloned(),
        }
    }

    fn of_namespace<T: Into<Value>>(&self, value: impl Fn(&Namespace) -> T) -> Value {
        self.namespace
            .as_ref()
            .map_or(Value::Null, |ns| value(ns).into())
    }
}

const LIST: &[Column<Row>] = columns![
    "device", "DEVICE", Text, |r| r.of_namespace(Namespace::device);
    "nsid", "NSID", Number, |r| r.of_namespace(|ns| ns.nsid);
    "size_bytes", "SIZE", Size, |r| r.of_namespace(|ns| ns.size_bytes);
    "block_size", "BLOCK", Number, |r| r.of_namespace(|ns| ns.block_size);
    "state", "STATE", Text, |r| r.controller.state.name().into();
    "queues", "QUEUES", Number, |r| r.controller.queues.into();
    "poll_queues", "POLL", No, |r| r.controller.poll_queues.into();
    "reconnects", "RECONNECTS", Number, |r| r.controller.reconnects.into();
    "transport", "TRANSPORT", Text, |r| r.controller.transport.clone().into();
    "traddr", "ADDRESS", Text, |r| r.controller.traddr.clone().into();
    "trsvcid", "PORT", Text, |r| r.controller.trsvcid.clone().into();
    "nqn", "NQN", Text, |r| r.controller.nqn.clone().into();
    "wwid", "WWID", No, |r| r.of_namespace(|ns| ns.wwid.clone());
    "class", "CLASS", No, |r| r.controller.tenant.class();
    "tenant", "TENANT", No, |r| r.controller.tenant.json();
];

/// Behind the others, for people who want to know.
const VERBOSE: &[Column<Row>] = columns![
    "class", "CLASS", Text, |r| r.controller.tenant.class();
    "promise", "PROMISE", Text, |r| r.controller.tenant.text();
];

const SHOW: &[Column<Row>] = columns![
    "device", "Device", Text, |r| r.of_namespace(Namespace::device);
    "nqn", "Subsystem NQN", Text, |r| r.controller.nqn.clone().into();
    "transport", "Transport", Text, |r| r.controller.transport.clone().into();
    "traddr", "Address", Text, |r| r.controller.traddr.clone().into();
    "trsvcid", "Port", Text, |r| r.controller.trsvcid.clone().into();
    "host_traddr", "Connect from", Text, |r| r.controller.host_traddr.clone().into();
    "state", "State", Text, |r| r.controller.state.name().into();
    "reconnects", "Reconnects", Number, |r| r.controller.reconnects.into();
    "last_error", "Last error", Text, |r| r.controller.last_error.clone().into();
    "class", "Class", Text, |r| r.controller.tenant.class();
    "promise", "Promise", Text, |r| r.controller.tenant.text();
    "tenant", "Tenant", No, |r| r.controller.tenant.json();
    "nsid", "Namespace id", Number, |r| r.of_namespace(|ns| ns.nsid);
    "wwid", "WWID", Text, |r| r.of_namespace(|ns| ns.wwid.clone());
    "size_bytes", "Size", Size, |r| r.of_namespace(|ns| ns.size_bytes);
    "block_size", "Block size, bytes", Number, |r| r.of_namespace(|ns| ns.block_size);
    "read_only", "Read-only", Text, |r| r.of_namespace(|ns| ns.read_only);
    "queues", "I/O queues", Number, |r| r.controller.queues.into();
    "poll_queues", "Poll queues", Number, |r| r.controller.poll_queues.into();
    "queue_size", "Queue size", Number, |r| r.controller.queue_size.into();
    "hdr_digest", "Header digest", Text, |r| r.controller.hdr_digest.into();
    "data_digest", "Data digest", Text, |r| r.controller.data_digest.into();
    "kato", "Keep-alive, s", Number, |r| r.controller.kato.into();
    "reconnect_delay", "Reconnect delay, s", Number, |r| r.controller.reconnect_delay.into();
    "ctrl_loss_tmo", "Loss timeout, s", Number, |r| r.controller.ctrl_loss_tmo.into();
    "fast_io_fail_tmo", "I/O fail timeout, s", Number, |r| r.controller.fast_io_fail_tmo.into();
    "hostnqn", "Host NQN", Text, |r| r.controller.hostnqn.clone().into();
    "hostid", "Host id", Text, |r| r.controller.hostid.map(|id| format_uuid(&id)).into();
    "cntlid", "Controller id", Number, |r| r.controller.cntlid.into();
    "model", "Model", Text, |r| r.controller.model.clone().into();
    "serial", "Serial", Text, |r| r.controller.serial.clone().into();
    "firmware", "Firmware", Text, |r| r.controller.firmware.clone().into();
    "queue_map", "Queue map", No, |r| json!(queue_map(&r.controller.queue_map));
];

const QUEUES: &[Column<Queue>] = columns![
    "qid", "QUEUE", Number, |q| q.qid.into();
    "cpus", "CPUS", Text, |q| q.cpus.clone().into();
    "src_addr", "LOCAL ADDRESS", Text, |q| q.src_addr.clone().into();
    "src_port", "PORT", Number, |q| q.src_port.into();
];

fn queue_map(queues: &[Queue]) -> Vec<Value> {
    queues.iter().map(|q| table::json(QUEUES, q)).collect()
}

fn rows(controllers: &[Controller]) -> Vec<Row> {
    let mut rows = Vec::new();
    for controller in controllers {
        for namespace in &controller.namespaces {
            rows.push(Row::new(controller, Some(namespace)));
        }
        if controller.namespaces.is_empty() {
            rows.push(Row::new(controller, None));
        }
    }
    rows.sort_by_key(|r| r.namespace.as_ref().map_or(u32::MAX, |ns| ns.instance));
    rows
}

/// The rows of some controllers as a JSON array.
pub fn to_json(controllers: &[Controller]) -> String {
    let rows = rows(controllers);
    table::pretty(&rows.iter().map(|r| table::json(LIST, r)).collect())
}

pub fn list(control: &mut impl Control, args: &ListArgs) -> Result<(), Error> {
    let controllers = control.controllers()?;
    if args.output.format.is_json() {
        return print(&to_json(&controllers));
    }
    print(&to_text(&controllers, args.verbose))
}

fn to_text(controllers: &[Controller], verbose: bool) -> String {
    let more = if verbose { VERBOSE } else { &[] };
    let columns: Vec<_> = LIST.iter().chain(more).copied().collect();
    table::table(&columns, &rows(controllers))
}

pub fn show(control: &mut impl Control, args: &ShowArgs) -> Result<(), Error> {
    let name = device::parse_name(&args.device)?;
    let controllers = control.controllers()?;
    let (controller, namespace) = device::find(&controllers, &name)?;
    let row = Row::new(controller, Some(namespace));
    if args.output.format.is_json() {
        return print(&table::pretty(&table::json(SHOW, &row)));
    }
    let card = table::card(SHOW, &row);
    print(&format!(
        "{card}\n{}",
        table::table(QUEUES, &controller.queue_map)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::tests::sample;

    #[test]
    fn keys_of_list() {
        let text = to_json(&[sample()]);
        let value: Value = serde_json::from_str(&text).unwrap();
        let first = value[0].as_object().unwrap();
        let mut keys: Vec<_> = first.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "block_size",
                "class",
                "device",
                "nqn",
                "nsid",
                "poll_queues",
                "queues",
                "reconnects",
                "size_bytes",
                "state",
                "tenant",
                "traddr",
                "transport",
                "trsvcid",
                "wwid"
            ]
        );
        assert_eq!(first["device"], "rflash0");
        assert_eq!(first["size_bytes"], 1_u64 << 30);
        assert_eq!(value[1]["device"], "rflash2");
        assert_eq!(first["class"], "best-effort");
        assert_eq!(first["tenant"]["outcome"], "refused");
        assert_eq!(first["tenant"]["asked"]["iops"], 20000);
        assert_eq!(first["tenant"]["granted"]["weight"], 100);
    }

    #[test]
    fn promises_for_people() {
        let brief = to_text(&[sample()], false);
        assert!(
            !brief.contains("CLASS") && !brief.contains("refused"),
            "{brief}"
        );
        let verbose = to_text(&[sample()], true);
        let lines: Vec<_> = verbose.lines().collect();
        assert!(lines[0].ends_with("CLASS        PROMISE"), "{verbose}");
        assert!(
            lines[1].ends_with("best-effort  weight 100 (refused)"),
            "{verbose}"
        );
    }

    #[test]
    fn show_has_all_of_list_and_more() {
        let controller = sample();
        let row = Row::new(&controller, controller.namespaces.first());
        let shown = table::json(SHOW, &row);
        for column in LIST {
            assert_eq!(shown[column.key], (column.value)(&row), "{}", column.key);
        }
        assert_eq!(shown["hostid"], "09090909-0909-0909-0909-090909090909");
        assert_eq!(shown["queue_map"][1]["cpus"], "1");
        assert_eq!(
            shown["last_error"],
            "queue 1: the target reset the connection"
        );
    }

    #[test]
    fn controller_without_namespaces() {
        let mut controller = sample();
        controller.namespaces.clear();
        let value: Value = serde_json::from_str(&to_json(&[controller.clone()])).unwrap();
        assert_eq!(value[0]["device"], Value::Null);
        assert_eq!(value[0]["state"], "live");
        let text = table::table(LIST, &rows(&[controller]));
        assert!(text.lines().nth(1).unwrap().starts_with("-  "), "{text}");
        assert_eq!(to_json(&[]), "[]\n");
    }
}
