// SPDX-License-Identifier: GPL-2.0-only
//! What went wrong, as the one sentence that is printed.

use std::fmt;
use std::process::ExitCode;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The command line makes no sense: exit status 2.
    Usage(String),
    /// Anything else: exit status 1.
    Failed(String),
    /// Exit status 1; what went wrong has been said already.
    Reported,
}

impl Error {
    pub fn new(text: impl fmt::Display) -> Error {
        Error::Failed(text.to_string())
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::from(2),
            Error::Failed(_) | Error::Reported => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Failed(text) => f.write_str(text),
            Error::Reported => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<crate::netlink::NetlinkError> for Error {
    fn from(error: crate::netlink::NetlinkError) -> Self {
        use crate::netlink::{NetlinkError, Refusal};
        match error {
            NetlinkError::Refused(Refusal {
                errno: libc::EPERM, ..
            }) => Error::new("this needs root (CAP_SYS_ADMIN): try sudo"),
            other => Error::new(other),
        }
    }
}

/// Make one line of what may be several.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
