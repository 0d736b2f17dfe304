// SPDX-License-Identifier: GPL-2.0-only
//! Block devices: their names, and waiting until they are usable.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::{Controller, Namespace};
use crate::error::Error;
use crate::system::System;

/// How long udev gets to make a node and its links.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// The name in `rflash0`, `/dev/rflash0` or a link to it.
pub fn parse_name(text: &str) -> Result<String, Error> {
    let resolved = text
        .starts_with('/')
        .then(|| std::fs::canonicalize(text).ok())
        .flatten();
    let path = resolved.as_deref().unwrap_or(Path::new(text));
    let name = match path.strip_prefix("/dev") {
        Ok(name) => name.to_string_lossy(),
        Err(_) => path.to_string_lossy(),
    };
    if instance(&name).is_none() {
        return Err(Error::new(format!(
            "{text:?} is not the name of an rflash device: give one of `rflash list`, as in rflash0"
        )));
    }
    Ok(name.into_owned())
}

/// The N of `rflashN`.
fn instance(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("rflash")?;
    if digits.len() > 1 && digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The controller and namespace behind a name.
pub fn find<'a>(
    controllers: &'a [Controller],
    name: &str,
) -> Result<(&'a Controller, &'a Namespace), Error> {
    let wanted = instance(name);
    controllers
        .iter()
        .flat_map(|c| c.namespaces.iter().map(move |ns| (c, ns)))
        .find(|(_, ns)| Some(ns.instance) == wanted)
        .ok_or_else(|| Error::new(format!("there is no device {name}: see `rflash list`")))
}

/// Wait until every namespace has a node that can be opened, and, where udev
/// runs, until it has made the links.
pub fn wait_usable(
    system: &System,
    namespaces: &[Namespace],
    timeout: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + timeout;
    let udev = system.path("/run/udev/control").exists();
    for ns in namespaces {
        let name = ns.device();
        loop {
            let why = match open(&system.path(&format!("/dev/{name}"))) {
                Ok(()) if !udev || known_to_udev(system, &name) => break,
                Ok(()) => None,
                Err(e) => Some(e),
            };
            if Instant::now() >= deadline {
                match why {
                    // The device works; only links may be missing.
                    None => break,
                    Some(why) => {
                        return Err(Error::new(format!(
                            "connected, but /dev/{name} cannot be opened after {} s ({}): \
                             is udev or devtmpfs at work?",
                            timeout.as_secs(),
                            crate::netlink::message::errno_text(
                                why.raw_os_error().unwrap_or(libc::EIO)
                            )
                        )));
                    }
                }
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

fn open(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    if file.metadata()?.file_type().is_block_device() {
        Ok(())
    } else {
        Err(std::io::Error::from_raw_os_error(libc::ENOTBLK))
    }
}

/// udev has finished with a device once its database has an entry.
fn known_to_udev(system: &System, name: &str) -> bool {
    match system.read(&format!("/sys/class/block/{name}/dev")) {
        Some(number) => system.path(&format!("/run/udev/data/b{number}")).exists(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::Machine;

    #[test]
    fn names() {
        assert_eq!(parse_name("rflash0").unwrap(), "rflash0");
        assert_eq!(parse_name("/dev/rflash12").unwrap(), "rflash12");
        for bad in [
            "rflash",
            "rflash0p1",
            "rflash01",
            "/dev/sda",
            "nvme0n1",
            "",
            "rflash-1",
        ] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_not_usable() {
        let m = Machine::new(&[("/dev/rflash3", "")]);
        let ns = Namespace {
            instance: 3,
            ..Namespace::default()
        };
        let error = wait_usable(&m.system, &[ns], Duration::ZERO).unwrap_err();
        assert_eq!(
            error.to_string(),
            "connected, but /dev/rflash3 cannot be opened after 0 s (block device required): \
             is udev or devtmpfs at work?"
        );
        assert!(wait_usable(&m.system, &[], Duration::ZERO).is_ok());
    }
}
