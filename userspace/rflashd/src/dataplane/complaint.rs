// SPDX-License-Identifier: GPL-2.0-only
//! Log lines about peers, at a bounded rate: a hostile peer must not fill the
//! log or keep a core busy with writing it.

use std::fmt;

use crate::backend::Nanos;
use crate::subsystem::PeerInfo;

use super::clock::SECOND;

/// Lines per second.
const RATE: u32 = 10;

#[derive(Default)]
pub struct Complaints {
    second: Nanos,
    said: u32,
    swallowed: u64,
}

impl Complaints {
    pub fn say(&mut self, now: Nanos, peer: &PeerInfo, qid: u16, what: &dyn fmt::Display) {
        let second = now / SECOND;
        if second != self.second {
            self.second = second;
            self.said = 0;
            if self.swallowed > 0 {
                log::warn!("{} more lines about peers were left out", self.swallowed);
                self.swallowed = 0;
            }
        }
        if self.said >= RATE {
            self.swallowed += 1;
            return;
        }
        self.said += 1;
        log::warn!("connection from {} (queue {qid}): {what}", peer.remote);
    }
}
