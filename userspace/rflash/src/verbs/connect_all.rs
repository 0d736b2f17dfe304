// SPDX-License-Identifier: GPL-2.0-only
//! `rflash connect-all`.

use crate::cli::ConnectAllArgs;
use crate::config;
use crate::control::Control;
use crate::error::Error;
use crate::system::System;

use super::{connect, driver, note, print};

pub fn run(system: &System, args: &ConnectAllArgs) -> Result<(), Error> {
    let mut failed = false;
    let mut report = |error: &Error| {
        note(&error.to_string());
        failed = true;
    };
    let mut entries = Vec::new();
    for file in config::files(&args.config)? {
        let (good, errors) = config::read(&file);
        errors.iter().for_each(&mut report);
        entries.extend(good);
    }
    let mut control = None;
    for entry in &entries {
        let checked = match entry.options.check(system) {
            Ok(checked) => checked,
            Err(problem) => {
                report(&entry.problem(&problem));
                continue;
            }
        };
        // Only what is right needs the driver, and all of it needs it.
        let control = match &mut control {
            Some(control) => control,
            None => control.insert(driver()?),
        };
        match connect_entry(control, system, checked) {
            Ok(paths) => print(&paths)?,
            Err(error) => report(&entry.failure(&error)),
        }
    }
    if failed {
        return Err(Error::Reported);
    }
    if entries.is_empty() {
        note(&format!(
            "nothing to connect: no entries in {}",
            args.config.display()
        ));
    }
    Ok(())
}

fn connect_entry(
    control: &mut impl Control,
    system: &System,
    checked: crate::options::Checked,
) -> Result<String, Error> {
    let controller = connect::connect(control, system, checked)?;
    Ok(connect::device_paths(&controller))
}
