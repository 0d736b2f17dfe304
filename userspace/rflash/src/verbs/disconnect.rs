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
