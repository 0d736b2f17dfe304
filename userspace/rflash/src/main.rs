// SPDX-License-Identifier: GPL-2.0-only
//! The command `rflash`: reads the command line, prints the one sentence of an
//! error. What it does is in the library.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use rflash::cli::Cli;
use rflash::error::{Error, one_line};
use rflash::verbs;

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => verbs::run(cli),
        Err(error) => usage(&error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            if !text.is_empty() {
                verbs::note(&text);
            }
            error.exit_code()
        }
    }
}

/// Help goes to stdout; a mistake becomes one sentence.
fn usage(error: &clap::Error) -> Result<(), Error> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => verbs::print(&error.to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{error}");
            Err(Error::Usage(String::new()))
        }
        _ => {
            let text = error.to_string();
            let text = text.split("\nUsage:").next().unwrap_or_default();
            let text = text
                .split("\nFor more information")
                .next()
                .unwrap_or_default();
            let text = one_line(text).replace(" tip: ", "; tip: ");
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            let verb = std::env::args().nth(1).filter(|a| verbs::is_verb(a));
            let verb = verb.map_or(String::new(), |v| format!(" {v}"));
            Err(Error::Usage(format!("{text}; see `rflash{verb} --help`")))
        }
    }
}
