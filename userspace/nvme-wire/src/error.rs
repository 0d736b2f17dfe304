// SPDX-License-Identifier: GPL-2.0-only
//! What can be wrong with bytes from a peer.

use std::fmt;

/// What a field should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Is(u64),
    OneOf(&'static [u64]),
    Range(u64, u64),
    AtLeast(u64),
    AtMost(u64),
    MultipleOf(u64),
    /// Anything else, in words that complete "must be …".
    Words(&'static str),
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Want::Is(v) => write!(f, "{v}"),
            Want::Range(low, high) => write!(f, "{low} to {high}"),
            Want::AtLeast(v) => write!(f, "at least {v}"),
            Want::AtMost(v) => write!(f, "at most {v}"),
            Want::MultipleOf(v) => write!(f, "a multiple of {v}"),
            Want::Words(words) => f.write_str(words),
            Want::OneOf(values) => {
                f.write_str("one of")?;
                for (i, v) in values.iter().enumerate() {
                    write!(f, "{} {v}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

/// A violation of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the structure has.
    Short {
        what: &'static str,
        have: usize,
        need: usize,
    },
    /// A number that must not be what it is.
    Field {
        what: &'static str,
        field: &'static str,
        value: u64,
        want: Want,
    },
    /// A string that is not what the standard allows.
    Text {
        what: &'static str,
        field: &'static str,
        why: &'static str,
    },
    /// A digest that does not match the bytes it covers.
    Digest {
        what: &'static str,
        received: u32,
        computed: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Short { what, have, need } => {
                write!(f, "{what} is cut off: {have} bytes, must be {need}")
            }
            WireError::Field {
                what,
                field,
                value,
                want,
            } => write!(f, "{what}: {field} is {value}, must be {want}"),
            WireError::Text { what, field, why } => write!(f, "{what}: {field} {why}"),
            WireError::Digest {
                what,
                received,
                computed,
            } => write!(
                f,
                "{what} digest is {received:#010x}, its bytes give {computed:#010x}"
            ),
        }
    }
}

impl std::error::Error for WireError {}

pub(crate) fn field(what: &'static str, field: &'static str, value: u64, want: Want) -> WireError {
    WireError::Field {
        what,
        field,
        value,
        want,
    }
}

/// The first `size_of::<T>()` bytes as `T`, in place.
pub(crate) fn prefix<'a, T>(what: &'static str, bytes: &'a [u8]) -> Result<&'a T, WireError>
where
    T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    match T::ref_from_prefix(bytes) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(WireError::Short {
            what,
            have: bytes.len(),
            need: size_of::<T>(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        assert_eq!(
            field("ICResp", "maxh2cdata", 100, Want::AtLeast(4096)).to_string(),
            "ICResp: maxh2cdata is 100, must be at least 4096"
        );
        assert_eq!(
            field("PDU", "type", 8, Want::OneOf(&[1, 3])).to_string(),
            "PDU: type is 8, must be one of 1, 3"
        );
    }
}
