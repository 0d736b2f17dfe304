// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong between this host and a target, and how long it may take.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use nvme_wire::WireError;
use nvme_wire::pdu::Term;
use nvme_wire::status::Status;

/// A point in time at which to give up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    total: Duration,
}

impl Deadline {
    pub fn after(total: Duration) -> Deadline {
        Deadline {
            at: Instant::now() + total,
            total,
        }
    }

    /// The time left, never zero: sockets take zero for "for ever".
    pub fn left(&self) -> Result<Duration, io::Error> {
        let left = self.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }

    /// The time there was at the beginning.
    pub fn total(&self) -> Duration {
        self.total
    }
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Opening the TCP connection.
    Open,
    /// Waiting for the answer to the first PDU.
    Initialise,
    /// A command, by its name.
    Command(&'static str),
}

#[derive(Debug)]
pub enum HostError {
    Io {
        stage: Stage,
        error: io::Error,
        waited: Duration,
    },
    /// The peer closed the connection.
    Closed { stage: Stage },
    /// The peer broke the wire format.
    Wire(WireError),
    /// The peer sent what makes no sense at this point.
    Protocol(&'static str),
    /// The peer says that we broke the wire format.
    Terminated(Term),
    /// The peer refused a command.
    Status {
        command: &'static str,
        status: Status,
    },
}

impl HostError {
    pub(crate) fn io(stage: Stage, error: io::Error, deadline: &Deadline) -> HostError {
        HostError::Io {
            stage,
            error,
            waited: deadline.total(),
        }
    }

    /// The peer did not answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, HostError::Io { error, .. }
            if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
    }
}

impl From<WireError> for HostError {
    fn from(error: WireError) -> Self {
        HostError::Wire(error)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Open => f.write_str("the TCP connection"),
            Stage::Initialise => f.write_str("the initialization of the connection"),
            Stage::Command(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Io {
                stage: Stage::Initialise,
                waited,
                ..
            } if self.is_timeout() => write!(
                f,
                "it accepted the connection but did not answer in {} s",
                waited.as_secs_f64()
            ),
            HostError::Io { stage, waited, .. } if self.is_timeout() => {
                write!(f, "no answer to {stage} in {} s", waited.as_secs_f64())
            }
            HostError::Io { stage, error, .. } => write!(f, "{stage} failed: {error}"),
            HostError::Closed {
                stage: Stage::Initialise,
            } => f.write_str(
                "it closed the connection during initialization (is it an NVMe/TCP port?)",
            ),
            HostError::Closed { stage } => write!(f, "it closed the connection during {stage}"),
            HostError::Wire(error) => write!(f, "it broke the protocol: {error}"),
            HostError::Protocol(what) => write!(f, "it broke the protocol: {what}"),
            HostError::Terminated(term) => write!(
                f,
                "it ended the connection: {} ({:#x})",
                term.status.meaning(),
                term.info
            ),
            HostError::Status { command, status } => write!(f, "it refused {command}: {status}"),
        }
    }
}

impl std::error::Error for HostError {}
