// SPDX-License-Identifier: GPL-2.0-only
//! NVMe qualified names.

use std::fmt;

/// Longest name, in bytes.
pub const MAX: usize = 223;
/// The well-known name of a discovery controller.
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why a string is no NQN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NqnError {
    Empty,
    TooLong(usize),
    NoPrefix,
    BadDate,
    NoDomain,
    BadCharacter(char),
    BadUuid,
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NqnError::Empty => f.write_str("it is empty"),
            NqnError::TooLong(len) => write!(f, "it has {len} bytes and may have at most {MAX}"),
            NqnError::NoPrefix => f.write_str("it must begin with \"nqn.\""),
            NqnError::BadDate => {
                f.write_str("\"nqn.\" must be followed by a year and a month as in \"2014-08\"")
            }
            NqnError::NoDomain => {
                f.write_str("the date must be followed by \".\" and a reversed domain name")
            }
            NqnError::BadCharacter(c) => write!(
                f,
                "the character {c:?} is not allowed (blanks and control characters are not)"
            ),
            NqnError::BadUuid => f.write_str(
                "\"nqn.2014-08.org.nvmexpress:uuid:\" must be followed by a UUID of the form \
                 01234567-89ab-cdef-0123-456789abcdef",
            ),
        }
    }
}

impl std::error::Error for NqnError {}

/// Check form and length: `nqn.yyyy-mm.reversed.domain[:anything]`.
pub fn check(nqn: &str) -> Result<(), NqnError> {
    if nqn.is_empty() {
        return Err(NqnError::Empty);
    }
    if nqn.len() > MAX {
        return Err(NqnError::TooLong(nqn.len()));
    }
    if let Some(c) = nqn.chars().find(|c| c.is_whitespace() || c.is_control()) {
        return Err(NqnError::BadCharacter(c));
    }
    let rest = nqn.strip_prefix("nqn.").ok_or(NqnError::NoPrefix)?;
    let date = rest.get(..7).ok_or(NqnError::BadDate)?;
    let is_date = date.bytes().enumerate().all(|(i, b)| {
        if i == 4 {
            b == b'-'
        } else {
            b.is_ascii_digit()
        }
    });
    let month = date.get(5..).and_then(|m| m.parse::<u8>().ok());
    if !is_date || !matches!(month, Some(1..=12)) {
        return Err(NqnError::BadDate);
    }
    let domain = rest.get(7..).and_then(|r| r.strip_prefix('.'));
    let domain = domain.and_then(|d| d.split(':').next());
    if domain.is_none_or(str::is_empty) {
        return Err(NqnError::NoDomain);
    }
    if nqn.starts_with(UUID_PREFIX) && uuid(nqn).is_none() {
        return Err(NqnError::BadUuid);
    }
    Ok(())
}

/// The UUID in a name of the form `nqn.2014-08.org.nvmexpress:uuid:UUID`.
pub fn uuid(nqn: &str) -> Option<[u8; 16]> {
    parse_uuid(nqn.strip_prefix(UUID_PREFIX)?)
}

/// A name made of a UUID.
pub fn from_uuid(uuid: &[u8; 16]) -> String {
    format!("{UUID_PREFIX}{}", format_uuid(uuid))
}

/// Parse `01234567-89ab-cdef-0123-456789abcdef`, in either case.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|g| g.len()).collect();
    if lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    parse_hex(&groups.concat())
}

/// Parse 32 hexadecimal digits.
pub fn parse_hex(digits: &str) -> Option<[u8; 16]> {
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}

/// The usual text form of a UUID.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let v = u128::from_be_bytes(*uuid);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        v >> 96,
        (v >> 80) & 0xffff,
        (v >> 64) & 0xffff,
        (v >> 48) & 0xffff,
        v & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_names() {
        for nqn in [
            DISCOVERY,
            "nqn.2024-01.io.example:flash1",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2016-06.io.spdk:cnode1",
            &format!("nqn.2024-01.io.example:{}", "x".repeat(200)),
        ] {
            assert_eq!(check(nqn), Ok(()), "{nqn}");
        }
    }

    #[test]
    fn bad_names() {
        let long = format!("nqn.2024-01.io.example:{}", "x".repeat(201));
        for (nqn, want) in [
            ("", NqnError::Empty),
            (long.as_str(), NqnError::TooLong(224)),
            ("iqn.2024-01.io.example:a", NqnError::NoPrefix),
            ("nqn.24-01.io.example:a", NqnError::BadDate),
            ("nqn.2024-13.io.example:a", NqnError::BadDate),
            ("nqn.2024-01", NqnError::NoDomain),
            ("nqn.2024-01.:a", NqnError::NoDomain),
            ("nqn.2024-01:a", NqnError::NoDomain),
            ("nqn.2024-01.io.example:a b", NqnError::BadCharacter(' ')),
            ("nqn.2014-08.org.nvmexpress:uuid:12", NqnError::BadUuid),
            ("nqn.2024-0\u{e9}", NqnError::BadDate),
        ] {
            assert_eq!(check(nqn), Err(want), "{nqn}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(s in ".*") {
            let _ = check(&s);
            let _ = parse_uuid(&s);
        }

        #[test]
        fn uuid_round_trip(u in any::<[u8; 16]>()) {
            prop_assert_eq!(parse_uuid(&format_uuid(&u)), Some(u));
            prop_assert_eq!(uuid(&from_uuid(&u)), Some(u));
            prop_assert_eq!(check(&from_uuid(&u)), Ok(()));
        }
    }
}
