// SPDX-License-Identifier: GPL-2.0-only
//! Properties: what would be registers on a bus (NVMe base 2.0, 3.1.3).

use nvme_wire::fabrics::{CSTS_FATAL, CSTS_READY, CSTS_SHUTDOWN_DONE, property};

use super::model::MAX_QUEUE;

/// Version 2.0.
pub(super) const VERSION: u32 = 0x0002_0000;

/// Queues are contiguous (CQR), ready within 10 s (TO, units of 500 ms), NVM
/// command set (CSS), pages of 4 KiB, ready with media (CRMS.CRWMS).
const CAP: u64 = (MAX_QUEUE as u64 - 1) | (1 << 16) | (20 << 24) | (1 << 37) | (1 << 59);
/// Ready with media within 500 ms (CRWMT).
const CRTO: u64 = 1;

const EN: u32 = 1;
/// CSS 6:4, MPS 10:7 and AMS 13:11 must be 0: NVM command set, 4 KiB, round
/// robin.
const MODES: u32 = 0x3ff0;
/// Shutdown notification.
const SHN: u32 = 3 << 14;
/// IOSQES and IOCQES: entries of 64 and 16 bytes.
const ENTRIES: u32 = 0xff << 16;
const ENTRIES_NVM: u32 = (6 << 16) | (4 << 20);
/// What a host may write.
const WRITABLE: u32 = EN | MODES | SHN | ENTRIES;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    cc: u32,
    csts: u32,
}

/// What writing CC has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Enabled,
    /// Reset or shut down: queues, event requests and features are void.
    Reset,
}

impl Registers {
    pub fn is_ready(&self) -> bool {
        u64::from(self.csts) & (CSTS_READY | CSTS_FATAL | CSTS_SHUTDOWN_DONE) == CSTS_READY
    }

    /// A property of 8 bytes (`wide`) or 4; `None`: there is no such one.
    pub fn get(&self, offset: u32, wide: bool) -> Option<u64> {
        match (offset, wide) {
            (property::CAP, true) => Some(CAP),
            (property::VS, false) => Some(VERSION.into()),
            (property::CC, false) => Some(self.cc.into()),
            (property::CSTS, false) => Some(self.csts.into()),
            (property::CRTO, false) => Some(CRTO),
            _ => None,
        }
    }

    pub fn set_cc(&mut self, value: u32, discovery: bool) -> Effect {
        let before = self.cc;
        self.cc = value & WRITABLE;
        let turned_on = |bits| self.cc & bits != 0 && before & bits == 0;
        if turned_on(SHN) {
            // Nothing is held back: all that was acknowledged is with the backend.
            self.csts = (self.csts & !(CSTS_READY as u32)) | CSTS_SHUTDOWN_DONE as u32;
            return Effect::Reset;
        }
        if before & EN != 0 && self.cc & EN == 0 {
            self.csts = 0;
            return Effect::Reset;
        }
        if self.cc & SHN == 0 {
            self.csts &= !(CSTS_SHUTDOWN_DONE as u32);
        }
        if turned_on(EN) {
            // Hosts differ in what they write for discovery controllers, whose
            // entries have one size.
            let entries = discovery || self.cc & ENTRIES == ENTRIES_NVM;
            if self.cc & MODES != 0 || !entries {
                self.csts = CSTS_FATAL as u32;
                return Effect::Nothing;
            }
            self.csts = CSTS_READY as u32;
            return Effect::Enabled;
        }
        Effect::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_wire::fabrics::{CC_ENABLE, CC_SHUTDOWN_NORMAL};

    fn csts(registers: &Registers) -> u64 {
        registers.get(property::CSTS, false).unwrap()
    }

    #[test]
    fn enable_shut_down_and_enable_again() {
        let mut r = Registers::default();
        assert_eq!(r.set_cc(CC_ENABLE as u32, false), Effect::Enabled);
        assert_eq!((csts(&r), r.is_ready()), (CSTS_READY, true));
        let shutdown = (CC_ENABLE | CC_SHUTDOWN_NORMAL) as u32;
        assert_eq!(r.set_cc(shutdown, false), Effect::Reset);
        assert_eq!((csts(&r), r.is_ready()), (CSTS_SHUTDOWN_DONE, false));
        assert_eq!(r.set_cc(0, false), Effect::Reset);
        assert_eq!(csts(&r), 0);
        assert_eq!(r.set_cc(CC_ENABLE as u32, false), Effect::Enabled);
        assert!(r.is_ready());
    }

    #[test]
    fn modes_there_are_not() {
        for bad in [1 << 4, 1 << 7, 1 << 11, 1 << 16] {
            let mut r = Registers::default();
            let cc = CC_ENABLE as u32 ^ bad;
            assert_eq!(r.set_cc(cc, false), Effect::Nothing);
            assert_eq!((csts(&r), r.is_ready()), (CSTS_FATAL, false));
            assert_eq!(r.set_cc(0, false), Effect::Reset);
            assert_eq!(csts(&r), 0);
        }
        let mut discovery = Registers::default();
        assert_eq!(discovery.set_cc(1, true), Effect::Enabled);
    }

    #[test]
    fn sizes() {
        let r = Registers::default();
        assert_eq!(r.get(property::CAP, true).unwrap() & 0xffff, 1023);
        assert_eq!(r.get(property::CAP, false), None);
        assert_eq!(r.get(property::VS, true), None);
        assert_eq!(r.get(0x20, false), None);
    }
}
