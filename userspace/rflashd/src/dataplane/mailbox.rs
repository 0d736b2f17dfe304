// SPDX-License-Identifier: GPL-2.0-only
//! What other threads tell a core.
//!
//! Looking into an empty mailbox is one relaxed load. A letter costs its sender
//! a lock; the descriptor is only written when the core may be asleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

pub struct Mailbox<T> {
    letters: Mutex<Vec<T>>,
    full: AtomicBool,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl<T> Mailbox<T> {
    pub fn new() -> io::Result<Mailbox<T>> {
        Ok(Mailbox {
            letters: Mutex::new(Vec::new()),
            full: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    pub fn post(&self, letter: T) {
        self.letters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(letter);
        // Sequentially consistent here and in `sleep`: either the core sees the
        // letter before it sleeps, or this thread sees it asleep.
        self.full.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            // Fails only when the counter is full, which wakes the core, too.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    #[inline]
    pub fn has_letters(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub fn take(&self) -> Vec<T> {
        self.full.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The core is about to sleep; `false`: there is a letter, don't.
    pub fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.full.load(Ordering::SeqCst) {
            self.awake();
            return false;
        }
        true
    }

    pub fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Becomes readable when a letter comes while the core sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub fn silence(&self) {
        let mut count = [0; 8];
        // Nothing to read is fine.
        let _ = rustix::io::read(&self.bell, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_arrive_in_order_and_ring_only_sleepers() {
        let mailbox = Mailbox::new().unwrap();
        let mut count = [0; 8];
        assert!(!mailbox.has_letters());
        mailbox.post(1);
        mailbox.post(2);
        assert!(mailbox.has_letters());
        assert!(rustix::io::read(mailbox.bell(), &mut count).is_err());
        assert!(!mailbox.sleep());
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.sleep());
        mailbox.post(3);
        assert!(rustix::io::read(mailbox.bell(), &mut count).is_ok());
        mailbox.awake();
        assert_eq!(mailbox.take(), [3]);
        assert!(!mailbox.has_letters());
    }
}
