// SPDX-License-Identifier: GPL-2.0-only
//! `rflash disconnect`.

use crate::cli::DisconnectArgs;
use crate::control::{Control, Controller};
use crate::device;
use crate::error::Error;
use crate::netlink::{NetlinkError, Refusal};

use super::{note, print};

pub fn run(control: &mut impl Control, args: &DisconnectArgs) -> Result<(), Error> {
    let controllers = control.controllers()?;
    let mut failed = false;
    for controller in chosen(&controllers, args)? {
        match control.disconnect(controller.id) {
            Ok(()) => print(&gone(controller))?,
            // Someone else was faster.
            Err(NetlinkError::Refused(Refusal {
                errno: libc::ENODEV,
                ..
            })) => {
                print(&gone(controller))?;
            }
            Err(error) => {
                let error = Error::from(error);
                note(&format!("disconnecting {}: {error}", controller.nqn));
                failed = true;
            }
        }
    }
    if failed { Err(Error::Reported) } else { Ok(()) }
}

fn chosen<'a>(
    controllers: &'a [Controller],
    args: &DisconnectArgs,
) -> Result<Vec<&'a Controller>, Error> {
    if let Some(device) = &args.device {
        let name = device::parse_name(device)?;
        return Ok(vec![device::find(controllers, &name)?.0]);
    }
    let Some(nqn) = &args.nqn else {
        return Ok(controllers.iter().collect());
    };
    let found: Vec<_> = controllers.iter().filter(|c| c.nqn == *nqn).collect();
    if found.is_empty() {
        let text = format!("not connected to {nqn}: see `rflash list`");
        return Err(Error::new(text));
    }
    Ok(found)
}

/// What is no longer there.
fn gone(controller: &Controller) -> String {
    let Controller {
        nqn,
        traddr,
        trsvcid,
        namespaces,
        ..
    } = controller;
    let devices: Vec<_> = namespaces.iter().map(|ns| ns.device()).collect();
    let devices = match devices.is_empty() {
        true => "it had no devices".to_string(),
        false => format!("removed {}", devices.join(", ")),
    };
    format!("disconnected {nqn} at {traddr} port {trsvcid}: {devices}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::model::Model;
    use crate::control::tests::sample;

    fn args(device: Option<&str>, nqn: Option<&str>) -> DisconnectArgs {
        DisconnectArgs {
            device: device.map(str::to_string),
            nqn: nqn.map(str::to_string),
            all: device.is_none() && nqn.is_none(),
        }
    }

    fn model() -> Model {
        let mut other = sample();
        other.id = 8;
        other.nqn = "nqn.2024-01.io.example:b".to_string();
        other.namespaces.clear();
        Model {
            controllers: vec![sample(), other],
            ..Model::default()
        }
    }

    #[test]
    fn what_is_chosen() {
        for (args, want) in [
            (args(Some("rflash2"), None), &[7][..]),
            (args(Some("/dev/rflash0"), None), &[7]),
            (args(None, Some("nqn.2024-01.io.example:b")), &[8]),
            (args(None, None), &[7, 8]),
        ] {
            let mut model = model();
            run(&mut model, &args).unwrap();
            assert_eq!(model.disconnected, want);
        }
    }

    #[test]
    fn what_is_not_there() {
        let error = run(&mut model(), &args(Some("rflash1"), None)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no device rflash1: see `rflash list`"
        );
        let error = run(&mut model(), &args(None, Some("nqn.x"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not connected to nqn.x: see `rflash list`"
        );
        assert!(
            run(&mut Model::default(), &args(None, None)).is_ok(),
            "none are all"
        );
    }

    #[test]
    fn someone_else_was_faster() {
        let mut model = Model {
            disconnect: libc::ENODEV,
            ..model()
        };
        assert!(run(&mut model, &args(None, None)).is_ok());
        let mut model = Model {
            disconnect: libc::EPERM,
            ..model
        };
        assert_eq!(run(&mut model, &args(None, None)), Err(Error::Reported));
    }

    #[test]
    fn what_has_gone_is_said() {
        assert_eq!(
            gone(&sample()),
            "disconnected nqn.2024-01.io.example:a at 192.0.2.1 port 4420: removed rflash0, rflash2\n"
        );
    }
}
