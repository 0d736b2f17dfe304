// SPDX-License-Identifier: GPL-2.0-only
//! `rflash connect`.

use std::time::{Duration, Instant};

use crate::address;
use crate::cli::ConnectArgs;
use crate::control::{ConnectRequest, Control, Controller};
use crate::device;
use crate::error::Error;
use crate::netlink::{NetlinkError, Refusal};
use crate::options::{self, Checked, KEYS};
use crate::promise;
use crate::system::System;
use crate::uapi::{self, State, TenantState, attr};

use super::{driver, list, note, print};

pub fn run(system: &System, args: &ConnectArgs) -> Result<(), Error> {
    let checked = args.options.check(system).map_err(|p| p.into_error())?;
    let controller = connect(&mut driver()?, system, checked)?;
    if args.output.format.is_json() {
        return print(&list::to_json(std::slice::from_ref(&controller)));
    }
    print(&device_paths(&controller))
}

/// The paths of a controller's devices, one a line.
pub fn device_paths(controller: &Controller) -> String {
    let devices = controller.namespaces.iter();
    devices
        .flat_map(|ns| ["/dev/".to_owned(), ns.device(), "\n".to_owned()])
        .collect()
}

/// Connect to the first address of the target that lets us, or find that this
/// has been done before, and wait for the devices.
pub fn connect(
    control: &mut impl Control,
    system: &System,
    checked: Checked,
) -> Result<Controller, Error> {
    let mut last = Error::new("the target has no address");
    for request in checked.requests() {
        let controller = match control.connect(&request) {
            Ok(controller) => controller,
            Err(NetlinkError::Refused(refusal)) => match refusal.errno {
                libc::EALREADY => existing(control, &request, &refusal)?,
                // Another address of the same name may do.
                libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ETIMEDOUT => {
                    last = sentence(&request, &refusal);
                    continue;
                }
                _ => return Err(sentence(&request, &refusal)),
            },
            Err(error) => return Err(error.into()),
        };
        if let Some(text) = without_promise(&request, &controller) {
            note(&text);
        }
        device::wait_usable(system, &controller.namespaces, device::NODE_TIMEOUT)?;
        if controller.namespaces.is_empty() {
            note(&format!(
                "connected to {}, which has no namespaces now: devices will appear when it gets some",
                controller.nqn
            ));
        }
        return Ok(controller);
    }
    Err(last)
}

/// What to say where the promise that was asked for is not made, though there is
/// a connection.
fn without_promise(request: &ConnectRequest, controller: &Controller) -> Option<String> {
    let asked = request.tenant?;
    let ConnectRequest {
        traddr, trsvcid, ..
    } = request;
    if controller.tenant.asked != request.tenant {
        let other = match &controller.tenant.asked {
            Some(class) => format!("as {}", promise::sentence(class)),
            None => "without a class".to_string(),
        };
        return Some(format!(
            "connected already, {other}: disconnect and connect again to change that"
        ));
    }
    match controller.tenant.state {
        TenantState::Unsupported => Some(format!(
            "{traddr} port {trsvcid} does not know tenants, so it does not promise {}",
            promise::sentence(&asked)
        )),
        TenantState::Refused => Some(format!(
            "connected already, but after a reconnect the target refused to promise {}",
            promise::sentence(&asked)
        )),
        _ => None,
    }
}

/// The controller that is connected already; while someone else is still
/// connecting it, wait for that.
fn existing(
    control: &mut impl Control,
    request: &ConnectRequest,
    refusal: &Refusal,
) -> Result<Controller, Error> {
    let seconds = request
        .kato
        .filter(|&k| k > 0)
        .map_or(uapi::KATO_DEFAULT as u64, u64::from);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    loop {
        let all = control.controllers()?;
        let found = all.into_iter().find(|c| {
            c.nqn == request.nqn
                && c.hostnqn == request.hostnqn
                && c.trsvcid == request.trsvcid.to_string()
                && address::same(&c.traddr, &request.traddr)
        });
        let Some(controller) = found else {
            return Err(sentence(request, refusal));
        };
        match controller.state {
            State::New | State::Connecting if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            State::Live => return Ok(controller),
            state => {
                note(&format!("connected already, but {} now", state.name()));
                return Ok(controller);
            }
        }
    }
}

/// Why connecting failed.
fn sentence(request: &ConnectRequest, refusal: &Refusal) -> Error {
    let ConnectRequest {
        traddr,
        trsvcid,
        nqn,
        hostnqn,
        ..
    } = request;
    let at = format!("{traddr} port {trsvcid}");
    let kato = request
        .kato
        .filter(|&k| k > 0)
        .unwrap_or(uapi::KATO_DEFAULT as u32);
    let said = refusal.message.as_deref().unwrap_or_default();
    Error::new(match refusal.errno {
        libc::EPERM => "connecting needs root (CAP_SYS_ADMIN): try sudo".to_string(),
        libc::ENXIO => format!(
            "{at} has no subsystem {nqn} for this host: `rflash discover -a {traddr} -s {trsvcid}` lists what it has"
        ),
        libc::EACCES => format!(
            "{at} does not admit this host to {nqn}: allow {hostnqn} on the target or give another host NQN with -q"
        ),
        libc::ECONNREFUSED => format!(
            "{at} refused the connection: nothing listens there, check -s and that the target runs"
        ),
        libc::EHOSTUNREACH | libc::ENETUNREACH => {
            format!("no route to {traddr}: check -a and the network (`ip route get {traddr}`)")
        }
        libc::ETIMEDOUT if said.contains("accepted") => format!(
            "{at} accepted the connection but never answered in {kato} s: is it an NVMe/TCP port and is the target well?"
        ),
        libc::ETIMEDOUT if said.contains(" did not answer in ") || said.is_empty() => {
            format!("{at} timed out: no answer in {kato} s, check -a, -s and firewalls in between")
        }
        libc::ETIMEDOUT => format!("{at} timed out: {}", whole(said)),
        libc::EADDRNOTAVAIL => match &request.host_traddr {
            Some(from) => format!(
                "-w/--host-traddr: no connection can be made from {from}: give an address of this host"
            ),
            None => format!("{at}: this host has no address or port left to connect from"),
        },
        libc::ECONNRESET if said.is_empty() => {
            format!("{at} closed the connection while it was being set up")
        }
        libc::EDQUOT => format!(
            "{at} refused to promise {}: its log says why and what would fit",
            request
                .tenant
                .as_ref()
                .map_or_else(|| "anything".to_string(), promise::sentence)
        ),
        libc::EPROTO => format!("{at} broke the protocol: {}", whole(said)),
        libc::EINVAL => match refusal.attr.or(refusal.missing).and_then(option) {
            Some(option) => format!("{option}: {}", whole(&refusal.to_string())),
            None => whole(&refusal.to_string()),
        },
        _ => format!("{at}: {}", whole(&refusal.to_string())),
    })
}

/// Extended acks are cut off after 79 characters.
fn whole(text: &str) -> String {
    const LIMIT: usize = 79;
    if text.len() >= LIMIT {
        format!("{text}…")
    } else {
        text.to_string()
    }
}

/// The option that sets an attribute.
fn option(attribute: u16) -> Option<String> {
    let key = match attribute {
        attr::TRANSPORT => "transport",
        attr::TRADDR => "traddr",
        attr::TRSVCID => "trsvcid",
        attr::HOST_TRADDR => "host-traddr",
        attr::SUBSYS_NQN => "nqn",
        attr::HOST_NQN => "hostnqn",
        attr::HOST_ID => "hostid",
        attr::NR_IO_QUEUES => "nr-io-queues",
        attr::QUEUE_SIZE => "queue-size",
        attr::KATO => "keep-alive-tmo",
        attr::RECONNECT_DELAY => "reconnect-delay",
        attr::CTRL_LOSS_TMO => "ctrl-loss-tmo",
        attr::FAST_IO_FAIL_TMO => "fast-io-fail-tmo",
        attr::HDR_DIGEST => "hdr-digest",
        attr::DATA_DIGEST => "data-digest",
        attr::TENANT_CLASS => "class",
        attr::TENANT_P95_US => "slo-p95",
        attr::TENANT_IOPS => "slo-iops",
        attr::TENANT_READ_PCT => "slo-read-pct",
        attr::TENANT_BLOCK => "slo-bs",
        attr::TENANT_WEIGHT => "weight",
        _ => return None,
    };
    let (_, letter) = KEYS.iter().find(|(k, _)| *k == key)?;
    Some(options::spelled(key, *letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Address;
    use crate::control::model::{Model, refusal};
    use crate::control::tests::sample;
    use crate::options::tests::good;
    use crate::system::tests::Machine;
    use nvme_wire::tenant::Class;

    fn machine() -> Machine {
        Machine::new(&[("/sys/devices/system/cpu/online", "0-3")])
    }

    /// What `connect` makes of some answers of the driver.
    fn attempt(model: &mut Model, traddr: &str) -> Result<Controller, String> {
        let machine = machine();
        let mut options = good();
        options.traddr = traddr.to_string();
        let checked = options.check(&machine.system).map_err(|p| p.text)?;
        connect(model, &machine.system, checked).map_err(|e| e.to_string())
    }

    fn without_devices(state: State) -> Controller {
        Controller {
            state,
            namespaces: Vec::new(),
            ..sample()
        }
    }

    #[test]
    fn all_addresses_of_a_name_are_tried() {
        let mut model = Model {
            controllers: vec![without_devices(State::Live)],
            refusals: vec![refusal(libc::ECONNREFUSED, "")],
            ..Model::default()
        };
        let machine = machine();
        let mut options = good();
        options.traddr = "192.0.2.7".to_string();
        let checked = options.check(&machine.system).map_err(|p| p.text).unwrap();
        let second = Address {
            ip: "2001:db8::7".parse().unwrap(),
            scope: None,
        };
        let checked = checked.with_address(second.clone());
        connect(&mut model, &machine.system, checked).unwrap();
        let asked: Vec<_> = model.asked.iter().map(|r| r.traddr.to_string()).collect();
        assert_eq!(asked, ["192.0.2.7", "2001:db8::7"]);
    }

    #[test]
    fn what_is_no_matter_of_the_address_ends_it() {
        let mut model = Model {
            refusals: vec![refusal(libc::EACCES, "")],
            ..Model::default()
        };
        assert!(attempt(&mut model, "192.0.2.1").is_err());
        assert_eq!(model.asked.len(), 1);
    }

    #[test]
    fn repeated_connect_finds_the_controller() {
        for state in [State::Live, State::Reconnecting] {
            let other = Controller {
                id: 1,
                traddr: "192.0.2.9".to_string(),
                ..without_devices(State::Live)
            };
            let mut model = Model {
                controllers: vec![other, without_devices(state)],
                refusals: vec![refusal(libc::EALREADY, "controller 7 is already connected")],
                ..Model::default()
            };
            assert_eq!(attempt(&mut model, "192.0.2.1").unwrap().id, 7);
        }
        let mut model = Model {
            refusals: vec![refusal(libc::EALREADY, "controller 7 is already connected")],
            ..Model::default()
        };
        assert_eq!(
            attempt(&mut model, "192.0.2.1").unwrap_err(),
            "192.0.2.1 port 4420: controller 7 is already connected",
            "it has gone meanwhile"
        );
    }

    #[test]
    fn sentences() {
        let long = "x".repeat(79);
        for (errno, said, want) in [
            (
                libc::EPERM,
                "",
                "connecting needs root (CAP_SYS_ADMIN): try sudo",
            ),
            (
                libc::ENXIO,
                "the target has no subsystem",
                "192.0.2.1 port 4420 has no subsystem nqn.2024-01.io.example:a for this host: \
                 `rflash discover -a 192.0.2.1 -s 4420` lists what it has",
            ),
            (
                libc::EACCES,
                "",
                "192.0.2.1 port 4420 does not admit this host to nqn.2024-01.io.example:a: allow \
                 nqn.2024-01.io.example:host on the target or give another host NQN with -q",
            ),
            (
                libc::ECONNREFUSED,
                "",
                "192.0.2.1 port 4420 refused the connection: nothing listens there, check -s and \
                 that the target runs",
            ),
            (
                libc::ENETUNREACH,
                "",
                "no route to 192.0.2.1: check -a and the network (`ip route get 192.0.2.1`)",
            ),
            (
                libc::ETIMEDOUT,
                "192.0.2.1 port 4420 did not answer in 5 s",
                "192.0.2.1 port 4420 timed out: no answer in 5 s, check -a, -s and firewalls in \
                 between",
            ),
            (
                libc::ETIMEDOUT,
                "queue 0: the target accepted the connection but did not answer the initia",
                "192.0.2.1 port 4420 accepted the connection but never answered in 5 s: is it an \
                 NVMe/TCP port and is the target well?",
            ),
            (
                libc::ETIMEDOUT,
                "the namespaces could not be read in 5 s",
                "192.0.2.1 port 4420 timed out: the namespaces could not be read in 5 s",
            ),
            (
                libc::EPROTO,
                "queue 0: hlen is 0x3",
                "192.0.2.1 port 4420 broke the protocol: queue 0: hlen is 0x3",
            ),
            (
                libc::EBUSY,
                "no controller free",
                "192.0.2.1 port 4420: no controller free",
            ),
            (libc::EIO, "", "192.0.2.1 port 4420: input/output error"),
            (libc::EIO, &long, &format!("192.0.2.1 port 4420: {long}…")),
        ] {
            let mut model = Model {
                refusals: vec![refusal(errno, said)],
                ..Model::default()
            };
            assert_eq!(attempt(&mut model, "192.0.2.1").unwrap_err(), want);
        }
    }

    fn with_tenant(state: TenantState) -> Controller {
        Controller {
            tenant: promise::Promise {
                asked: Some(CRITICAL),
                state,
                granted: None,
            },
            ..without_devices(State::Live)
        }
    }

    const CRITICAL: Class = Class::LatencyCritical {
        p95_us: 500,
        iops: 20000,
        read_pct: 90,
        block: 4096,
    };

    fn asked(tenant: Option<Class>) -> ConnectRequest {
        let checked = good().check(&machine().system).map_err(|p| p.text);
        let request = checked.unwrap().requests().next().unwrap();
        ConnectRequest { tenant, ..request }
    }

    #[test]
    fn a_promise_that_is_not_made_is_said() {
        let say = |tenant, state| {
            without_promise(&asked(tenant), &with_tenant(state)).unwrap_or_default()
        };
        assert_eq!(
            say(Some(CRITICAL), TenantState::Unsupported),
            "192.0.2.1 port 4420 does not know tenants, so it does not promise latency-critical \
             (p95 500 us, 20000 IOPS of 4096 bytes, 90 % reads)"
        );
        assert!(
            say(Some(CRITICAL), TenantState::Refused).starts_with("connected already, but after")
        );
        assert_eq!(say(Some(CRITICAL), TenantState::Granted), "");
        assert_eq!(say(None, TenantState::Granted), "");
        assert_eq!(
            say(Some(Class::BestEffort { weight: 1 }), TenantState::Granted),
            "connected already, as latency-critical (p95 500 us, 20000 IOPS of 4096 bytes, 90 % \
             reads): disconnect and connect again to change that"
        );
    }

    #[test]
    fn a_refused_promise() {
        let refusal = refusal(
            libc::EDQUOT,
            "the target refused the promise with NVMe status",
        );
        assert_eq!(
            sentence(&asked(Some(CRITICAL)), &refusal).to_string(),
            "192.0.2.1 port 4420 refused to promise latency-critical (p95 500 us, 20000 IOPS of \
             4096 bytes, 90 % reads): its log says why and what would fit"
        );
    }

    #[test]
    fn the_attribute_to_blame_is_named_as_an_option() {
        let mut model = Model {
            refusals: vec![Refusal {
                attr: Some(attr::QUEUE_SIZE),
                ..refusal(libc::EINVAL, "the queue size is 2, it must be 16 to 1024")
            }],
            ..Model::default()
        };
        assert_eq!(
            attempt(&mut model, "192.0.2.1").unwrap_err(),
            "-Q/--queue-size: the queue size is 2, it must be 16 to 1024"
        );
    }

    #[test]
    fn every_option_that_is_sent_can_be_blamed() {
        for (name, kind) in attr::ALL {
            let replies = [
                "PAD",
                "CTRL",
                "CTRL_ID",
                "NR_POLL_QUEUES",
                "STATE",
                "RECONNECTS",
                "LAST_ERROR",
                "MODEL",
                "SERIAL",
                "FIRMWARE",
                "CNTLID",
                "NS",
                "QUEUE",
                "NS_INSTANCE",
                "STATS",
                "TENANT_STATE",
                "TENANT_GRANTED",
            ];
            assert_eq!(option(*kind).is_some(), !replies.contains(name), "{name}");
        }
    }
}
