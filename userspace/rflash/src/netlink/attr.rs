// SPDX-License-Identifier: GPL-2.0-only
//! Netlink attributes: length, type and value, padded to four bytes, in the
//! byte order of the machine.

use super::NetlinkError;

const HEADER: usize = 4;
const TYPE_MASK: u16 = 0x3fff;

/// Bytes an attribute or message takes up, padding counted.
pub(super) fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    pub kind: u16,
    pub value: &'a [u8],
    /// Where it begins, from the first byte of what was iterated over.
    pub at: usize,
}

/// Iterates over attributes; one that does not fit is an error, once.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Attrs<'a> {
    pub fn new(bytes: &'a [u8]) -> Attrs<'a> {
        Attrs { bytes, at: 0 }
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|r| !r.is_empty())?;
        let (&[l0, l1, k0, k1], _) = match rest.split_first_chunk::<HEADER>() {
            Some(split) => split,
            None => return self.fail(),
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(value) = rest.get(HEADER..len) else {
            return self.fail();
        };
        let at = self.at;
        self.at += aligned(len);
        Some(Ok(Attr {
            kind: u16::from_ne_bytes([k0, k1]) & TYPE_MASK,
            value,
            at,
        }))
    }
}

impl<'a> Attrs<'a> {
    fn fail(&mut self) -> Option<Result<Attr<'a>, NetlinkError>> {
        self.at = self.bytes.len();
        Some(Err(NetlinkError::Malformed("an attribute is cut off")))
    }
}

impl<'a> Attr<'a> {
    pub fn nested(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    pub fn u16(&self) -> Result<u16, NetlinkError> {
        Ok(u16::from_ne_bytes(self.fixed("an attribute is no u16")?))
    }

    pub fn u32(&self) -> Result<u32, NetlinkError> {
        Ok(u32::from_ne_bytes(self.fixed("an attribute is no u32")?))
    }

    pub fn i32(&self) -> Result<i32, NetlinkError> {
        Ok(i32::from_ne_bytes(self.fixed("an attribute is no s32")?))
    }

    pub fn u64(&self) -> Result<u64, NetlinkError> {
        Ok(u64::from_ne_bytes(self.fixed("an attribute is no u64")?))
    }

    /// A string up to its NUL. It may come from the target: what could harm a
    /// terminal is replaced.
    pub fn string(&self) -> String {
        nvme_wire::fixed_text(self.value)
    }

    pub fn fixed<const N: usize>(&self, what: &'static str) -> Result<[u8; N], NetlinkError> {
        self.value
            .try_into()
            .map_err(|_| NetlinkError::Malformed(what))
    }
}

/// Builds attributes.
#[derive(Clone, Debug, Default)]
pub struct Builder(Vec<u8>);

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Builder {
        // What is too long is cut off; nothing this program sends comes near.
        let value = value.get(..value.len().min(65_000)).unwrap_or_default();
        let len = (HEADER + value.len()) as u16;
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(aligned(self.0.len()), 0);
        self
    }

    pub fn string(self, kind: u16, value: &str) -> Builder {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    pub fn u16(self, kind: u16, value: u16) -> Builder {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn u32(self, kind: u16, value: u32) -> Builder {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn i32(self, kind: u16, value: i32) -> Builder {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn u64(self, kind: u16, value: u64) -> Builder {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn flag(self, kind: u16, set: bool) -> Builder {
        if set { self.bytes(kind, &[]) } else { self }
    }

    pub fn nest(self, kind: u16, inner: Builder) -> Builder {
        self.bytes(kind, &inner.0)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn layout() {
        let bytes = Builder::new()
            .string(4, "tcp")
            .u32(11, 2)
            .flag(18, true)
            .flag(19, false);
        assert_eq!(
            bytes.into_bytes(),
            [
                8, 0, 4, 0, b't', b'c', b'p', 0, 8, 0, 11, 0, 2, 0, 0, 0, 4, 0, 18, 0
            ]
        );
    }

    #[test]
    fn padding_and_positions() {
        let bytes = Builder::new()
            .bytes(1, &[9])
            .u32(0x8000 | 2, 7)
            .into_bytes();
        let all: Vec<Attr> = Attrs::new(&bytes).map(Result::unwrap).collect();
        assert_eq!((all[0].kind, all[0].value, all[0].at), (1, &[9][..], 0));
        assert_eq!((all[1].kind, all[1].at), (2, 8));
        assert_eq!(all[1].u32().unwrap(), 7);
        assert!(all[1].u64().is_err());
    }

    #[test]
    fn cut_off() {
        let bytes = Builder::new().u32(1, 7).into_bytes();
        for len in 1..bytes.len() {
            let all: Vec<_> = Attrs::new(&bytes[..len]).collect();
            assert!(matches!(all[..], [Err(_)]), "{len}");
        }
        let all: Vec<_> = Attrs::new(&[3, 0, 1, 0]).collect();
        assert!(matches!(all[..], [Err(_)]), "shorter than its own header");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for attr in Attrs::new(&bytes).flatten() {
                let _ = (attr.u16(), attr.u32(), attr.u64(), attr.i32(), attr.string());
                let _ = attr.nested().count();
            }
        }

        #[test]
        fn round_trip(values in prop::collection::vec((1u16..0x3fff, prop::collection::vec(any::<u8>(), 0..40)), 0..10)) {
            let built = values.iter().fold(Builder::new(), |b, (k, v)| b.bytes(*k, v)).into_bytes();
            let back: Vec<(u16, Vec<u8>)> = Attrs::new(&built)
                .map(|a| a.map(|a| (a.kind, a.value.to_vec())).unwrap())
                .collect();
            prop_assert_eq!(back, values);
        }
    }
}
