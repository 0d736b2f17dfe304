// SPDX-License-Identifier: GPL-2.0-only
//! CRC32C digests over headers and data.

use crate::error::WireError;

/// Bytes of a digest on the wire.
pub const LEN: usize = 4;

/// CRC32C of `bytes`.
pub fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continue a digest over data that comes in pieces; the first piece starts
/// from 0.
pub fn append(digest: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(digest, bytes)
}

/// A digest as it stands on the wire.
pub fn to_wire(digest: u32) -> [u8; LEN] {
    digest.to_le_bytes()
}

/// Compare the digest that follows `bytes` with what they give.
pub fn check(what: &'static str, bytes: &[u8], wire: &[u8]) -> Result<(), WireError> {
    compare(what, of(bytes), wire)
}

/// Compare a digest computed piecewise with the one on the wire.
pub fn compare(what: &'static str, computed: u32, wire: &[u8]) -> Result<(), WireError> {
    let Some(&wire) = wire.first_chunk::<LEN>() else {
        return Err(WireError::Short {
            what,
            have: wire.len(),
            need: LEN,
        });
    };
    let received = u32::from_le_bytes(wire);
    if received != computed {
        return Err(WireError::Digest {
            what,
            received,
            computed,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // The test patterns of RFC 3720, section B.4.
    #[test]
    fn rfc3720_patterns() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(&up), 0x46dd_794e);
        assert_eq!(of(&down), 0x113f_db5c);
        assert_eq!(append(append(0, &up[..7]), &up[7..]), of(&up));
    }

    #[test]
    fn mismatch_is_named() {
        check("header", b"abc", &to_wire(of(b"abc"))).unwrap();
        assert!(matches!(
            check("header", b"abc", &[0; 4]),
            Err(WireError::Digest {
                what: "header",
                received: 0,
                ..
            })
        ));
        assert!(matches!(
            check("data", b"abc", &[0; 3]),
            Err(WireError::Short { .. })
        ));
    }
}
