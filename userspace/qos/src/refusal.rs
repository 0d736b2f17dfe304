// SPDX-License-Identifier: GPL-2.0-only
//! Why a tenant was not admitted, and what would have been.

use std::fmt;

/// One sentence, by [`fmt::Display`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many tenants as the device was set up for.
    Full { capacity: usize },
    /// Another tenant has this name.
    NameTaken { name: String },
    /// There is no such tenant.
    Unknown { tenant: u32 },
    /// A value that no device can serve.
    Value {
        name: String,
        what: &'static str,
        value: u64,
        least: u64,
        most: u64,
    },
    /// The device's curve begins at a greater latency.
    TooStrict {
        name: String,
        p95_us: u32,
        least_us: u32,
    },
    /// The device can't bear it, with what the others were promised.
    TooMuch {
        name: String,
        /// Tokens a second that all would need, and that the device has for promises.
        needed: u64,
        available: u64,
        /// The strictest latency among all, at which the device would have to run.
        p95_us: u32,
        /// IOPS that would fit, all else as asked for; zero when none.
        fits_iops: u32,
        /// Latency at which it would fit, all else as asked for.
        fits_p95_us: Option<u32>,
    },
    /// It may write, or nobody says that it won't; the others were promised what
    /// the device can only do while nobody writes.
    EndsReadOnly {
        name: String,
        needed: u64,
        available: u64,
    },
    /// The weights' sum would be too large.
    Weights { name: String, left: u64 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full { capacity } => {
                write!(
                    f,
                    "the device has {capacity} tenants already, as many as it was set up for"
                )
            }
            Refusal::NameTaken { name } => write!(f, "there is a tenant {name:?} already"),
            Refusal::Unknown { tenant } => write!(f, "there is no tenant number {tenant}"),
            Refusal::Value {
                name,
                what,
                value,
                least,
                most,
            } => {
                write!(
                    f,
                    "tenant {name:?}: {what} is {value}; it is between {least} and {most}"
                )
            }
            Refusal::TooStrict {
                name,
                p95_us,
                least_us,
            } => write!(
                f,
                "tenant {name:?}: nothing is known about this device at a p95 of {p95_us} µs; ask for {least_us} µs or more"
            ),
            Refusal::TooMuch { .. } => self.too_much(f),
            Refusal::EndsReadOnly {
                name,
                needed,
                available,
            } => write!(
                f,
                "tenant {name:?} may write, and with writes the device has {} M tokens/s for promises, of which the others hold {} M; a latency-critical tenant with 100 % reads would fit",
                millions(*available),
                millions(*needed)
            ),
            Refusal::Weights { name, left } => {
                write!(
                    f,
                    "tenant {name:?}: the sum of all weights would be too large; {left} would fit"
                )
            }
        }
    }
}

impl Refusal {
    fn too_much(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal::TooMuch {
            name,
            needed,
            available,
            p95_us,
            fits_iops,
            fits_p95_us,
        } = self
        else {
            return Ok(());
        };
        write!(
            f,
            "tenant {name:?}: all promises together would need {} M tokens/s, and the device has {} M for them at a p95 of {p95_us} µs",
            millions(*needed),
            millions(*available),
        )?;
        match (fits_iops, fits_p95_us) {
            (0, None) => write!(f, "; no such tenant fits, a best-effort one does"),
            (0, Some(p95)) => write!(f, "; a p95 of {p95} µs would fit"),
            (iops, None) => write!(f, "; {iops} IOPS would fit"),
            (iops, Some(p95)) => write!(f, "; {iops} IOPS would fit, or a p95 of {p95} µs"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Tokens in millions, one decimal.
pub(crate) fn millions(tokens: u64) -> String {
    format!("{}.{}", tokens / 1_000_000, tokens % 1_000_000 / 100_000)
}
