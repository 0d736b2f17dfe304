// SPDX-License-Identifier: GPL-2.0-only
//! The data plane over loopback, with hosts made by hand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod bad;
mod crowd;
mod host;
mod io;
mod stop;
