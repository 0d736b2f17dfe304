// SPDX-License-Identifier: GPL-2.0-only
//! Readiness of descriptors: epoll with timeouts in nanoseconds.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::backend::Nanos;

use super::clock::{MILLISECOND, SECOND};

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// What it was added with.
    pub key: u64,
    pub writable: bool,
    /// Data, end of stream or error: all of them show when receiving.
    pub readable: bool,
}

pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// The kernel has epoll_pwait2 (5.11).
    precise: bool,
}

const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

impl Poller {
    pub fn new() -> io::Result<Poller> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Poller {
            // SAFETY: open, and nobody else has it.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
            precise: true,
        })
    }

    /// Tell of every change of a socket once.
    pub fn add_socket(&self, fd: RawFd, key: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.add(fd, events as u32, key)
    }

    /// Tell as long as `fd` is readable.
    pub fn add_readable(&self, fd: RawFd, key: u64) -> io::Result<()> {
        self.add(fd, libc::EPOLLIN as u32, key)
    }

    fn add(&self, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` is good during the call.
        let result =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    pub fn remove(&self, fd: RawFd) {
        // SAFETY: a null event is allowed for DEL. Fails only for what is not
        // there.
        unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                ptr::null_mut(),
            )
        };
    }

    /// Wait up to `timeout` and return what is ready.
    pub fn wait(&mut self, timeout: Nanos) -> impl Iterator<Item = Ready> + '_ {
        let n = self.wait_for(timeout);
        let ready = self.events.get(..n).unwrap_or_default();
        ready.iter().map(|event| {
            let events = event.events;
            Ready {
                key: event.u64,
                writable: events & libc::EPOLLOUT as u32 != 0,
                readable: events & READ != 0,
            }
        })
    }

    /// Errors count as nothing ready: a signal, or a kernel without the call.
    fn wait_for(&mut self, timeout: Nanos) -> usize {
        let fd = self.epoll.as_raw_fd();
        let (events, most) = (self.events.as_mut_ptr(), self.events.len() as libc::c_int);
        if timeout > 0 && self.precise {
            let time = libc::timespec {
                tv_sec: (timeout / SECOND) as libc::time_t,
                tv_nsec: (timeout % SECOND) as libc::c_long,
            };
            // SAFETY: `events` is good for `most` entries, `time` during the call.
            let n = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    fd,
                    events,
                    most,
                    ptr::from_ref(&time),
                    ptr::null::<libc::sigset_t>(),
                    0_usize,
                )
            };
            if n >= 0 {
                return n as usize;
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOSYS) {
                return 0;
            }
            self.precise = false;
        }
        let millis = timeout.div_ceil(MILLISECOND).min(1000) as libc::c_int;
        // SAFETY: `events` is good for `most` entries.
        let n = unsafe { libc::epoll_wait(fd, events, most, millis) };
        usize::try_from(n).unwrap_or(0)
    }
}
