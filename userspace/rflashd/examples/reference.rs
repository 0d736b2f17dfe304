// SPDX-License-Identifier: GPL-2.0-only
//! Prints the reference of rflashd's configuration, made of its types:
//! `cargo run -p rflashd --example reference > ../Documentation/rflashd-config.rst`
//! and, with `man`, `> ../Documentation/man/rflashd.toml.5`.

use std::io::{self, Write};

use rflashd::config::reference;

fn main() -> io::Result<()> {
    let text = match std::env::args().nth(1).as_deref() {
        Some("man") => reference::manual(),
        _ => reference::page(),
    };
    io::stdout().write_all(text.as_bytes())
}
