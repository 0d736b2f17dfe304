// SPDX-License-Identifier: GPL-2.0-only
//! Tenants: two vendor-specific admin commands and how a host knows that a
//! controller has them.
//!
//! Identify Controller says so in its vendor area (bytes 3072..3088, see
//! [`Signature`]); to a controller that does not, these commands must not be
//! sent. Tenant Set (0xc1) carries a [`TenantData`] to the controller, Tenant
//! Get (0xc2) fetches the one in force. Both have the standard's format of
//! vendor-specific commands (NVMe base 2.0, 5.1.2): CDW10 is the number of
//! dwords that are transferred. NSID is 0: a tenant is a host in a subsystem.

use std::fmt;
use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::error::{Want, WireError, field, prefix};
use crate::identify;

/// Version of [`TenantData`] and of the commands.
pub const VERSION: u8 = 1;
/// Bytes of [`TenantData`].
pub const LEN: usize = 64;

/// Opcodes.
pub mod opcode {
    /// Host to controller.
    pub const TENANT_SET: u8 = 0xc1;
    /// Controller to host.
    pub const TENANT_GET: u8 = 0xc2;
}

const LATENCY_CRITICAL: u8 = 1;
const BEST_EFFORT: u8 = 2;
const MAGIC: [u8; 8] = *b"rflash\0\0";

/// What the server promises a tenant, or what a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    LatencyCritical {
        /// p95 of the latency of reads, µs; at least 1.
        p95_us: u32,
        /// Reads and writes per second; at least 1.
        iops: u32,
        /// Reads among them, 0..=100 %.
        read_pct: u8,
        /// Bytes per read or write, 512..=1 MiB, a multiple of 512.
        block: u32,
    },
    BestEffort {
        /// Share among best-effort tenants, at least 1.
        weight: u32,
    },
}

/// The data of Tenant Set and Tenant Get. Fields of the other class are 0.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct TenantData {
    pub version: u8,
    /// 1 latency-critical, 2 best-effort.
    pub class: u8,
    pub read_pct: u8,
    pub reserved3: u8,
    pub p95_us: U32,
    pub iops: U32,
    pub block: U32,
    pub weight: U32,
    pub reserved20: [u8; 28],
    pub reserved48: [u8; 16],
}

/// Head of Identify Controller's vendor area.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Signature {
    pub magic: [u8; 8],
    /// Highest [`VERSION`] the controller knows.
    pub version: U16,
    pub reserved10: [u8; 6],
}

const _: () = {
    assert!(size_of::<TenantData>() == LEN);
    assert!(offset_of!(TenantData, p95_us) == 4);
    assert!(offset_of!(TenantData, iops) == 8);
    assert!(offset_of!(TenantData, block) == 12);
    assert!(offset_of!(TenantData, weight) == 16);
    assert!(size_of::<Signature>() == 16);
    assert!(offset_of!(Signature, version) == 8);
    assert!(offset_of!(identify::Controller, vendor) == 3072);
};

impl Class {
    pub fn data(&self) -> TenantData {
        let data = TenantData {
            version: VERSION,
            ..TenantData::default()
        };
        match *self {
            Class::LatencyCritical {
                p95_us,
                iops,
                read_pct,
                block,
            } => TenantData {
                class: LATENCY_CRITICAL,
                read_pct,
                p95_us: U32::new(p95_us),
                iops: U32::new(iops),
                block: U32::new(block),
                ..data
            },
            Class::BestEffort { weight } => TenantData {
                class: BEST_EFFORT,
                weight: U32::new(weight),
                ..data
            },
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::LatencyCritical {
                p95_us,
                iops,
                read_pct,
                block,
            } => write!(
                f,
                "latency-critical: p95 {p95_us} us, {iops} IOPS of {block} bytes, {read_pct} % reads"
            ),
            Class::BestEffort { weight } => write!(f, "best-effort: weight {weight}"),
        }
    }
}

impl TenantData {
    /// Everything is checked, reserved bytes included: they may get a meaning.
    pub fn decode(bytes: &[u8]) -> Result<Class, WireError> {
        let what = "tenant data";
        let data: &TenantData = prefix(what, bytes)?;
        let check = |name, value: u32, good: bool, want| match good {
            true => Ok(()),
            false => Err(field(what, name, value.into(), want)),
        };
        let zero = |name, value: u32| check(name, value, value == 0, Want::Is(0));
        let version = Want::Is(VERSION.into());
        check(
            "version",
            data.version.into(),
            data.version == VERSION,
            version,
        )?;
        zero("reserved", data.reserved_bits())?;
        let (p95_us, iops) = (data.p95_us.get(), data.iops.get());
        let (block, weight) = (data.block.get(), data.weight.get());
        match data.class {
            LATENCY_CRITICAL => {
                zero("weight", weight)?;
                check("p95_us", p95_us, p95_us > 0, Want::AtLeast(1))?;
                check("iops", iops, iops > 0, Want::AtLeast(1))?;
                let percent = data.read_pct <= 100;
                check("read_pct", data.read_pct.into(), percent, Want::AtMost(100))?;
                let good = (512..=1 << 20).contains(&block) && block % 512 == 0;
                let want = Want::Words("512 to 1048576 and a multiple of 512");
                check("block", block, good, want)?;
                Ok(Class::LatencyCritical {
                    p95_us,
                    iops,
                    read_pct: data.read_pct,
                    block,
                })
            }
            BEST_EFFORT => {
                zero("read_pct", data.read_pct.into())?;
                zero("p95_us", p95_us)?;
                zero("iops", iops)?;
                zero("block", block)?;
                check("weight", weight, weight > 0, Want::AtLeast(1))?;
                Ok(Class::BestEffort { weight })
            }
            other => Err(field(what, "class", other.into(), Want::OneOf(&[1, 2]))),
        }
    }

    fn reserved_bits(&self) -> u32 {
        let tail = self.reserved20.iter().chain(&self.reserved48);
        u32::from(tail.fold(self.reserved3, |all, &byte| all | byte))
    }
}

impl Signature {
    pub fn new() -> Signature {
        Signature {
            magic: MAGIC,
            version: U16::new(VERSION.into()),
            reserved10: [0; 6],
        }
    }
}

impl Default for Signature {
    fn default() -> Signature {
        Signature::new()
    }
}

impl identify::Controller {
    /// Version of the tenant commands this controller knows; `None`: do not
    /// send them.
    pub fn tenant_version(&self) -> Option<u16> {
        let area = self.vendor.as_bytes();
        let signature: &Signature = prefix("vendor area", area).ok()?;
        (signature.magic == MAGIC && signature.version.get() > 0).then(|| signature.version.get())
    }
}

impl Sqe {
    /// Tenant Set; its data is a [`TenantData`], in the capsule after
    /// [`Sqe::in_capsule`].
    pub fn tenant_set() -> Sqe {
        Sqe::tenant(opcode::TENANT_SET)
    }

    /// Tenant Get; it returns a [`TenantData`].
    pub fn tenant_get() -> Sqe {
        Sqe::tenant(opcode::TENANT_GET)
    }

    fn tenant(opcode: u8) -> Sqe {
        let mut sqe = Sqe::new(opcode, 0, LEN as u32);
        sqe.cdw10 = U32::new((LEN / 4) as u32);
        sqe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    fn classes() -> impl Strategy<Value = Class> {
        let critical = (1..u32::MAX, 1..u32::MAX, 0..=100_u8, 1..=2048_u32);
        prop_oneof![
            critical.prop_map(|(p95_us, iops, read_pct, sectors)| Class::LatencyCritical {
                p95_us,
                iops,
                read_pct,
                block: sectors * 512,
            }),
            (1..u32::MAX).prop_map(|weight| Class::BestEffort { weight }),
        ]
    }

    #[test]
    fn commands() {
        let sqe = Sqe::tenant_set().in_capsule();
        assert_eq!(sqe.as_bytes()[..2], [0xc1, 0x40]);
        assert_eq!((sqe.sgl.length.get(), sqe.cdw10.get()), (64, 16));
        assert_eq!(Sqe::tenant_get().opcode, 0xc2);
    }

    #[test]
    fn who_knows_tenants() {
        let mut c = identify::Controller::new_zeroed();
        assert_eq!(c.tenant_version(), None);
        c.vendor.as_mut_bytes()[..16].copy_from_slice(Signature::new().as_bytes());
        assert_eq!(c.tenant_version(), Some(1));
    }

    proptest! {
        #[test]
        fn round_trip(class in classes()) {
            prop_assert_eq!(TenantData::decode(class.data().as_bytes()), Ok(class));
        }

        #[test]
        fn what_is_accepted_is_all_there_is(bytes in prop::collection::vec(0..3_u8, 0..80)) {
            if let Ok(class) = TenantData::decode(&bytes) {
                let data = class.data();
                prop_assert_eq!(data.as_bytes(), &bytes[..LEN]);
            }
        }
    }
}
