// SPDX-License-Identifier: GPL-2.0-only
//! The manual page in the tree is that of this command line.
#![allow(clippy::unwrap_used)]

#[path = "../examples/man.rs"]
mod man;

#[test]
fn page_is_current() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../Documentation/man/rflashd.8"
    );
    let ours = String::from_utf8(man::page().unwrap()).unwrap();
    let theirs = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        ours == theirs,
        "Documentation/man/rflashd.8 is not of this version: make it again by\n\
         cargo run -p rflashd --example man > ../Documentation/man/rflashd.8"
    );
}
