// SPDX-License-Identifier: GPL-2.0-only
//! Completion status: type, code, and what they mean.

use std::fmt;

/// Status field of a completion without the phase bit: status code in bits
/// 0..8, status code type in bits 8..11, More bit 13, Do Not Retry bit 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const INVALID_OPCODE: Status = Status(0x001);
    pub const INVALID_FIELD: Status = Status(0x002);
    pub const DATA_TRANSFER_ERROR: Status = Status(0x004);
    pub const INTERNAL: Status = Status(0x006);
    pub const ABORT_REQUESTED: Status = Status(0x007);
    pub const INVALID_NAMESPACE: Status = Status(0x00b);
    pub const COMMAND_SEQUENCE_ERROR: Status = Status(0x00c);
    /// The SGL is shorter or longer than the data of the command.
    pub const SGL_DATA_LENGTH: Status = Status(0x00f);
    pub const SGL_TYPE: Status = Status(0x011);
    pub const OPERATION_DENIED: Status = Status(0x016);
    pub const KEEP_ALIVE_INVALID: Status = Status(0x01a);
    pub const WRITE_PROTECTED: Status = Status(0x020);
    pub const LBA_RANGE: Status = Status(0x080);
    pub const NAMESPACE_NOT_READY: Status = Status(0x082);
    pub const INVALID_QUEUE: Status = Status(0x101);
    pub const ABORT_LIMIT: Status = Status(0x103);
    pub const ASYNC_EVENT_LIMIT: Status = Status(0x105);
    pub const INVALID_LOG_PAGE: Status = Status(0x109);
    pub const FEATURE_NOT_SAVEABLE: Status = Status(0x10d);
    pub const FEATURE_NOT_CHANGEABLE: Status = Status(0x10e);
    pub const CONNECT_INCOMPATIBLE_FORMAT: Status = Status(0x180);
    pub const CONNECT_CONTROLLER_BUSY: Status = Status(0x181);
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x182);
    pub const CONNECT_RESTART_DISCOVERY: Status = Status(0x183);
    pub const CONNECT_INVALID_HOST: Status = Status(0x184);
    pub const DISCOVERY_RESTART: Status = Status(0x190);
    pub const AUTHENTICATION_REQUIRED: Status = Status(0x191);
    /// Vendor-specific, of Tenant Set: the server can't promise that.
    pub const TENANT_REFUSED: Status = Status(0x1c0);

    /// From the last two bytes of a completion, phase bit included.
    pub fn from_wire(field: u16) -> Status {
        Status(field >> 1)
    }

    pub fn to_wire(self) -> u16 {
        self.0 << 1
    }

    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Type and code, without retry hints.
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    pub fn do_not_retry(self) -> bool {
        self.0 & DNR != 0
    }

    pub fn with_do_not_retry(self) -> Status {
        Status(self.0 | DNR)
    }

    /// There is more about it in the error log.
    pub fn more(self) -> bool {
        self.0 & MORE != 0
    }

    pub fn with_more(self) -> Status {
        Status(self.0 | MORE)
    }

    /// What it says, if it is a status this library knows.
    pub fn meaning(self) -> Option<&'static str> {
        Some(match self.code() {
            0x000 => "success",
            0x001 => "invalid opcode",
            0x002 => "invalid field in command",
            0x003 => "command id conflict",
            0x004 => "data transfer error",
            0x005 => "aborted by power loss",
            0x006 => "internal error",
            0x007 => "aborted on request",
            0x008 => "aborted, queue deleted",
            0x00b => "invalid namespace or format",
            0x00c => "command sequence error",
            0x00f => "data length of the SGL invalid",
            0x011 => "SGL descriptor type invalid",
            0x016 => "operation denied",
            0x018 => "host identifier inconsistent",
            0x019 => "keep-alive timer expired",
            0x01a => "keep-alive timeout invalid",
            0x020 => "namespace is write protected",
            0x021 => "interrupted",
            0x080 => "block address out of range",
            0x081 => "capacity exceeded",
            0x082 => "namespace not ready",
            0x101 => "invalid queue identifier",
            0x103 => "too many aborts",
            0x105 => "too many asynchronous event requests",
            0x109 => "invalid log page",
            0x10d => "feature can't be saved",
            0x10e => "feature can't be changed",
            0x180 => "record format not supported",
            0x181 => "controller busy",
            0x182 => "invalid Connect parameters",
            0x183 => "restart discovery",
            0x184 => "host not admitted",
            0x190 => "discovery information changed",
            0x191 => "authentication required",
            0x1c0 => "the server can't promise this tenant what it asks for",
            0x280 => "write fault",
            0x281 => "unrecovered read error",
            0x286 => "access denied",
            0x287 => "block never written",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{meaning} (status {:#05x})", self.code()),
            None => write!(f, "status {:#05x}", self.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_form() {
        let s = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
        assert_eq!(s.to_wire(), (0x4182_u16) << 1);
        assert_eq!(Status::from_wire(s.to_wire()), s);
        assert_eq!(s.code(), 0x182);
        assert!(s.do_not_retry() && !s.is_success());
        assert_eq!(s.to_string(), "invalid Connect parameters (status 0x182)");
        assert_eq!(Status(0x7ff).to_string(), "status 0x7ff");
    }
}
