// SPDX-License-Identifier: GPL-2.0-only
//! When the next command should begin, and what it should be.

/// A small fast generator of random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero; neighbouring seeds should not look alike.
        let mixed = (seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random((mixed ^ (mixed >> 29)) | 1)
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        let mut x = self.0;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0 to `below` - 1.
    #[inline]
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(below)) >> 64) as u64
    }
}

/// Intended starts of an open loop: evenly spaced, whatever happens to those
/// that were started before.
#[derive(Clone, Debug)]
pub struct Starts {
    /// First start, ns of the run's clock.
    first: f64,
    interval: f64,
    next: u64,
}

impl Starts {
    /// `rate` per second of thread `thread` of `threads`, whose starts lie
    /// between those of the others.
    pub fn new(begin: u64, rate: f64, thread: usize, threads: usize) -> Starts {
        let all = 1e9 / (rate * threads as f64);
        Starts {
            first: begin as f64 + all * thread as f64,
            interval: 1e9 / rate,
            next: 0,
        }
    }

    /// The next intended start.
    #[inline]
    pub fn peek(&self) -> u64 {
        (self.first + self.interval * self.next as f64) as u64
    }

    #[inline]
    pub fn take(&mut self) {
        self.next += 1;
    }

    /// Starts that were due by `now` and not taken.
    pub fn behind(&self, now: u64) -> u64 {
        let due = (now as f64 - self.first) / self.interval + 1.0;
        (due.max(0.0) as u64).saturating_sub(self.next)
    }
}

/// The addresses of one connection, in units of one transfer.
#[derive(Clone, Debug)]
pub struct Addresses {
    first: u64,
    count: u64,
    next: u64,
    random: bool,
}

impl Addresses {
    /// `count` units from `first`, in order or at random.
    pub fn new(first: u64, count: u64, random: bool) -> Addresses {
        Addresses {
            first,
            count: count.max(1),
            next: 0,
            random,
        }
    }

    #[inline]
    pub fn next(&mut self, random: &mut Random) -> u64 {
        if self.random {
            return self.first + random.below(self.count);
        }
        let at = self.next;
        self.next = if at + 1 == self.count { 0 } else { at + 1 };
        self.first + at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_evenly_spaced() {
        let mut a = Starts::new(1000, 500_000.0, 0, 2);
        let mut b = Starts::new(1000, 500_000.0, 1, 2);
        assert_eq!((a.peek(), b.peek()), (1000, 2000));
        a.take();
        b.take();
        assert_eq!((a.peek(), b.peek()), (3000, 4000));
        assert_eq!(a.behind(9500), 4, "3000, 5000, 7000 and 9000 are due");
        for _ in 0..500_000 {
            a.take();
        }
        assert_eq!(a.peek(), 1_000_003_000, "no drift");
    }

    #[test]
    fn addresses() {
        let mut random = Random::new(0);
        let mut a = Addresses::new(10, 3, false);
        let got: Vec<u64> = (0..5).map(|_| a.next(&mut random)).collect();
        assert_eq!(got, [10, 11, 12, 10, 11]);
        let mut a = Addresses::new(10, 4, true);
        let mut seen = [0; 4];
        for _ in 0..4000 {
            seen[(a.next(&mut random) - 10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
    }
}
