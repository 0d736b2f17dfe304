// SPDX-License-Identifier: GPL-2.0-only
//! Random numbers that are the same everywhere: SplitMix64 (Steele, Lea, Flood:
//! "Fast splittable pseudorandom number generators", OOPSLA 2014).

#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `n`; 0 when `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1: gaps of a Poisson process.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means() {
        let mut rng = Rng::new(1);
        let n = 500_000;
        let unit: f64 = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        let exponential: f64 = (0..n).map(|_| rng.exponential()).sum::<f64>() / f64::from(n);
        assert!((unit - 0.5).abs() < 0.005, "{unit}");
        assert!((exponential - 1.0).abs() < 0.005, "{exponential}");
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }
}
