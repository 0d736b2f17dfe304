// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's errors mean to a host.

use nvme_wire::status::Status;

use super::super::IoOp;

/// Namespace is Write Protected (NVM Express Base 2.0, 3.1.4: generic 20h).
pub const WRITE_PROTECTED: Status = Status(0x020);
const CAPACITY_EXCEEDED: Status = Status(0x081);
const RESERVATION_CONFLICT: Status = Status(0x083);
const WRITE_FAULT: Status = Status(0x280);
const UNRECOVERED_READ: Status = Status(0x281);
const GUARD_CHECK: Status = Status(0x282);

/// The medium did not take or give the data.
pub fn medium(op: IoOp) -> Status {
    match op {
        IoOp::Read => UNRECOVERED_READ,
        _ => WRITE_FAULT,
    }
}

/// Do Not Retry is set where the same command would fail again.
pub fn status(errno: i32, op: IoOp) -> Status {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => CAPACITY_EXCEEDED.with_do_not_retry(),
        libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF if op != IoOp::Read => {
            WRITE_PROTECTED.with_do_not_retry()
        }
        libc::EINVAL => Status::INVALID_FIELD.with_do_not_retry(),
        libc::EOPNOTSUPP => Status::INVALID_OPCODE.with_do_not_retry(),
        libc::EBADE => RESERVATION_CONFLICT.with_do_not_retry(),
        libc::EILSEQ => GUARD_CHECK,
        libc::EIO | libc::ENODATA => medium(op),
        // The device or the memory for it may come back.
        libc::ENODEV | libc::ENXIO | libc::ENOMEM | libc::EAGAIN | libc::EBUSY => {
            Status::NAMESPACE_NOT_READY
        }
        _ => Status::INTERNAL,
    }
}
