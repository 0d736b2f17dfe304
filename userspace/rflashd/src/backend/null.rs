// SPDX-License-Identifier: GPL-2.0-only
//! A disk that keeps nothing: what the rest of the server can do without one.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use nvme_wire::status::Status;

use super::{Io, IoOp};

/// Greatest transfer: what Identify Controller announces as MDTS.
const LEN: usize = 1 << 20;

#[repr(align(4096))]
struct Zeroes([u8; LEN]);

static ZEROES: Zeroes = Zeroes([0; LEN]);

/// Where `len` zero bytes stand.
#[inline]
pub fn place(len: u32) -> Option<NonNull<u8>> {
    ZEROES
        .0
        .get(..len as usize)
        .map(|z| NonNull::from(z).cast())
}

/// Run an I/O: reads give zeroes.
///
/// # Safety
/// The buffer of a read must be valid for `io.len` bytes.
pub unsafe fn run(io: &Io) -> Status {
    if io.op == IoOp::Read {
        // SAFETY: the caller's promise.
        unsafe { io.buffer.ptr.write_bytes(0, io.len as usize) };
    }
    Status::SUCCESS
}
