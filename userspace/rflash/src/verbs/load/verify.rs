// SPDX-License-Identifier: GPL-2.0-only
//! Does what is read agree with what was written?
//!
//! Every unit (one transfer) has a version, counted from the first write of this
//! run; its bytes follow from its address, the version and the run. A unit has
//! one command outstanding at most, so that what a read must return is never in
//! doubt. Units this run has not written yet are read, not judged.

/// One connection's units.
pub struct Verifier {
    /// First unit.
    first: u64,
    /// Last version that was acknowledged, 0: none.
    acked: Vec<u32>,
    busy: Vec<bool>,
    /// By slot: unit, counted from `first`, and the version to be written.
    uses: Vec<(usize, u32)>,
    /// By slot: what was read.
    read: Vec<u8>,
    bytes: usize,
    run: u64,
    /// The next unit of the last check.
    swept: usize,
}

impl Verifier {
    pub fn new(first: u64, count: u64, depth: u32, bytes: u32, run: u64) -> Verifier {
        let count = count as usize;
        Verifier {
            first,
            acked: vec![0; count],
            busy: vec![false; count],
            uses: vec![(0, 0); depth as usize],
            read: vec![0; depth as usize * bytes as usize],
            bytes: bytes as usize,
            run,
            swept: 0,
        }
    }

    /// The unit, or the next one that has no command outstanding; `None` if all
    /// have.
    pub fn choose(&self, unit: u64) -> Option<u64> {
        let wanted = (unit - self.first) as usize;
        let (before, from) = self.busy.split_at_checked(wanted)?;
        let free = |b: &bool| !b;
        let at = match from.iter().position(free) {
            Some(n) => wanted + n,
            None => before.iter().position(free)?,
        };
        Some(self.first + at as u64)
    }

    /// A slot gets a command; of a write, fill its buffer.
    pub fn begin(&mut self, slot: u16, unit: u64, write: Option<&mut [u8]>) {
        let at = (unit - self.first) as usize;
        let version = self.acked.get(at).map_or(0, |v| v.wrapping_add(1).max(1));
        if let Some(busy) = self.busy.get_mut(at) {
            *busy = true;
        }
        if let Some(entry) = self.uses.get_mut(usize::from(slot)) {
            *entry = (at, version);
        }
        if let Some(buffer) = write {
            for (chunk, word) in buffer.chunks_mut(8).zip(words(self.run, unit, version)) {
                for (to, from) in chunk.iter_mut().zip(word.to_le_bytes()) {
                    *to = from;
                }
            }
        }
    }

    /// A piece of what a slot reads.
    pub fn data(&mut self, slot: u16, offset: u32, piece: &[u8]) {
        let at = usize::from(slot) * self.bytes + offset as usize;
        let place = self.read.get_mut(at..).unwrap_or_default();
        for (to, from) in place.iter_mut().zip(piece) {
            *to = *from;
        }
    }

    /// A slot's command ended well. An error says what is wrong.
    pub fn end(&mut self, slot: u16, write: bool) -> Result<(), String> {
        let slot = usize::from(slot);
        let Some(&(at, version)) = self.uses.get(slot) else {
            return Ok(());
        };
        if let Some(busy) = self.busy.get_mut(at) {
            *busy = false;
        }
        let Some(acked) = self.acked.get_mut(at) else {
            return Ok(());
        };
        if write {
            *acked = version;
            return Ok(());
        }
        if *acked == 0 {
            return Ok(());
        }
        let acked = *acked;
        let unit = self.first + at as u64;
        let got = self.read.get(slot * self.bytes..).unwrap_or_default();
        let got = got.get(..self.bytes).unwrap_or_default();
        let wrong = got
            .chunks(8)
            .zip(words(self.run, unit, acked))
            .position(|(chunk, word)| chunk != word.to_le_bytes());
        let Some(wrong) = wrong else {
            return Ok(());
        };
        Err(format!(
            "the {} bytes at offset {} are not what was written last: they differ from byte {}{}",
            self.bytes,
            unit * self.bytes as u64,
            wrong * 8,
            self.guess(got, acked),
        ))
    }

    /// What stands there instead, if it is known.
    fn guess(&self, got: &[u8], acked: u32) -> String {
        let word = |i: usize| {
            let bytes = got.get(i * 8..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        match (word(0), word(1)) {
            (Some(unit), Some(tag)) if tag >> 32 == self.run & 0xffff_ffff => format!(
                ", they have version {} of offset {}, not version {acked}",
                tag & 0xffff_ffff,
                unit.wrapping_mul(self.bytes as u64),
            ),
            _ if got.iter().all(|&b| b == 0) => ", all are zero".into(),
            _ => String::new(),
        }
    }

    /// The next unit to be read in the last check.
    pub fn sweep(&mut self) -> Option<u64> {
        let rest = self.acked.get(self.swept..)?;
        let n = rest.iter().position(|&v| v != 0)?;
        let at = self.swept + n;
        self.swept = at + 1;
        Some(self.first + at as u64)
    }

    /// Units that were written.
    pub fn written(&self) -> u64 {
        self.acked.iter().filter(|&&v| v != 0).count() as u64
    }
}

/// The content of a unit: its address, run and version, then words that depend
/// on all three.
fn words(run: u64, unit: u64, version: u32) -> impl Iterator<Item = u64> {
    let tag = (run << 32) | u64::from(version);
    let mut state = unit ^ tag.rotate_left(17) ^ run;
    [unit, tag].into_iter().chain(std::iter::from_fn(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Some(x ^ (x >> 27))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(v: &mut Verifier, slot: u16, unit: u64) -> Vec<u8> {
        let mut data = vec![0; 512];
        v.begin(slot, unit, Some(&mut data));
        v.end(slot, true).unwrap();
        data
    }

    fn read(v: &mut Verifier, unit: u64, data: &[u8]) -> Result<(), String> {
        v.begin(1, unit, None);
        v.data(1, 0, &data[..100]);
        v.data(1, 100, &data[100..]);
        v.end(1, false)
    }

    #[test]
    fn stale_moved_and_lost_data_is_found() {
        let mut v = Verifier::new(100, 10, 2, 512, 7);
        assert_eq!(read(&mut v, 105, &[9; 512]), Ok(()), "never written");
        let old = written(&mut v, 0, 105);
        let new = written(&mut v, 0, 105);
        assert_eq!(read(&mut v, 105, &new), Ok(()));
        let stale = read(&mut v, 105, &old).unwrap_err();
        assert!(
            stale.contains("version 1 of offset 53760, not version 2"),
            "{stale}"
        );
        let other = written(&mut v, 0, 106);
        let moved = read(&mut v, 105, &other).unwrap_err();
        assert!(moved.contains("of offset 54272"), "{moved}");
        let lost = read(&mut v, 105, &[0; 512]).unwrap_err();
        assert!(lost.ends_with("from byte 0, all are zero"), "{lost}");
        let mut torn = new.clone();
        torn[300] ^= 1;
        let torn = read(&mut v, 105, &torn).unwrap_err();
        assert!(torn.contains("from byte 296"), "{torn}");
    }

    #[test]
    fn a_unit_has_one_command() {
        let mut v = Verifier::new(0, 3, 3, 512, 7);
        assert_eq!(v.choose(2), Some(2));
        v.begin(0, 2, None);
        assert_eq!(v.choose(2), Some(0));
        v.begin(1, 0, None);
        v.begin(2, 1, None);
        assert_eq!(v.choose(2), None);
        v.end(1, true).unwrap();
        assert_eq!((v.choose(1), v.written()), (Some(0), 1));
        assert_eq!((v.sweep(), v.sweep()), (Some(0), None));
    }
}
