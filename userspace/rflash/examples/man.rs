// SPDX-License-Identifier: GPL-2.0-only
//! Prints the manual page rflash(8), made of the command line's own help:
//! `cargo run -p rflash --example man > ../Documentation/man/rflash.8`. A test
//! tells when the page in the tree is not of this version.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use rflash::cli::Cli;

#[cfg_attr(test, allow(dead_code))]
fn main() -> io::Result<()> {
    io::stdout().write_all(&page()?)
}

/// The whole page.
pub fn page() -> io::Result<Vec<u8>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut out = Vec::new();
    let man = Man::new(command.clone())
        .section("8")
        .manual("System Administration")
        .source(format!("rflash {}", env!("CARGO_PKG_VERSION")))
        // No date: the page is the same whenever it is made.
        .date("");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    for verb in command.get_subcommands() {
        render_verb(verb, &mut out)?;
    }
    let mut end = Roff::new();
    section(&mut end, "EXIT STATUS");
    end.text([roman("0 if all was done, 1 if something failed, 2 if the command line was wrong. What went wrong is said on standard error in one sentence.")]);
    section(&mut end, "FILES");
    for (file, text) in [
        (
            "/etc/rflash/*.toml",
            "What connect-all connects to; rflashd.toml is left out, it is the server's.",
        ),
        (
            "/etc/nvme/hostnqn, /etc/nvme/hostid",
            "Identity of this host, shared with nvme-cli; used if they are there.",
        ),
        (
            "/etc/rflash/hostnqn, /etc/rflash/hostid",
            "Identity of this host otherwise; made at the first connect.",
        ),
        (
            "/dev/rflashN, /dev/rflashNpM",
            "The block devices and their partitions.",
        ),
        (
            "/dev/disk/by-id/rflash-*",
            "Links by which a device is found again whatever its number.",
        ),
    ] {
        end.control("TP", []);
        end.text([bold(file)]);
        end.text([roman(text)]);
    }
    section(&mut end, "SEE ALSO");
    end.text([
        bold("nvme"),
        roman("(1), "),
        bold("modprobe"),
        roman("(8), "),
        bold("systemd.mount"),
        roman("(5)"),
    ]);
    end.to_writer(&mut out)?;
    Ok(out)
}

fn section(roff: &mut Roff, title: &str) {
    roff.control("SH", [title]);
}

fn render_verb(verb: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_string();
    let mut head = Roff::new();
    section(
        &mut head,
        &format!("rflash {}", verb.get_name()).to_uppercase(),
    );
    head.text([bold(usage)]);
    let about = verb.get_long_about().or(verb.get_about());
    for paragraph in about
        .map(ToString::to_string)
        .unwrap_or_default()
        .split("\n\n")
    {
        head.control("PP", []);
        head.text([roman(paragraph.replace('\n', " "))]);
    }
    head.to_writer(out)?;
    let verb = verb.clone().disable_help_flag(true);
    let mut options = Vec::new();
    Man::new(verb.clone()).render_options_section(&mut options)?;
    let options = String::from_utf8_lossy(&options).replace(".SH OPTIONS\n", ".PP\nOptions:\n");
    out.write_all(options.as_bytes())?;
    let Some(examples) = verb.get_after_long_help() else {
        return Ok(());
    };
    let mut tail = Roff::new();
    tail.control("PP", []);
    let mut lines = examples.to_string();
    if let Some((title, rest)) = lines.clone().split_once('\n') {
        tail.text([roman(title)]);
        lines = rest.to_string();
    }
    tail.control("nf", []);
    for line in lines.lines() {
        tail.text([roman(line)]);
    }
    tail.control("fi", []);
    tail.to_writer(out)
}
