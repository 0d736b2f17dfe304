// SPDX-License-Identifier: GPL-2.0-only
//! Prints the manual page rflashd(8), made of the command line's own help:
//! `cargo run -p rflashd --example man > ../Documentation/man/rflashd.8`. A test
//! tells when the page in the tree is not of this version.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use rflashd::cli::Cli;

#[cfg_attr(test, allow(dead_code))]
fn main() -> io::Result<()> {
    io::stdout().write_all(&page()?)
}

/// The whole page.
pub fn page() -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let man = Man::new(Cli::command().disable_help_flag(true))
        .section("8")
        .manual("System Administration")
        .source(format!("rflashd {}", env!("CARGO_PKG_VERSION")))
        // No date: the page is the same whenever it is made.
        .date("");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut end = Roff::new();
    end.control("SH", ["SIGNALS"]);
    entries(
        &mut end,
        &[
            (
                "SIGHUP",
                "Read the configuration again. With a mistake in it nothing changes, and the log says why.",
            ),
            (
                "SIGTERM, SIGINT",
                "Accept no more, let requests in flight finish, close the connections, end.",
            ),
        ],
    );
    end.control("SH", ["EXIT STATUS"]);
    end.text([roman("0 if all was done, 1 if something failed, 2 if the command line was wrong. What went wrong is said on standard error.")]);
    end.control("SH", ["FILES"]);
    entries(
        &mut end,
        &[
            ("/etc/rflash/rflashd.toml", "The configuration."),
            (
                "/etc/rflash/rflashd.d/*.toml",
                "More tenants, as rflash-target makes them.",
            ),
            ("/run/rflash/rflashd.sock", "What rflash tenant talks to."),
        ],
    );
    end.control("SH", ["SEE ALSO"]);
    end.text([
        bold("rflashd.toml"),
        roman("(5), "),
        bold("rflash"),
        roman("(8), "),
        bold("rflash-target"),
        roman("(8), "),
        bold("rflash-tune"),
        roman("(8)"),
    ]);
    end.to_writer(&mut out)?;
    Ok(out)
}

fn entries(roff: &mut Roff, all: &[(&str, &str)]) {
    for (name, text) in all {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*text)]);
    }
}
