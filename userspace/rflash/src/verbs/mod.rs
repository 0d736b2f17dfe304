// SPDX-License-Identifier: GPL-2.0-only
//! What the command can do, one file per verb.

pub mod calibrate;
mod connect;
mod connect_all;
mod disconnect;
mod discover;
mod list;
pub mod load;
mod stats;
pub mod tenant;

use std::io::Write;

use clap::CommandFactory;

use crate::cli::{Cli, Format, Verb};
use crate::error::Error;
use crate::netlink::{Client, Socket};
use crate::system::System;
use crate::uapi;

/// Run what the command line says.
pub fn run(cli: Cli) -> Result<(), Error> {
    let system = System::default();
    match cli.verb {
        Verb::Connect(args) => connect::run(&system, &args),
        Verb::Disconnect(args) => disconnect::run(&mut driver()?, &args),
        Verb::List(args) => list::list(&mut driver()?, &args),
        Verb::Show(args) => list::show(&mut driver()?, &args),
        Verb::Stats(args) => stats::run(&mut driver()?, &args),
        Verb::Discover(args) => discover::run(&system, &args),
        Verb::Tenant(args) => tenant::run(&args),
        Verb::Load(args) => load::run(&system, &args),
        Verb::Calibrate(args) => calibrate::run(&args),
        Verb::ConnectAll(args) => connect_all::run(&system, &args),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rflash", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    }
}

/// Whether a word is the name of a verb.
pub fn is_verb(word: &str) -> bool {
    Cli::command()
        .get_subcommands()
        .any(|c| c.get_name() == word)
}

/// The driver of this kernel.
fn driver() -> Result<Client<Socket>, Error> {
    let socket =
        Socket::open().map_err(|e| Error::new(format!("generic netlink cannot be used: {e}")))?;
    Ok(Client::open(socket, uapi::GENL_NAME, uapi::GENL_VERSION)?)
}

/// Write to standard output. A reader that has gone away is no mistake worth a
/// sentence, but the rest was not printed.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Err(Error::Reported),
        Err(e) => Err(Error::new(format!("standard output: {e}"))),
    }
}

/// Say something on standard error, in one write, so that what several of us
/// say at once stays readable.
pub fn note(text: &str) {
    let line = format!("rflash: {text}\n");
    // There is nowhere left to report a failure to.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

impl Format {
    fn is_json(self) -> bool {
        self == Format::Json
    }
}
