// SPDX-License-Identifier: GPL-2.0-only
//! Why a connection ends, and what its peer is told.

use std::fmt;
use std::io;

use nvme_wire::WireError;
use nvme_wire::pdu::{PduType, Term, TermStatus};

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    /// The peer closed it.
    Closed,
    /// The controller or the server did.
    Ours(&'static str),
    Socket(io::Error),
    /// The peer sent a terminate request.
    Terminated(Term),
    /// The peer broke the protocol; it gets a terminate request.
    Fault(Fault),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => End::Closed,
            _ => End::Socket(error),
        }
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> End {
        End::Fault(fault)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => f.write_str("closed by the peer"),
            End::Ours(why) => f.write_str(why),
            End::Socket(error) => write!(f, "socket error: {error}"),
            End::Terminated(term) => write!(
                f,
                "ended by the peer: {} ({:#x})",
                term.status.meaning(),
                term.info
            ),
            End::Fault(fault) => write!(f, "{fault}"),
        }
    }
}

/// A violation of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    Wire(WireError),
    /// Data beyond what the R2T asked for.
    Range(WireError),
    /// More than was allowed.
    Limit(WireError),
    /// Something that has no place now.
    Sequence(&'static str),
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        Fault::Wire(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Wire(error) | Fault::Range(error) | Fault::Limit(error) => write!(f, "{error}"),
            Fault::Sequence(what) => f.write_str(what),
        }
    }
}

/// Offset of a field in its PDU, by the name the codec gives it (NVMe/TCP 1.0,
/// 3.6.2).
fn offset(field: &str) -> u32 {
    match field {
        "flags" => 1,
        "hlen" => 2,
        "pdo" => 3,
        "plen" => 4,
        "pfv" | "fes" | "cccid" => 8,
        "hpda" | "ttag" | "fei" => 10,
        "dgst" => 11,
        "datao" => 12,
        "datal" => 16,
        _ => 0,
    }
}

impl Fault {
    /// What the terminate request says; `pdu_type` is the first byte of the PDU.
    pub fn term(&self, pdu_type: u8) -> Term {
        let (status, error) = match self {
            Fault::Wire(error) => (TermStatus::InvalidHeaderField, error),
            Fault::Range(error) => (TermStatus::OutOfRange, error),
            Fault::Limit(error) => (TermStatus::LimitExceeded, error),
            Fault::Sequence(_) => {
                return Term {
                    status: TermStatus::SequenceError,
                    info: 0,
                };
            }
        };
        match *error {
            WireError::Digest { received, .. } => Term {
                status: TermStatus::HeaderDigest,
                info: received,
            },
            // A type that exists but not here is out of sequence.
            WireError::Field { field: "type", .. } if PduType::from_wire(pdu_type).is_some() => {
                Term {
                    status: TermStatus::SequenceError,
                    info: 0,
                }
            }
            WireError::Field { field: "pfv", .. } => Term {
                status: TermStatus::UnsupportedParameter,
                info: offset("pfv"),
            },
            WireError::Field { field, .. } => Term {
                status,
                info: offset(field),
            },
            _ => Term { status, info: 0 },
        }
    }
}
