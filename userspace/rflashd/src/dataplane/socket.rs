// SPDX-License-Identifier: GPL-2.0-only
//! System calls on sockets: those that standard crates would make slower.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use crate::backend::Buffer;

/// What a non-blocking call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Bytes(usize),
    /// Nothing now; the socket's readiness says when.
    Later,
    /// The peer has closed.
    End,
}

fn outcome(n: isize) -> io::Result<Moved> {
    if n > 0 {
        return Ok(Moved::Bytes(n as usize));
    }
    if n == 0 {
        return Ok(Moved::End);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(Moved::Later),
        _ => Err(error),
    }
}

/// Receive into `into`.
#[inline]
pub fn receive(fd: RawFd, into: &mut [u8]) -> io::Result<Moved> {
    if into.is_empty() {
        return Ok(Moved::Later);
    }
    // SAFETY: `into` is good for its length.
    outcome(unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
}

/// Receive into the first `len` bytes from `at` of `first`, then into `rest`.
///
/// # Safety
/// The caller holds `first`, and `at + len` lies inside it.
pub unsafe fn receive_two(
    fd: RawFd,
    first: Buffer,
    at: usize,
    len: usize,
    rest: &mut [u8],
) -> io::Result<Moved> {
    let mut parts = [
        libc::iovec {
            // SAFETY: inside the buffer, by promise.
            iov_base: unsafe { first.ptr.as_ptr().add(at) }.cast(),
            iov_len: len,
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        },
    ];
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: both parts are good for their lengths.
    outcome(unsafe { libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT) })
}

/// Send `pieces`, 1 to IOV_MAX.
///
/// # Safety
/// Each piece is good for reading its length.
#[inline]
pub unsafe fn send(fd: RawFd, pieces: &[libc::iovec]) -> io::Result<Moved> {
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the pieces are good, by promise; sendmsg only reads them.
    let n = unsafe { libc::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    match outcome(n)? {
        Moved::End => Ok(Moved::Later),
        other => Ok(other),
    }
}

/// The CPU on which the socket's packets arrive.
pub fn incoming_cpu(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut cpu: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `cpu` is good for `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            ptr::from_mut(&mut cpu).cast(),
            &mut len,
        )
    };
    if result != 0 {
        return None;
    }
    u32::try_from(cpu).ok()
}

/// Run the calling thread on `cpus` only, and with `priority` (1..=99) as
/// SCHED_RR.
pub fn place_thread(cpus: &[u32], priority: Option<u8>) -> io::Result<()> {
    if !cpus.is_empty() {
        // SAFETY: all zeroes is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in cpus {
            if (cpu as usize) < libc::CPU_SETSIZE as usize {
                // SAFETY: inside the set, as checked.
                unsafe { libc::CPU_SET(cpu as usize, &mut set) };
            }
        }
        // SAFETY: `set` is good for its size; 0 is the calling thread.
        if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(priority) = priority {
        let param = libc::sched_param {
            sched_priority: priority.into(),
        };
        // SAFETY: `param` is good; 0 is the calling thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &param) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
