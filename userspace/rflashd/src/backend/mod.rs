// SPDX-License-Identifier: GPL-2.0-only

pub mod model;
pub mod null;
pub mod ram;
pub mod uring;
