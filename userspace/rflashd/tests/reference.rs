// SPDX-License-Identifier: GPL-2.0-only
//! The reference and the manual page in the tree are those of these types.
#![allow(clippy::unwrap_used)]

use rflashd::config::reference;

fn same(file: &str, ours: &str, how: &str) {
    let path = format!("{}/../../Documentation/{file}", env!("CARGO_MANIFEST_DIR"));
    let theirs = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        ours == theirs,
        "Documentation/{file} is not of this version: make it again by\n\
         cargo run -p rflashd --example reference {how}> ../Documentation/{file}"
    );
}

#[test]
fn the_page_is_current() {
    same("rflashd-config.rst", &reference::page(), "");
}

#[test]
fn the_manual_page_is_current() {
    same("man/rflashd.toml.5", &reference::manual(), "-- man ");
}
