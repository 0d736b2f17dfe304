// SPDX-License-Identifier: GPL-2.0-only
//! Who this host is: its NQN and its id.
//!
//! Those of nvme-cli (/etc/nvme) if there are any, so that a target sees one
//! host however it is connected; else our own in /etc/rflash, made once: of the
//! machine's DMI UUID if that can be read, else of random bytes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nvme_wire::nqn;

use crate::error::Error;
use crate::system::System;

const NVME_NQN: &str = "/etc/nvme/hostnqn";
const NVME_ID: &str = "/etc/nvme/hostid";
const OWN_NQN: &str = "/etc/rflash/hostnqn";
const OWN_ID: &str = "/etc/rflash/hostid";
const DMI_UUID: &str = "/sys/class/dmi/id/product_uuid";
const RANDOM: &str = "/dev/urandom";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub nqn: String,
    pub id: [u8; 16],
}

/// Whether what has to be made up is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Fail if it cannot be.
    Must,
    /// Good enough for once.
    Try,
}

/// What was given, completed with what this machine has.
pub fn of(
    system: &System,
    given_nqn: Option<&str>,
    given_id: Option<[u8; 16]>,
    keep: Keep,
) -> Result<Identity, Error> {
    let nqn = match given_nqn {
        Some(nqn) => nqn.to_string(),
        None => host_nqn(system, keep)?,
    };
    let id = match given_id.or_else(|| given_nqn.and_then(nqn::uuid)) {
        Some(id) => id,
        None => host_id(system, &nqn, keep)?,
    };
    Ok(Identity { nqn, id })
}

/// A host id as people write it.
pub fn parse_id(text: &str) -> Result<[u8; 16], String> {
    let id = nqn::parse_uuid(text)
        .or_else(|| nqn::parse_hex(text))
        .ok_or_else(|| {
            format!(
                "{text:?} is not a host id: give a UUID as in 01234567-89ab-cdef-0123-456789abcdef"
            )
        })?;
    if id == [0; 16] {
        return Err("the host id must not be all zero".to_string());
    }
    Ok(id)
}

fn host_nqn(system: &System, keep: Keep) -> Result<String, Error> {
    for path in [NVME_NQN, OWN_NQN] {
        if let Some(text) = system.read(path).filter(|t| !t.is_empty()) {
            return match nqn::check(&text) {
                Ok(()) => Ok(text),
                Err(why) => Err(Error::new(format!(
                    "{path} has no NQN: {why}; mend or remove the file, or give one with -q"
                ))),
            };
        }
    }
    let made = nqn::from_uuid(&machine_uuid(system)?);
    store(system, OWN_NQN, made, keep, "-q")
}

fn host_id(system: &System, nqn: &str, keep: Keep) -> Result<[u8; 16], Error> {
    for path in [NVME_ID, OWN_ID] {
        if let Some(text) = system.read(path).filter(|t| !t.is_empty()) {
            return parse_id(&text).map_err(|why| {
                Error::new(format!(
                    "{path}: {why}; mend or remove the file, or give one with -I"
                ))
            });
        }
    }
    if let Some(id) = nqn::uuid(nqn).filter(|id| *id != [0; 16]) {
        return Ok(id);
    }
    let made = nqn::format_uuid(&machine_uuid(system)?);
    let kept = store(system, OWN_ID, made, keep, "-I")?;
    parse_id(&kept).map_err(|why| Error::new(format!("{OWN_ID}: {why}")))
}

/// The DMI UUID, unless the firmware's maker left it blank; else a random one.
fn machine_uuid(system: &System) -> Result<[u8; 16], Error> {
    const BLANK: [&str; 3] = [
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "03000200-0400-0500-0006-000700080009",
    ];
    if let Some(text) = system.read(DMI_UUID) {
        let text = text.to_lowercase();
        if let Some(uuid) = nqn::parse_uuid(&text).filter(|_| !BLANK.contains(&text.as_str())) {
            return Ok(uuid);
        }
    }
    random_uuid().map_err(|e| Error::new(format!("{RANDOM}: {e}")))
}

fn random_uuid() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut fs::File::open(RANDOM)?, &mut bytes)?;
    // Version 4, the variant of RFC 4122.
    let v = u128::from_be_bytes(bytes);
    let v = (v & !(0xf << 76)) | (4 << 76);
    let v = (v & !(3 << 62)) | (2 << 62);
    Ok(v.to_be_bytes())
}

/// Keep a value in a file. Whoever comes second finds and uses what the first
/// has written, never half of it.
fn store(
    system: &System,
    path: &str,
    value: String,
    keep: Keep,
    option: &str,
) -> Result<String, Error> {
    match write_once(&system.path(path), &value) {
        Ok(()) => Ok(system.read(path).filter(|t| !t.is_empty()).unwrap_or(value)),
        Err(_) if keep == Keep::Try => Ok(value),
        Err(e) => Err(Error::new(format!(
            "{path} cannot be written ({}): run this as root or give {option}",
            crate::netlink::message::errno_text(e.raw_os_error().unwrap_or(libc::EIO))
        ))),
    }
}

fn write_once(path: &Path, value: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file = fs::File::create(&temporary)?;
        writeln!(file, "{value}")?;
        file.sync_all()?;
        match fs::hard_link(&temporary, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    })();
    let _ = fs::remove_file(&temporary);
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::Machine;

    const UUID: &str = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

    #[test]
    fn given_ones_win() {
        let m = Machine::new(&[(NVME_NQN, "nqn.2024-01.io.example:file\n")]);
        let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}");
        let who = of(&m.system, Some(&nqn), None, Keep::Must).unwrap();
        assert_eq!(who.nqn, nqn);
        assert_eq!(nqn::format_uuid(&who.id), UUID, "taken from the NQN");
        let who = of(&m.system, Some(&nqn), Some([9; 16]), Keep::Must).unwrap();
        assert_eq!(who.id, [9; 16]);
    }

    #[test]
    fn those_of_nvme_cli_come_first() {
        let m = Machine::new(&[
            (NVME_NQN, "nqn.2024-01.io.example:nvme\n"),
            (NVME_ID, &format!("{UUID}\n")),
            (OWN_NQN, "nqn.2024-01.io.example:own\n"),
        ]);
        let who = of(&m.system, None, None, Keep::Must).unwrap();
        assert_eq!(who.nqn, "nqn.2024-01.io.example:nvme");
        assert_eq!(nqn::format_uuid(&who.id), UUID);
    }

    #[test]
    fn made_of_dmi_and_kept() {
        let m = Machine::new(&[(DMI_UUID, &UUID.to_uppercase())]);
        let who = of(&m.system, None, None, Keep::Must).unwrap();
        assert_eq!(who.nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
        m.write(DMI_UUID, "11111111-7dec-11d0-a765-00a0c91e6bf6");
        assert_eq!(of(&m.system, None, None, Keep::Must).unwrap(), who);
        let left: Vec<_> = fs::read_dir(m.system.path("/etc/rflash"))
            .unwrap()
            .collect();
        assert_eq!(left.len(), 1, "no temporary file is left");
    }

    #[test]
    fn made_of_random_bytes_and_kept() {
        let blank = "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF";
        let m = Machine::new(&[(DMI_UUID, blank)]);
        let who = of(&m.system, None, None, Keep::Must).unwrap();
        assert!(!who.nqn.contains("ffffffff"));
        assert_eq!(nqn::check(&who.nqn), Ok(()));
        assert_eq!(who.id[6] >> 4, 4);
        assert_eq!(of(&m.system, None, None, Keep::Must).unwrap(), who);
    }

    #[test]
    fn another_nqn_keeps_the_id_of_the_machine() {
        let m = Machine::new(&[(DMI_UUID, UUID)]);
        let who = of(
            &m.system,
            Some("nqn.2024-01.io.example:a"),
            None,
            Keep::Must,
        )
        .unwrap();
        assert_eq!(nqn::format_uuid(&who.id), UUID);
        assert_eq!(m.system.read(OWN_ID).unwrap(), UUID);
    }

    #[test]
    fn bad_files_are_named() {
        let m = Machine::new(&[(NVME_NQN, "host1\n")]);
        let error = of(&m.system, None, None, Keep::Must)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/etc/nvme/hostnqn has no NQN"), "{error}");
        let m = Machine::new(&[(NVME_ID, "12\n")]);
        let error = of(&m.system, None, None, Keep::Must)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("/etc/nvme/hostid: \"12\" is not a host id"),
            "{error}"
        );
    }

    #[test]
    fn nowhere_to_keep_it() {
        let m = Machine::new(&[("/etc/rflash", "a file")]);
        assert!(of(&m.system, None, None, Keep::Try).is_ok());
        let error = of(&m.system, None, None, Keep::Must)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/etc/rflash/hostnqn cannot be written"),
            "{error}"
        );
    }

    #[test]
    fn ids() {
        assert!(parse_id(UUID).is_ok());
        assert!(parse_id(&UUID.replace('-', "")).is_ok());
        assert!(parse_id("00000000-0000-0000-0000-000000000000").is_err());
        assert!(parse_id("xyz").is_err());
    }
}
